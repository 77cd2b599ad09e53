"""`logs --follow` runs cycles and places retries; nobody else has to."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.model.job import JobState
from iris_cli.ops.logs.follow import Follower
from iris_cli.ops.logs.log_reading import Query
from iris_cli.ops.workers import workers
from tests.ops.loop.loop_lab import LoopLab


@pytest.fixture
def lab(tmp_path: Path) -> LoopLab:
    return LoopLab(tmp_path)


def notes(lab: LoopLab) -> list[str]:
    """What a follower of the job says of its tasks, from the start to the end of the job."""
    follower = Follower(lab.site.session(), "train", Query(tail=None))
    return [note for step in follower.steps() for _, note in step.notes]


def test_a_retry_is_placed_though_nobody_else_runs_cycles(lab: LoopLab) -> None:
    lab.site.launch("train", max_retries_failure=1)
    lab.ends(5.0, "train/task-0", 1)
    lab.ends(60.0, "train/task-0", 0)
    assert "attempt 1 on worker w0" in notes(lab)
    assert lab.site.state_of("train") is JobState.SUCCEEDED


def test_it_says_for_what_a_retry_waits_once(lab: LoopLab) -> None:
    lab.site.launch("train", max_retries_failure=1)
    lab.at(4.0, lambda: workers.drain(lab.site.session(), ["w0"], "new disk"))
    lab.ends(5.0, "train/task-0", 1)
    lab.at(60.0, lambda: workers.uncordon(lab.site.session(), ["w0"]))
    lab.ends(90.0, "train/task-0", 0)
    said = notes(lab)
    waits = [each for each in said if "retry pending" in each]
    assert len(waits) == 1, said
    assert waits[0].startswith("retry pending: the only worker is unavailable ")
    assert lab.site.state_of("train") is JobState.SUCCEEDED
