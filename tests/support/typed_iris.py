"""Forks the `iris` commands that shells start: a small program sends their words, environment and streams here."""

from __future__ import annotations

import json
import os
import socket
from functools import cache
from tempfile import TemporaryDirectory
from threading import Thread

from tests.support.command_server import is_here
from tests.support.forked import Forked


def address() -> str:
    """Return the socket of this process for them; "" where commands cannot be forked."""
    return _listening().name + "/socket" if is_here() else ""


@cache
def _listening() -> TemporaryDirectory[str]:
    directory = TemporaryDirectory(prefix="iris-typed-")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{directory.name}/socket")
    listener.listen()
    Thread(target=_accept, args=(listener,), daemon=True).start()
    return directory


def _accept(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        Thread(target=_run, args=(connection,), daemon=True).start()


def _run(connection: socket.socket) -> None:
    """Run one command; answer its exit code."""
    with connection:
        _, streams, _, _ = socket.recv_fds(connection, 1, 3)
        try:
            asked = json.loads(connection.makefile().read())
            stdin, stdout, stderr = streams
            command = Forked(
                asked["words"],
                cwd=asked["cwd"],
                env=asked["env"],
                before=asked["before"],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
            )
        finally:
            for each in streams:
                os.close(each)
        code = command.wait()
        connection.sendall(b"%d" % (128 - code if code < 0 else code))
