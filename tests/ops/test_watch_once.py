"""`iris watch --once` is one cycle and all that follows from it."""

from __future__ import annotations

from pathlib import Path

from iris_cli.core.model.task import AttemptState
from iris_cli.ops.loop.foreground import watch
from tests.support.fake_runner import Site


def test_what_it_starts_has_started_in_the_log_when_it_ends(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.cycle()
    site.launch("one", cpu=1.0)
    steps = list(watch(site.session(), interval=0.1, schedule=True, once=True))
    assert len(steps) == 1
    [attempt] = [attempt for _, attempt in site.session().view().live_attempts()]
    assert attempt.state is AttemptState.RUNNING
