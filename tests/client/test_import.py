"""A program that only wants to know its rank must not wait for what it doesn't use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SLOW = frozenset(
    (
        *("paramiko", "cryptography", "typer", "rich", "yaml", "filelock", "dataclasses"),
        *("asyncio", "subprocess", "logging", "socket", "secrets", "importlib.resources"),
    )
)


@pytest.mark.parametrize(
    ("program", "unwanted"),
    [
        ("import iris_cli.client", {"iris_cli.ops.session", "iris_cli.remote.ssh", "iris_cli.config.load"}),
        ("import iris_cli.client as c; c.get_job_info()", {"iris_cli.core.scheduling"}),
        ("import iris_cli.client as c; c.IrisClient()", {"iris_cli.core.scheduling", "iris_cli.config.load"}),
    ],
)
def test_importing_the_client_loads_nothing_slow(program: str, unwanted: set[str]) -> None:
    env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PATH": os.environ["PATH"]}
    script = f"import sys; {program}; print(*sys.modules)"
    command = [sys.executable, "-S", "-c", script]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    loaded = set(done.stdout.split())
    assert "iris_cli.client" in loaded
    assert loaded & (SLOW | unwanted) == set()


def test_the_client_installs_no_signal_handler_and_says_nothing() -> None:
    program = (
        "import signal; before = [signal.getsignal(s) for s in signal.valid_signals()]\n"
        "import iris_cli.client as c; c.IrisClient().close(); c.get_job_info()\n"
        "assert before == [signal.getsignal(s) for s in signal.valid_signals()]"
    )
    env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
