"""Paste a line that iris printed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.typed_lines import typed

ROOT = Path(__file__).parents[2]


def put_iris(directory: Path) -> None:
    """Make this `iris` a command in a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "iris"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m iris_cli "$@"\n')
    path.chmod(0o755)


def paste(line: str, directory: Path, *answers: str) -> str:
    """Type a line into a terminal in the directory and answer its questions; return the output."""
    return typed(line, directory, os.environ, columns=100, answers=answers)
