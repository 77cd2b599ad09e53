"""Waiting until jobs are over, and what the exit code then is."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from iris_cli.core.ids import JobId, TaskId
from iris_cli.core.messages.observations import AttemptReport, RemoteState, WorkerReport
from iris_cli.core.model.job import JobState
from iris_cli.errors import ExitCode
from iris_cli.ops.cycle.cycle import Cycles
from iris_cli.ops.loop.foreground import CycleRunner, WaitResult, wait_for
from iris_cli.ops.session import GetProgress, ProgressState
from tests.ops.world import World
from tests.support.fake_hosts import Entry, Host
from tests.support.fake_runner import Clock, Site
from tests.support.lab import Lab

S, F, K, U, R = (
    JobState.SUCCEEDED,
    JobState.FAILED,
    JobState.KILLED,
    JobState.UNSCHEDULABLE,
    JobState.RUNNING,
)


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ([S], 0),
        ([S, S], 0),
        ([F], 1),
        ([K], 8),
        ([U], 9),
        ([S, K], 8),
        ([K, U], 9),
        ([U, F], 1),
        ([S, K, U, F], 1),
        ([R], 1),
        ([S, R], 1),
        ([K, R], 1),
    ],
)
def test_the_worst_end_decides(states: list[JobState], code: int) -> None:
    waited = WaitResult({JobId(f"job-{number}"): state for number, state in enumerate(states)})
    assert waited.exit_code == code


def test_it_waits_for_all_jobs(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("one").job("two").schedule().reports("one/* running", "two/* running")
    world = World(lab, tmp_path / "state")
    steps = iter(["one/* exited 0", "two/* exited 3"])

    def go_on() -> None:
        lab.reports(next(steps))
        world.write()

    world.clock.then = go_on
    with world.scheduler():
        waited = wait_for(world.session(), [JobId("one"), JobId("two")])
    assert dict(waited.states) == {"one": S, "two": F}
    assert waited.exit_code is ExitCode.FAILED


def test_before_the_first_cycle_no_number_of_tasks_is_told(tmp_path: Path) -> None:
    world = World(Lab().worker("w").job("one").schedule().reports("one/* exited 0"), tmp_path / "state")
    session = world.session()
    told: list[ProgressState] = []

    def progress(get_progress: GetProgress) -> AbstractContextManager[None]:
        told.append(get_progress())
        return nullcontext()

    session.progress = progress
    wait_for(session, [JobId("one")])
    assert told[0] == ("waiting for one", 0, 0, "")


def test_the_time_is_over_to_the_second(tmp_path: Path) -> None:
    world = World(Lab().job("train"), tmp_path / "state")
    with world.scheduler():
        began = world.clock.time
        waited = wait_for(world.session(), [JobId("train")], timeout=7.5)
    assert world.clock.time - began == pytest.approx(7.5)
    assert (waited.open, waited.exit_code) == (["train"], ExitCode.FAILED)


def test_it_says_why_no_cycle_could_be_run(tmp_path: Path) -> None:
    world = World(Lab().worker("w").job("train"), tmp_path / "state")
    with world.scheduler():
        waited = wait_for(world.session(), [JobId("train")], timeout=1)
    assert waited.trouble is not None
    assert "iris schedule" in waited.trouble.message


def test_it_looks_at_the_log_less_and_less_often(tmp_path: Path) -> None:
    world = World(Lab().job("train"), tmp_path / "state")
    with world.scheduler():
        wait_for(world.session(), [JobId("train")], timeout=600)
    assert world.clock.naps < 320


def test_the_first_cycles_come_soon_and_later_ones_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(Lab().worker("w").job("train").schedule().reports("train/* running"), tmp_path / "state")
    world.answers("w")
    cycles: list[float] = []

    run = Cycles.run

    def cycle(each: Cycles) -> None:
        cycles.append(each.session.clock.monotonic())
        run(each)

    monkeypatch.setattr(Cycles, "run", cycle)
    wait_for(world.session(), [JobId("train")], timeout=60)
    pauses = [after - before for before, after in pairwise(cycles)]
    assert pauses[0] < 0.5
    assert pauses[1] < 1.0
    assert pauses[2] < 2.0
    assert 3.0 <= min(pauses[4:]) <= max(pauses) < 6.0


def test_cycles_keep_coming_soon_while_short_tasks_leave_room_for_the_next(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    host = site.hosts["w0"]

    @dataclass
    class Passing(Clock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            for name in host.running:
                host.exits(name)

    site.clock = host_clock = Passing()
    host.now = host_clock.now
    site.launch("short", replicas=20, cpu=3.0)
    began = host_clock.time
    assert wait_for(site.session(), [JobId("short")]).states == {"short": S}
    assert len(host.tokens) == 20
    assert host_clock.time - began < 20 * 1.5


def test_a_wait_runs_cycles_if_no_other_process_does(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("train").schedule().reports("train/* running")
    world = World(lab, tmp_path / "state")
    attempt = lab.attempt("train")
    facts = lab.hosts[attempt.worker].facts
    exited = AttemptReport(token=attempt.token, state=RemoteState.EXITED, exit_code=0)
    world.answers("w")
    world.hosts.polls["w"] = WorkerReport(
        worker=facts.worker, boot_id=facts.boot_id, incarnation=facts.incarnation, attempts=(exited,)
    )
    session = world.session()
    assert wait_for(session, [JobId("train")], timeout=600).states == {"train": S}
    assert session.view().job_state(JobId("train")) is S


def test_why_a_task_is_pending_stays_known_while_no_cycle_can_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iris_cli.ops.session.LOCK_TIMEOUT", 0.01)
    site = Site(tmp_path, "w0")
    site.launch("first", cpu=3.0)
    site.launch("second", cpu=3.0)
    second = TaskId(JobId("second"), 0)
    session = site.session()
    session.lock_timeout = 0.01
    with CycleRunner(session) as runner:
        runner.run_due_cycle()
        why = runner.reason(second)
        assert "assigned to first" in why
        runner.pause(1.0)  # the answers of the host arrive
        site.hosts["w0"].exits("first")
        with site.session().state.locked("iris log salvage", 0.0):
            runner.make_cycle_due()
            runner.run_due_cycle()
        assert "iris log salvage" in str(runner.trouble)
        assert runner.reason(second) == why
        runner.make_cycle_due()
        runner.run_due_cycle()
        assert (runner.trouble, runner.reason(second)) == (None, "")


def test_an_end_that_a_late_answer_tells_is_seen_without_a_pause(tmp_path: Path) -> None:
    """As that of a launch, where the task is over before the launch is acknowledged."""

    class Quick(Host):
        def start(self, entry: Entry) -> None:
            super().start(entry)
            self.exits("train")

    site = Site(tmp_path, "w0")
    site.hosts["w0"] = Quick("w0", site.clock.now)
    site.launch("train")
    began = site.clock.time
    assert wait_for(site.session(), [JobId("train")]).states == {"train": S}
    assert site.clock.time == began
