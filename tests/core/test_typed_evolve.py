"""The type checker sees into `evolve`: a misspelt field never gets as far as a log."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytest.importorskip("mypy", reason="the type checker is installed with the extra `lint`")

HEAD = """
from iris_cli.core.events import events as ev
from iris_cli.core.evolve.edit import Edit, change_row
from iris_cli.core.evolve.transitions import EventContext, row
from iris_cli.core.model.task import Assigned, Attempt, Ended, Running, Stopping, TaskState


def _start(phase: Assigned, event: ev.TaskRunning, context: EventContext) -> Running:
    return Running(started_at=event.started_at)


def _task_running(edit: Edit, event: ev.TaskRunning, at: float) -> None:
    task = edit.tasks[event.task]
    attempt = task.attempts[event.attempt]
    job, worker = edit.jobs[task.job], edit.workers[attempt.worker]
    known, group = edit.slices["west-c0ff-1"], edit.group("west")
    end = task.end
    assert end is not None
"""
FINE = """
    task.state = TaskState.RUNNING
    attempt.phase = Running(started_at=event.started_at)
    row(Assigned, ev.TaskRunning, Running, _start)
"""
PLANTED = (
    "    task.stat = TaskState.RUNNING",
    "    task.state = 'RUNNING'",
    "    attempt.phse = Assigned()",
    "    attempt.phase = Running()",
    "    attempt.phase = Running(startd_at=event.started_at)",
    "    attempt.phase = Running(started_at=event.startd_at)",
    "    attempt.phase = Ended(end=end, at=at, before=Ended(end=end, at=at, before=Assigned()))",
    "    attempt.started_at = event.started_at",
    "    Running(started_at=at).order",
    "    Running(started_at=at).started_at = at",
    "    row(Running, ev.TaskRunning, Running, _start)",
    "    row(Assigned, ev.TaskDispatched, Running, _start)",
    "    row(Assigned, ev.TaskRunning, Stopping, _start)",
    "    job.canceled = True",
    "    worker.refusal += 1",
    "    known.joined = at",
    "    group.failure = 0",
    "    edit.cluster.task[task.id] = task",
    "    task.attempts = (Attempt(numbr=0, worker=worker.id, token=attempt.token),)",
    "    end.at = at",
    "    change_row(ev.TaskEnded, _task_running)",
)


def test_a_misspelling_in_evolve_does_not_pass_the_type_checker(tmp_path: Path) -> None:
    module = tmp_path / "planted.py"
    module.write_text("\n".join([HEAD, FINE, *PLANTED]) + "\n")
    checker = [sys.executable, "-m", "mypy", "--strict", str(module)]  # with the cache of `make types`
    done = subprocess.run(checker, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = module.read_text().splitlines()
    found = {int(number) for number in re.findall(r"planted\.py:(\d+): error", done.stdout)}
    assert [lines[number - 1] for number in sorted(found)] == list(PLANTED), done.stdout + done.stderr
