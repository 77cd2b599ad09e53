"""What a person does with a line that iris printed: paste it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def put_iris(directory: Path) -> None:
    """`iris` as a command of this directory: this very one."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "iris"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m iris_cli "$@"\n')
    path.chmod(0o755)


def paste(line: str, directory: Path, env: Mapping[str, str], answers: str = "") -> str:
    """Run a line in a shell there; returns what it printed. It is an error if it fails."""
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=directory,
        env={**os.environ, **env},
        input=answers,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{line}: exit {done.returncode}: {done.stdout}"
    return done.stdout
