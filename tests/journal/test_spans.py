"""A question about the past reads few lines, and its answer is that of all lines."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given

from iris_cli.config.schema import ClusterConfig
from iris_cli.core.evolve import replay
from iris_cli.core.ids import JobId
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.session import Session
from iris_cli.ops.views.history import entries_about
from iris_cli.ops.views.report import report
from tests.core.test_random_walk import Step
from tests.journal.histories import Log, busy_days, state_in
from tests.journal.test_snapshot import HISTORIES, dice, history, spoilt, walks
from tests.render.scenes import no_runner
from tests.support.fake_runner import Clock


@HISTORIES
@given(walks, dice)
def test_the_lines_about_a_job_and_the_newest_lines_are_those_of_all(
    tmp_path_factory: pytest.TempPathFactory, walk: list[Step], dice: random.Random
) -> None:
    log = Log(tmp_path_factory.mktemp("place") / "state", history(walk))
    for seq in sorted({*dice.sample(range(1, len(log) + 1), 3), len(log)}):
        log.grow(seq)
        log.look(every=dice.choice([1, 2]))
    if dice.random() < 0.5:
        state_in(log.path).compact("iris log compact")
    for moment in log.snapshots[: dice.randrange(3)]:
        spoilt(moment, dice)
    state = state_in(log.path)
    session = looking_at(state)
    whole = list(state.read_history(archive=True))
    for job in replay(whole).jobs:
        about = [each for reading in state.history_of_job(job, archive=True) for each in reading]
        assert entries_about(session, about, [job]) == entries_about(session, whole, [job])
    count = dice.randrange(1, 12)
    assert list(state.last_lines(count, archive=True))[-count:] == whole[-count:]


def test_few_lines_are_read_for_a_job(tmp_path: Path) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(len(log))
    log.look(every=1)
    state = state_in(log.path)
    assert sum(len(list(some)) for some in state.history_of_job(JobId("job-7"), archive=True)) < len(log) / 3
    assert len(list(state.last_lines(5, archive=True))) < len(log) / 3


def looking_at(state: StateDir) -> Session:
    config = ClusterConfig(path=state.path / "cluster.yaml", name="lab")
    return Session(state=state, config=config, make_runner=no_runner)


def test_a_report_since_a_time_is_that_of_the_whole_log_and_reads_few_lines(tmp_path: Path) -> None:
    log = Log(tmp_path / "state", busy_days())
    log.grow(len(log))
    log.look(every=1)
    state = state_in(log.path)
    whole = list(state.read_history(archive=True))
    since = whole[2 * len(whole) // 3].at
    cluster, reading = state.history_since(since)
    assert 0 < cluster.seq < len(whole)
    assert [each.seq for each in reading] == list(range(cluster.seq + 1, len(whole) + 1))
    moment = datetime.fromtimestamp(since, UTC).isoformat()
    session = looking_at(state)
    session.clock = Clock(whole[-1].at)
    told = report(session, moment)
    assert len(told.jobs) > 1
    assert any(job.attempts for job in told.jobs)
    for path in log.snapshots:
        path.unlink()
    assert report(session, moment) == told
