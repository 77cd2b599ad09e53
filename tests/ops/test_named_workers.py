"""A worker that a command line names twice is changed and shown once."""

from __future__ import annotations

from pathlib import Path

from iris_cli.core.events.events import WorkerDrained, WorkerUncordoned
from iris_cli.ops.workers import workers
from tests.support.fake_runner import Site


def test_a_worker_that_is_named_twice_is_drained_probed_and_uncordoned_once(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.cycle()
    session, twice = site.session(), ["w0", "w1", "w0"]
    assert workers.drain(session, twice) == ["w0", "w1"]
    assert [each.worker.id for each in workers.probe(session, twice)] == ["w0", "w1"]
    assert workers.uncordon(session, twice) == ["w0", "w1"]
    events = [event for each in session.state.read_history(archive=True) for event in each.events]
    for kind in (WorkerDrained, WorkerUncordoned):
        assert [event.worker for event in events if isinstance(event, kind)] == ["w0", "w1"]
