"""The wall clock of the operator's machine is set forward or back while the loop runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.model.job import JobState
from iris_cli.ops.loop.run import LoopEnd
from tests.ops.loop.loop_lab import LoopLab


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_of_the_clock_delays_nothing(step: float, tmp_path: Path) -> None:
    lab = LoopLab(tmp_path, "w0", "w1")
    lab.site.gang("train", 2, max_retries_failure=1)
    lab.at(20, lambda: setattr(lab.clock, "ahead", step))
    lab.ends(30, "train/task-1", 3)
    lab.ends(90, "train/task-0")
    lab.ends(90, "train/task-1")
    assert lab.run() is LoopEnd.DONE
    assert lab.site.state_of("train") is JobState.SUCCEEDED
    assert lab.now < 90 + 15
