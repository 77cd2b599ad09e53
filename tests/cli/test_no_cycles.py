"""A command that leaves work for a cycle says so where nobody runs cycles, and a program is told who runs them."""

from __future__ import annotations

import select
import signal
import sys

import pytest

from tests.support.forked import Forked
from tests.support.json_output import checked
from tests.support.operator import Operator
from tests.support.terminal import Terminal
from tests.support.waiting import PATIENCE, until

NOBODY = "no cycles are running: iris loop start, or iris cron install"


@pytest.fixture
def ann(operator: Operator) -> Operator:
    """The operator with an open job, in a shell in which no command starts the loop."""
    operator.env["IRIS_LOOP"] = "off"
    assert operator.iris("schedule", "--once").returncode == 0  # registers the worker
    return operator


def said(ann: Operator, line: str, code: int = 0) -> list[str]:
    """The lines on standard error that say that nobody runs cycles."""
    ran = ann.iris(*line.split())
    assert ran.returncode == code, ran
    return [each for each in ran.stderr.splitlines() if each == NOBODY]


def test_a_command_that_leaves_work_says_once_that_nobody_runs_cycles(ann: Operator) -> None:
    for line, code in (
        ("launch --name other -- true", 0),
        ("worker drain w0", 0),
        ("worker probe", 7),
        ("cancel other", 0),
    ):
        assert (line, said(ann, line, code)) == (line, [NOBODY])


def test_without_work_and_where_nothing_was_written_it_says_nothing(ann: Operator) -> None:
    for line in ("cancel job", "status", "--quiet worker drain w0"):
        assert (line, said(ann, line)) == (line, [])


def test_a_cycle_that_waits_for_nobody_is_no_cron_where_a_person_types_it(ann: Operator) -> None:
    words = [sys.executable, "-m", "iris_cli", "--config", str(ann.directory / "cluster.yaml")]
    with Terminal([*words, "schedule", "--once", "--lock-timeout", "0"], env=ann.environ()) as terminal:
        terminal.end()
    assert said(ann, "worker drain w0") == [NOBODY]
    ann.iris("schedule", "--once", "--lock-timeout", "0")  # the crontab of an older iris
    assert said(ann, "worker uncordon w0") == []


def begin(ann: Operator, line: str) -> Forked:
    """Start a command that runs until it is ended; its output is read where it has a line for each change."""
    return Forked(line.split(), cwd=ann.directory, env=ann.environ(), text=True, session=True)


def left(ann: Operator, line: str) -> str:
    """The only line on standard error when a watch is left that has shown a change."""
    with begin(ann, line) as process:
        until(lambda: _shows_a_launch(ann, process))
        process.send_signal(signal.SIGINT)
        told: str = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 130, told
    [only] = [each for each in told.splitlines() if "stopped watching" in each or NOBODY in each]
    return only


def _shows_a_launch(ann: Operator, process: Forked) -> bool:
    """Whether the watch has printed something after one more launch: before its first look none is news."""
    ann.iris("launch", "--no-schedule", "--", "true")
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 1.0)[0])


def test_an_interrupted_watch_says_that_nobody_runs_cycles(ann: Operator) -> None:
    told = left(ann, "watch --schedule")
    assert told.startswith("stopped watching; ")
    assert told.endswith(f"; {NOBODY}")


def test_where_cycles_come_it_says_nothing_and_an_interrupted_watch_of_status_says_who_runs_them(
    ann: Operator,
) -> None:
    assert ann.spawn()
    ann.has_run_a_cycle()
    assert said(ann, "worker drain w0") == []
    told = left(ann, "status --watch")
    assert f"; cycles: background loop (pid {ann.pid()}), last " in told


def cycles_of(ann: Operator, line: str) -> dict[str, object]:
    ran = ann.iris(*line.split())
    [document] = checked(" ".join(["iris", line.split()[0]]), ran.stdout)
    cycles = document["cycles"]
    assert isinstance(cycles, dict)
    return cycles


def test_a_program_is_told_that_nobody_runs_cycles(ann: Operator) -> None:
    for line in ("launch --json --name more -- true", "cancel more --json"):
        cycles = cycles_of(ann, line)
        assert (cycles["by"], cycles["next"], cycles["needed"]) == (None, None, True)
        assert cycles["fix"] == "iris loop start, or iris cron install"


@pytest.mark.parametrize("line", ["launch --json --name more -- true", "wait job --timeout 0s --json"])
def test_a_program_is_told_of_the_loop_that_its_command_starts(line: str, ann: Operator) -> None:
    ann.env["IRIS_LOOP"] = "auto"
    cycles = cycles_of(ann, line)
    assert cycles["by"] == "loop"
    assert cycles["next"] is not None
