"""What a person does with a line that iris printed: paste it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.typed_lines import typed

ROOT = Path(__file__).parents[2]


def put_iris(directory: Path) -> None:
    """`iris` as a command of this directory: this very one."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "iris"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m iris_cli "$@"\n')
    path.chmod(0o755)


def paste(line: str, directory: Path, *answers: str) -> str:
    """Type a line into a terminal there, and answer what it asks; returns what it showed."""
    return typed(line, directory, os.environ, columns=100, answers=answers)
