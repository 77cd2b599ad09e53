"""A host that answers late delays only the jobs that it has something to do with."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.events.events import DispatchTakenOver, TaskAssigned
from iris_cli.core.ids import WorkerId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.job import JobRequest, JobState
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import AttemptState, TaskState
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.errors import IrisError
from iris_cli.ops.cycle import cycle
from iris_cli.ops.cycle.cycle import CycleResult
from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.jobs.launch import launch, wait_for_set_up
from tests.ops.test_one_loop import SAFETY_NET, hanging, while_hanging
from tests.remote.test_fan_out import no_more_threads
from tests.support.fake_hosts import S
from tests.support.fake_runner import Site
from tests.support.waiting import until


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """`old` runs on `w0` in rack `a`, `other` on `w1` in rack `b`; nothing runs on `w2` in rack `b`."""
    made = Site(tmp_path, "w0", "w1", "w2")
    made.hosts["w0"].rack = "a"
    made.hosts["w1"].rack = made.hosts["w2"].rack = "b"
    made.cycle()
    made.launch("old", cpu=2.0, **on("a"))
    made.launch("other", cpu=3.0, **on("b"))
    made.cycle()
    assert [host.running for host in made.hosts.values()] == [["old/task-0"], ["other/task-0"], []]
    return made


def on(rack: str) -> dict[str, Any]:
    return {"constraints": (parse_constraint(f"rack={rack}"),)}


def patient_cycle(site: Site) -> CycleResult:
    """One cycle that waits for missing answers as long as the test lasts."""
    return cycle.run(site.session(), patience=SAFETY_NET)


def start(site: Site, name: str, **asked: Any) -> CycleResult:
    """What `iris launch` does."""
    session = site.session()
    job = launch(session, JobRequest(name=name, **{"command": ("true",), **asked}))
    result = cycle.run(session, patience=SAFETY_NET, job=job)
    wait_for_set_up(session, job)
    return result


# Placement


def test_a_job_is_placed_while_a_host_that_can_not_serve_it_is_silent(site: Site) -> None:
    site.launch("new", cpu=1.0, **on("b"))
    with while_hanging(site.hosts["w0"], "poll", lambda: patient_cycle(site)) as hangs:
        assert hangs.wait(SAFETY_NET)
        until(lambda: site.state_of("new") is JobState.RUNNING)


def test_it_is_placed_as_soon_as_the_hosts_that_can_serve_it_have_answered(site: Site) -> None:
    """Its place is free only by the answer of `w1`; `w0` is silent all the time."""
    site.launch("fill", cpu=4.0, **on("b"))
    site.cycle()
    site.launch("new", cpu=3.0, **on("b"))
    site.hosts["w1"].exits("other")
    with while_hanging(site.hosts["w0"], "poll", lambda: patient_cycle(site)) as hangs:
        assert hangs.wait(SAFETY_NET)
        until(lambda: site.hosts["w1"].running == ["new/task-0"])


def test_a_job_that_could_run_on_the_silent_host_goes_to_another_one_after_a_moment(site: Site) -> None:
    site.launch("new", cpu=1.0)
    with while_hanging(site.hosts["w0"], "poll", lambda: patient_cycle(site)) as hangs:
        assert hangs.wait(SAFETY_NET)
        until(lambda: site.state_of("new") is JobState.RUNNING)
        assert site.attempt("new").worker != "w0"


def test_nobody_takes_the_place_of_a_gang_that_waits_for_the_silent_host(tmp_path: Path) -> None:
    """`other` has gone past it, so `small` would have, too."""
    site = Site(tmp_path, "w0", "w1", "w2")
    site.hosts["w2"].rack = "b"
    site.cycle()
    site.launch("old", cpu=1.0, **on("r"))
    site.cycle()
    site.gang("gang", 2)
    site.launch("small", cpu=2.0, **on("r"))
    site.launch("other", cpu=4.0)
    with while_hanging(site.hosts["w0"], "poll", lambda: patient_cycle(site)) as hangs:
        assert hangs.wait(SAFETY_NET)
        until(lambda: site.hosts["w2"].running == ["other/task-0"])
        assert site.task("gang").state is TaskState.PENDING
        assert site.task("small").state is TaskState.PENDING
    assert site.hosts["w0"].running == ["old/task-0", "gang/task-0"]
    assert site.hosts["w1"].running == ["gang/task-1"]


def test_nobody_takes_the_free_worker_of_a_gang_while_its_last_rank_is_being_stopped(tmp_path: Path) -> None:
    """`other` has gone past the gang while the call to stop its rank hangs, so `behind` would have, too."""
    site = Site(tmp_path, "w0", "w1", "w2")
    site.hosts["w2"].rack = "b"
    site.cycle()
    site.gang("gang", 2, max_retries_failure=1)
    site.cycle()
    site.clock.time += site.session().limits.gang_reserve_after
    site.launch("behind", cpu=4.0, **on("r"))
    site.launch("other", cpu=4.0)
    site.hosts["w0"].exits("gang/task-0", code=1)
    with while_hanging(site.hosts["w1"], "stop", lambda: patient_cycle(site)) as hangs:
        assert hangs.wait(SAFETY_NET)
        until(lambda: site.hosts["w2"].running == ["other/task-0"])
        assert site.task("behind").state is TaskState.PENDING
    site.cycle()
    assert [site.hosts[name].running for name in ("w0", "w1")] == [["gang/task-0"], ["gang/task-1"]]


def test_a_deadline_that_has_passed_is_weighed_with_all_answers(site: Site) -> None:
    """So the end of the task names what it lacked, and not the host that was slow."""
    site.launch("block", cpu=4.0, **on("b"))
    site.cycle()
    site.launch("late", cpu=4.0, scheduling_timeout=10.0, **on("b"))
    site.clock.time += 60.0
    site.launch("new", cpu=1.0, **on("b"))
    with while_hanging(site.hosts["w0"], "poll", lambda: patient_cycle(site)) as hangs:
        assert hangs.wait(SAFETY_NET)
        until(lambda: site.state_of("new") is JobState.RUNNING)
        assert site.task("late").state is TaskState.PENDING
    assert site.state_of("late") is JobState.UNSCHEDULABLE


def test_a_placed_job_starts_before_further_hosts_are_polled(tmp_path: Path) -> None:
    """Otherwise it would wait until hundreds of hosts that hang had timed out."""
    site = Site(tmp_path, "w0", "w1", "w2", limits=Limits(max_dispatch_parallelism=1))
    site.hosts["w2"].rack = "b"
    site.cycle()
    site.launch("old", replicas=2, cpu=3.0, **on("r"))
    site.cycle()
    site.launch("new", **on("b"))
    running_at_poll: list[list[str]] = []
    for name in ("w0", "w1"):
        site.hosts[name].meanwhile["poll"] = lambda: running_at_poll.append(site.hosts["w2"].running)
    site.cycle()
    assert running_at_poll == [["new/task-0"]] * 2


def test_unhealthy_hosts_that_hang_leave_threads_for_healthy_ones(tmp_path: Path) -> None:
    """`new` fits on `w0` when `old` is seen to have ended. The others answer only after its start, or never."""
    names = [f"w{number}" for number in range(9)]
    site = Site(tmp_path, *names, limits=Limits(max_dispatch_parallelism=8))
    site.hosts["w0"].rack = "b"
    site.cycle()
    site.launch("old", cpu=4.0, **on("b"))
    site.launch("others", replicas=8, cpu=4.0, **on("r"))
    site.cycle()
    for name in names[1:]:
        site.hosts[name].silence = SilenceKind.TIMEOUT
    site.cycle()
    site.hosts["w0"].exits("old")
    site.launch("new", cpu=4.0, **on("b"))
    started, waited = Event(), []
    site.hosts["w0"].meanwhile["prepare"] = started.set
    for name in names[1:]:
        site.hosts[name].silence = None
        site.hosts[name].meanwhile["poll"] = lambda: waited.append(started.wait(SAFETY_NET))
    site.cycle(600)
    assert waited == [True] * 8


def test_a_host_whose_call_got_no_thread_is_called_by_the_next_cycle(tmp_path: Path) -> None:
    site = Site(tmp_path, "w")
    with Dispatcher(site.session()) as dispatcher:
        cycles = cycle.Cycles(dispatcher)
        with no_more_threads(), pytest.raises(IrisError, match="no thread can be started"):
            cycles.run()
        cycles.run()
    assert site.hosts["w"].calls == ["probe"]


# A launch


def test_a_launch_with_a_set_up_returns_while_a_foreign_host_is_silent(site: Site) -> None:
    def set_up() -> None:
        site.hosts["w2"].of("new").state = S.PREPARED

    site.hosts["w2"].meanwhile["prepare"] = set_up
    with hanging(site.hosts["w0"], "poll") as hangs:
        start(site, "new", cpu=2.0, setup="make", **on("b"))
        assert hangs.wait(SAFETY_NET)
        assert site.state_of("new") is JobState.RUNNING


def test_a_launch_waits_for_its_own_host(site: Site) -> None:
    def launched() -> None:
        start(site, "new", cpu=2.0, **on("b"))
        assert site.state_of("new") is JobState.RUNNING

    with while_hanging(site.hosts["w2"], "prepare", launched) as hangs:
        assert hangs.wait(SAFETY_NET)
        assert site.attempt("new").state is AttemptState.ASSIGNED


def test_a_launch_waits_for_the_only_host_that_could_serve_it(site: Site) -> None:
    def launched() -> None:
        session = site.session()
        job = launch(session, JobRequest(name="new", command=("true",), cpu=1.0, **on("a")))
        cycle.run(session, patience=0.1, job=job)
        assert site.hosts["w0"].running == ["old/task-0", "new/task-0"]

    with while_hanging(site.hosts["w0"], "poll", launched) as hangs:
        assert hangs.wait(SAFETY_NET)


def test_a_launch_that_can_not_be_placed_now_does_not_wait_for_a_foreign_host(site: Site) -> None:
    with hanging(site.hosts["w0"], "poll") as hangs:
        session = site.session()
        job = launch(session, JobRequest(name="new", command=("true",), cpu=4.0, replicas=2, **on("b")))
        result = cycle.run(session, patience=0.1, job=job)
        assert hangs.wait(SAFETY_NET)
        assert [str(each.task) for each in result.assigned] == ["new/task-0"]
        assert result.plan is not None
        assert [reason.kind for reason in result.plan.reasons(job)] == ["cpu"]


def test_what_a_launch_left_unanswered_is_given_up_and_goes_on_once(site: Site) -> None:
    """`first` is placed by the launch of `second`; its own host takes the call and answers too late."""
    site.launch("first", cpu=2.0, **on("a"))
    host = site.hosts["w0"]
    with hanging(host, "prepare") as hangs:
        session = site.session()
        session.view()
        session.new_transactions = []
        job = launch(session, JobRequest(name="second", command=("true",), cpu=1.0, **on("b")))
        cycle.run(session, patience=SAFETY_NET, job=job)
        assert hangs.wait(SAFETY_NET)
        assert site.state_of("second") is JobState.RUNNING
        assert site.attempt("first").taken_over
        committed = [event for each in session.new_transactions for event in each.events]
        assert sum(isinstance(event, DispatchTakenOver) for event in committed) == 1
        assert sum(isinstance(event, TaskAssigned) for event in committed) == 2
    site.cycle(1.0)
    assert site.state_of("first") is JobState.RUNNING
    assert host.of("first").starts == 1


def test_a_silent_host_is_no_worse_off_for_a_launch_that_did_not_wait(site: Site) -> None:
    with hanging(site.hosts["w0"], "poll"):
        start(site, "new", cpu=1.0, **on("b"))
    assert site.cluster.workers[WorkerId("w0")].condition is WorkerCondition.HEALTHY
    site.hosts["w0"].exits("old")
    site.cycle(1.0)
    assert site.state_of("old") is JobState.SUCCEEDED
