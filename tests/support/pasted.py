"""Paste a line that iris printed."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from tests.support.typed_iris import address
from tests.support.typed_lines import typed

ROOT = Path(__file__).parents[2]

_IRIS = """
import json, os, socket, sys
address, root, before = {values}
if address and os.isatty(0):
    server = socket.socket(socket.AF_UNIX)
    server.connect(address)
    request = dict(words=sys.argv[1:], cwd=os.getcwd(), env=dict(os.environ, PYTHONPATH=root), before=before)
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps(request).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(int(server.makefile().read()))
program = before + "; from iris_cli.__main__ import main; main()"
os.environ["PYTHONPATH"] = root
os.execv(sys.executable, [sys.executable, "-c", program, *sys.argv[1:]])
"""


def put_iris(directory: Path, before: str = "pass") -> None:
    """Make this `iris` a command in a directory; it first runs `before`, a line of Python.

    It is forked, which saves the start of an interpreter (see typed_iris.py). In a pipe it is a new interpreter in the
    session of the shell, because it may ask at the terminal of that session.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "iris"
    program = _IRIS.format(values=(address(), str(ROOT), before))
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S -c {shlex.quote(program)} "$@"\n')
    path.chmod(0o755)


def paste(line: str, directory: Path, *answers: str) -> str:
    """Type a line into a terminal in the directory and answer its questions; return the output."""
    return typed(line, directory, os.environ, columns=100, answers=answers)
