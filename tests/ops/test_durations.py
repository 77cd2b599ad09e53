"""Durations come from the workers' records: not from when somebody looked, nor from the clock of this machine."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.core.evolve import Draft
from iris_cli.core.ids import JobId
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import Attempt
from iris_cli.ops.cycle import observe
from iris_cli.ops.cycle.answers import MAX_UPTIME
from iris_cli.ops.cycle.replies import job_answer
from iris_cli.ops.outcomes.durations import job_ran
from iris_cli.ops.views.job_status import JobStatus, job_status
from iris_cli.ops.views.report import report
from tests.journal.test_museum import hung
from tests.ops.world import World
from tests.support.fake_runner import Clock, Site
from tests.support.lab import Lab

HOUR = 3600.0


@pytest.fixture
def hosts_clock() -> Clock:
    """The clock of all workers: right, and without steps."""
    return Clock()


@pytest.fixture
def site(tmp_path: Path, hosts_clock: Clock) -> Site:
    site = Site(tmp_path, "w0", "w1")
    for host in site.hosts.values():
        host.now = hosts_clock.now
    return site


def shown(site: Site, job: str = "one") -> JobStatus:
    return job_status(site.session(), job)


# A clock that is set


@pytest.mark.parametrize("step", [5 * HOUR, 30.0, -30.0, -5 * HOUR])
def test_a_clock_that_is_set_while_a_task_runs_changes_no_duration(
    site: Site, hosts_clock: Clock, step: float
) -> None:
    site.launch("one")
    site.cycle()
    hosts_clock.time += 90.0
    site.hosts["w0"].exits("one")
    site.cycle(90.0 + step)
    seen = shown(site)
    assert seen.job.state is JobState.SUCCEEDED
    assert (seen.job.duration, seen.tasks[0].duration, seen.tasks[0].attempts[0].duration) == (90.0,) * 3
    assert report(site.session()).jobs[0].ran == 90.0
    assert job_answer(site.cluster, JobId("one")).tasks[0].duration == 90.0


@pytest.mark.parametrize("step", [5 * HOUR, -5 * HOUR])
def test_a_clock_that_is_set_changes_no_duration_of_what_is_stopped(
    site: Site, hosts_clock: Clock, step: float
) -> None:
    site.gang("train", 2)
    site.cycle()
    hosts_clock.time += 90.0
    host, sibling = site.hosts["w0"], site.hosts["w1"]
    host.exits("train/task-0", 1)
    sibling.of("train/task-1").ended_at = hosts_clock.now() + 2.0  # noted by its wrapper when it is stopped
    site.cycle(90.0 + step)
    hosts_clock.time += 600.0
    site.cycle(600.0 - step)
    seen = shown(site, "train")
    assert seen.job.state is JobState.FAILED
    assert [task.duration for task in seen.tasks] == [90.0, 92.0]
    assert seen.job.duration == 92.0


def test_a_clock_that_is_set_between_two_attempts_changes_no_duration_of_their_job(
    site: Site, hosts_clock: Clock
) -> None:
    site.launch("one", max_retries_failure=1)
    site.cycle()
    for step in (-2 * HOUR, 5 * HOUR):
        hosts_clock.time += HOUR
        site.hosts["w0"].exits("one", 1)
        site.cycle(HOUR + step)
    seen = shown(site)
    assert (seen.job.state, seen.job.duration) == (JobState.FAILED, 2 * HOUR)
    assert [each.duration for each in seen.tasks[0].attempts] == [HOUR, HOUR]


def test_late_looks_make_short_attempts_no_longer(site: Site, hosts_clock: Clock) -> None:
    site.launch("one", max_retries_failure=1)
    site.cycle()
    for _ in range(2):
        hosts_clock.time += 0.1
        site.hosts["w0"].exits("one", 1)
        hosts_clock.time += 149.9
        site.cycle(150.0)
    seen = shown(site)
    assert (seen.job.state, seen.job.duration) == (JobState.FAILED, 0.2)
    assert [each.duration for each in seen.tasks[0].attempts] == [0.1, 0.1]
    assert seen.tasks[0].ended_at == site.clock.now() - 149.9


def test_a_late_look_at_a_stopped_task_shows_when_it_ended(site: Site, hosts_clock: Clock) -> None:
    site.gang("train", 2)
    site.cycle()
    hosts_clock.time += 90.0
    site.hosts["w0"].exits("train/task-0", 1)
    site.hosts["w1"].of("train/task-1").ended_at = hosts_clock.now() + 2.0
    site.cycle(90.0)
    hosts_clock.time += 600.0
    site.cycle(600.0)
    task = shown(site, "train").tasks[1]
    assert task.started_at is not None
    assert (task.ended_at, task.attempts[0].ended_at) == (task.started_at + 92.0,) * 2


# What a job ran


def attempts(*said: str, lab: Lab | None = None) -> Lab:
    """A job with one task for each of these reports, ten minutes after all of them started."""
    lab = (lab or Lab().worker("w", cpu=64)).job("job", replicas=len(said), max_task_failures=9).schedule()
    lab.reports("job/* running").advance(600)
    return lab.reports(*(f"job/task-{index} {words}" for index, words in enumerate(said)))


def ran(lab: Lab, job: str = "job") -> float | None:
    return job_ran(lab.cluster.jobs[JobId(job)], lab.cluster.tasks_of(JobId(job)), lab.now)


def test_tasks_that_ran_at_the_same_time_count_once() -> None:
    assert ran(attempts("exited 0 ran-100s", "exited 0 ran-250s")) == 250.0


def test_tasks_that_ran_one_after_the_other_add_up() -> None:
    assert ran(attempts("exited 0 5m-ago ran-100s", "exited 0 ran-2m")) == 220.0
    assert ran(attempts("exited 0 1m-ago ran-100s", "exited 0 ran-2m")) == 160.0


def test_of_a_gang_the_longest_rank_counts_whenever_their_ends_were_heard_of() -> None:
    lab = Lab().slice("v5a", "v5litepod-16").job("job", tpu="v5litepod-16").schedule()
    lab.reports("job/* running").advance(600).reports("job/task-0 exited 0 ran-600s").advance(9 * HOUR)
    assert ran(lab.reports(*(f"job/task-{rank} exited 0 ran-601s" for rank in (1, 2, 3)))) == 601.0


def test_what_runs_counts_from_its_start_beside_what_ended() -> None:
    lab = Lab().worker("w").job("job", max_retries_failure=2).schedule().reports("job/* running")
    lab.advance(600).reports("job/* exited 1 ran-100s").advance(600).schedule().reports(
        "job/* running 10s-ago"
    )
    assert ran(lab.advance(30)) == 140.0


def test_what_may_run_on_after_its_job_counts_until_the_end_of_the_job() -> None:
    lab = Lab().worker("w").worker("x").job("job", replicas=2, cpu=3.0).schedule().reports("job/* running")
    lab.advance(600).reports("job/task-0 exited 1 ran-100s").advance(9 * HOUR)
    assert lab.cluster.job_state(JobId("job")) is JobState.FAILED
    assert ran(lab) == 600.0
    assert ran(lab.reports("job/task-1 stopped")) == 600.0


def test_a_job_that_never_started_has_no_duration() -> None:
    assert ran(Lab().worker("w").job("job").schedule().advance(60)) is None


def test_a_log_without_reported_durations_shows_the_times_in_it() -> None:
    lab = Lab().worker("w").job("job", max_retries_failure=1).schedule().reports("job/* running").advance(600)
    lab.reports("job/* exited 1").advance(60).schedule().reports("job/* running")
    assert ran(lab.advance(60)) == 720.0
    assert ran(lab.reports("job/* exited 0 20s-ago").advance(HOUR)) == 720.0


def test_an_old_log_shows_the_durations_that_it_showed(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("job").schedule().reports("job/* running").advance(600)
    world = World(lab.reports("job/* exited 0 20s-ago"), tmp_path / "state")
    seen = job_status(world.session(), "job")
    assert "ran" not in (tmp_path / "state" / "events.jsonl").read_text().replace("ran-", "")
    assert (seen.job.duration, seen.tasks[0].duration) == (600.0, 580.0)


def test_a_reported_duration_comes_back_from_the_log(tmp_path: Path) -> None:
    cluster = hung("format-1-durations.jsonl", tmp_path / "state").load().cluster
    assert cluster is not None
    job = JobId("solo")
    assert job_ran(cluster.jobs[job], cluster.tasks_of(job), 0.0) == 7290.25


# Nonsense


TIMES_THAT_CAN_NOT_BE: tuple[tuple[float | None, float | None], ...] = (
    *((None, 1.0), (1.0, None), (None, None)),
    *((1.0, 2.0), (0.0, 1e6), (1.0, 1.0 + 1e-9)),
    *((-1.0, -2.0), (5.0, -1.0), (math.inf, 1.0), (math.inf, math.inf), (math.nan, 1.0), (1.0, math.nan)),
    *((1e300, 1.0), (1e12, 0.0), (MAX_UPTIME * 2, 0.0)),
)
"""How long ago an attempt started and ended, in seconds."""


@pytest.mark.parametrize("state", [RemoteState.EXITED, RemoteState.STOPPED, RemoteState.CANCELLED])
def test_times_that_can_t_be_are_no_duration(site: Site, state: RemoteState) -> None:
    for started, ended in TIMES_THAT_CAN_NOT_BE:
        told = weighed(site, state, started, ended)
        assert told.end is None or told.end.ran is None, (started, ended)


def test_times_that_can_be_are_a_duration(site: Site) -> None:
    told = weighed(site, RemoteState.EXITED, 100.0, 10.0)
    assert told.end is not None
    assert told.end.ran == 90.0


def test_what_has_not_ended_has_no_duration_yet(site: Site) -> None:
    told = weighed(site, RemoteState.RUNNING, 100.0, 10.0)
    assert told.end is None


def test_a_quiet_task_was_heard_of_when_its_worker_answered_not_when_the_lock_was_free(site: Site) -> None:
    """It may have written since: a silence counts up to the answer, and from the time of the last output."""
    told = weighed(site, RemoteState.RUNNING, 3_000.0, None, quiet=1_799.0, waited=60.0)
    assert told.quiet_since is None
    told = weighed(site, RemoteState.RUNNING, 3_000.0, None, quiet=1_800.0, waited=60.0)
    assert told.quiet_since == site.clock.time - 1_860.0


def weighed(
    site: Site,
    state: RemoteState,
    started: float | None,
    ended: float | None,
    *,
    quiet: float | None = None,
    waited: float = 0.0,
) -> Attempt:
    """The attempt of a task that runs, after a worker said this of it, weighed so many seconds later."""
    if not site.session().view().jobs:
        site.launch("one")
        site.cycle()
        site.clock.time += HOUR
    session = site.session()
    cluster, now = session.view(), session.clock.now()
    told = AttemptReport(
        token=site.attempt("one").token,
        state=state,
        exit_code=0 if state is RemoteState.EXITED else None,
        started_ago=started,
        ended_ago=ended,
        last_output_ago=quiet,
    )
    seen = replace(site.hosts["w0"].report(()), attempts=(told,))
    known = observe.call_context(cluster, seen.worker)
    answer = observe.validated_answer(session, known, now, seen)
    site.clock.time += waited
    draft = Draft(cluster, site.clock.time)
    observe.record_answers(session, draft, [answer])
    return draft.cluster.attempt(site.task("one").current_id)


def test_a_task_that_forges_its_times_shows_no_negative_duration(site: Site, hosts_clock: Clock) -> None:
    site.launch("one")
    site.cycle()
    site.hosts["w0"].exits("one")
    site.hosts["w0"].of("one").began_at = hosts_clock.now() + 3.0
    hosts_clock.time += 60.0
    site.cycle(-5 * HOUR)
    seen = shown(site)
    assert (seen.job.state, seen.job.duration, seen.tasks[0].duration) == (JobState.SUCCEEDED, 0.0, 0.0)
