"""What a command line costs before it does anything: only what the command that is meant needs is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bench.cluster_files import ClusterFiles, finished
from iris_cli.cli import app, cycles, tree
from iris_cli.cli.context import Context
from iris_cli.core.events.events import WorkerDrained

SCRIPT = """
import sys
from iris_cli.cli.app import run
from iris_cli.cli.tree import COMMANDS
code = run(sys.argv[1:])
modules = {name: "iris_cli.cli.commands." + name.replace("-", "_") for name in COMMANDS}
loaded = [name for name, module in modules.items() if module in sys.modules]
print(f"\\n{code} {'all' if len(loaded) == len(modules) else ','.join(loaded)}")
"""
SLOW = frozenset(
    (
        *("paramiko", "cryptography", "rich", "dataclasses", "asyncio", "logging", "argparse"),
        *("importlib.metadata", "secrets", "random", "socket", "filelock"),
    )
)


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (["--state-dir", "launch", "status", "--help"], "0 status"),
        (["worker", "probe", "--help"], "0 workers,worker"),
        ([], "0 "),
        (["stauts"], "2 all"),
    ],
    ids=" ".join,
)
def test_only_the_command_that_is_meant_is_loaded(words: list[str], outcome: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == outcome


def test_annotations_of_options_are_objects_which_are_evaluated_once() -> None:
    names = ("tree", "command_types", *(f"commands.{name}" for name in tree.COMMANDS))
    modules = [import_module(f"iris_cli.cli.{name.replace('-', '_')}") for name in names]
    assert [each.__name__ for each in modules if hasattr(each, "annotations")] == []  # that of __future__


@pytest.fixture
def idle(tmp_path: Path) -> ClusterFiles:
    return ClusterFiles.make(tmp_path, 8)


@pytest.mark.parametrize("line", ["schedule --once", "status --json", "status", ""])
def test_frequent_commands_load_no_slow_module(line: str, idle: ClusterFiles) -> None:
    loaded = loaded_by(idle, line)
    assert "iris_cli.ops.session" in loaded
    assert loaded & SLOW == set()
    assert "iris_cli.core.scheduling" not in loaded, "nothing waits"


def test_where_the_snapshot_has_it_all_no_kind_of_event_is_loaded(idle: ClusterFiles) -> None:
    reading = {
        "iris_cli.core.events.events",
        "iris_cli.core.evolve",
        "iris_cli.journal.log.record",
        "iris_cli.journal.log.scan",
    }
    idle.write(list(finished(idle.workers, 500)))
    assert reading <= loaded_by(idle, "status"), "the log is read, and a snapshot left"
    assert loaded_by(idle, "status").isdisjoint(reading)
    idle.write([WorkerDrained(worker=idle.workers[0])])
    assert reading <= loaded_by(idle, "status")


def loaded_by(cluster: ClusterFiles, line: str) -> set[str]:
    """The modules of a process that runs that line, and says nothing on stderr."""
    script = "import sys; from iris_cli.cli import app; app.run(sys.argv[1:]); print('\\n', *sys.modules)"
    command = [sys.executable, "-S", "-c", script, *cluster.iris(*line.split())[3:]]
    paths = os.pathsep.join(path for path in sys.path if path)
    env = {**cluster.environment, "PYTHONPATH": paths}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("line", "ran"),
    [
        ("schedule --once --lock-timeout 0 --cron 60", {"once": True, "interval": None, "cron": 60.0}),
        ("--quiet schedule --interval=3 --lock-timeout 0", {"once": False, "interval": 3.0, "cron": None}),
        ("schedule --interval 10s --lock-timeout 0", {"once": False, "interval": 10.0, "cron": None}),
    ],
)
def test_global_options_stand_anywhere(
    line: str, ran: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[dict[str, Any]] = []

    def record(iris: Context, **options: Any) -> int:
        found.append({**options, "lock_timeout": iris.lock_timeout})
        return 0

    monkeypatch.setattr(cycles, "schedule", record)
    assert app.run(line.split()) == 0
    assert found == [{**ran, "scale": False, "lock_timeout": 0.0}]


def test_an_option_that_does_not_exist_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["schedule", "--bogus"]) == 2
    assert capsys.readouterr().err == "error: no such option: --bogus\nhint: iris schedule --help\n"


def test_completion_knows_the_commands_and_their_options() -> None:
    def completed(words: str, number: int) -> list[str]:
        env = {
            **os.environ,
            "_IRIS_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(number),
        }
        program = "from iris_cli.cli.app import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
        )
        return done.stdout.split()

    assert completed("iris\nsta", 1) == ["status", "stacks"]
    assert completed("iris\nstatus\n--a", 2) == ["--at", "--all"]
