"""`invoke`, which takes long to load, is loaded for what only it can do."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("invoke", reason="this paramiko does without it")

LOADED = "print('invoke.config' in sys.modules)"


def printed(program: str) -> list[str]:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return ran.stdout.split()


def test_a_connection_does_without_it() -> None:
    assert printed(f"import sys, iris_cli.remote.ssh_config, iris_cli.remote.ssh_dial; {LOADED}") == ["False"]


def test_a_match_exec_of_a_program_that_uses_us_has_it() -> None:
    look = (
        "import io, paramiko; found = paramiko.SSHConfig.from_text('Match exec true\\nPort 7\\n').lookup('w')"
    )
    assert printed(f"import sys, iris_cli.remote.ssh_config; {look}; print(found['port']); {LOADED}") == [
        "7",
        "True",
    ]


@pytest.mark.parametrize("what", ["import invoke", "from invoke import run; import invoke"])
def test_whoever_imports_it_before_or_after_gets_it_itself(what: str) -> None:
    ours = "import iris_cli.remote.ssh_config"
    same = "print(type(invoke).__name__, sys.modules['invoke'] is invoke)"
    for program in (f"import sys; {ours}; {what}; {same}", f"import sys; {what}; {ours}; {same}"):
        assert printed(program) == ["module", "True"]
