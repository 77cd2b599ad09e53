"""What a command line costs before it does anything: only what the command that is meant needs is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bench.cluster_files import ClusterFiles, finished
from iris_cli.cli import app, cycles, tree
from iris_cli.cli.context import Context
from iris_cli.core.events.events import WorkerDrained

EACH = """
import os, sys
from iris_cli.cli import app
for line in sys.argv[1:]:
    if os.fork() == 0:
        code = app.run(line.split())
        print("\\nLOADED", code, *sys.modules, flush=True)
        os._exit(0)
    os.wait()
"""
SLOW = frozenset(
    (
        *("paramiko", "cryptography", "rich", "dataclasses", "asyncio", "logging", "argparse"),
        *("importlib.metadata", "secrets", "random", "socket", "filelock"),
    )
)


def test_only_the_command_that_is_meant_is_loaded() -> None:
    outcomes: dict[str, tuple[int, list[str]]] = {
        "--state-dir launch status --help": (0, ["status"]),
        "worker probe --help": (0, ["workers", "worker"]),
        "": (0, []),
        "stauts": (2, [*tree.COMMANDS]),
    }
    modules = {name: "iris_cli.cli.commands." + name.replace("-", "_") for name in tree.COMMANDS}
    for line, code, loaded in loaded_by_each(list(outcomes), dict(os.environ)):
        found = [name for name, module in modules.items() if module in loaded]
        assert (line, code, found) == (line, *outcomes[line])


def test_annotations_of_options_are_objects_which_are_evaluated_once() -> None:
    names = ("tree", "command_types", *(f"commands.{name}" for name in tree.COMMANDS))
    modules = [import_module(f"iris_cli.cli.{name.replace('-', '_')}") for name in names]
    assert [each.__name__ for each in modules if hasattr(each, "annotations")] == []  # that of __future__


@pytest.fixture
def idle(tmp_path: Path) -> ClusterFiles:
    return ClusterFiles.make(tmp_path, 8)


def test_frequent_commands_load_no_slow_module(idle: ClusterFiles) -> None:
    where = " ".join(idle.iris()[3:])
    lines = [f"{where} {line}" for line in ("schedule --once", "status --json", "status", "")]
    for line, code, loaded in loaded_by_each(lines, idle.environment, says=""):
        assert (line, code, loaded & SLOW) == (line, 0, set())
        assert "iris_cli.ops.session" in loaded, line
        assert "iris_cli.core.scheduling" not in loaded, f"nothing waits: {line}"


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
    [(_, _, loaded)] = loaded_by_each([" ".join([*cluster.iris()[3:], line])], cluster.environment, says="")
    return loaded


def loaded_by_each(
    lines: list[str], env: Mapping[str, str], says: str | None = None
) -> list[tuple[str, int, set[str]]]:
    """Each line with the exit code and the modules of its process, which is forked from one that has started."""
    paths = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-S", "-c", EACH, *lines]
    done = subprocess.run(
        command, env={**env, "PYTHONPATH": paths}, capture_output=True, text=True, check=True
    )
    assert says in (None, done.stderr)
    told = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("LOADED ")]
    return [(line, int(code), set(loaded)) for line, (code, *loaded) in zip(lines, told, strict=True)]


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
