"""What a command line costs before it does anything: only the modules of the command that is meant are loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from iris_cli.cli.app import COMMANDS, SETUP_COMMANDS, run
code = run(sys.argv[1:])
loaded = [name for name in (*COMMANDS, *SETUP_COMMANDS) if f"iris_cli.cli.{name}" in sys.modules]
print(f"\\n{code} {'all' if len(loaded) == len((*COMMANDS, *SETUP_COMMANDS)) else ','.join(loaded)}")
"""


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (["status", "--help"], "0 status"),
        (["schedule", "--json", "--help"], "0 schedule"),
        (["--state-dir", "launch", "status", "--help"], "0 status"),
        (["worker", "probe", "--help"], "0 worker"),
        (["--help"], "0 all"),
        ([], "0 all"),
        (["stauts"], "2 all"),
    ],
    ids=" ".join,
)
def test_only_the_command_that_is_meant_is_loaded(words: list[str], outcome: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == outcome
