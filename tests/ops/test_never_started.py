"""A host that sets up what it is told to, and then starts nothing: it holds up no cycle, and no task for ever."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Event

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.messages.observations import AttemptReport, RemoteState, SilenceKind
from iris_cli.core.model.job import JobState
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import AttemptState, End, EndReason
from iris_cli.ops.cycle import cycle, observe
from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.workers.workers import uncordon
from tests.support.fake_runner import Site

W0 = WorkerId("w0")
SAFETY_NET = 60.0  # seconds


def test_a_host_that_prepares_and_never_starts_keeps_no_cycle_from_ending(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    host = site.hosts["w0"]
    host.never_starts = True
    site.launch("one")
    site.cycle()
    assert site.attempt("one").state is AttemptState.ASSIGNED
    assert host.calls.count("go") == 3
    host.never_starts = False
    site.cycle(10.0)
    assert host.running == ["one/task-0"]


def test_what_a_host_never_starts_is_given_up_after_the_time_of_a_dispatch_and_tried_elsewhere(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.hosts["w0"].never_starts = True
    site.launch("one")
    for _ in range(6):
        site.cycle(10.0)
    assert site.attempt("one").state is AttemptState.ASSIGNED
    site.cycle(10.0)
    end = site.task("one").attempts[0].end
    assert end == End(
        reason=EndReason.DISPATCH_FAILED,
        at=site.cluster.at,
        error="w0 acknowledged the launch but did not start it",
    )
    site.cycle(1.0)
    assert site.hosts["w1"].running == ["one/task-0"]
    assert (site.task("one").preemptions, site.cluster.workers[W0].cooldown_until) == (
        0,
        site.clock.now() + 9.0,
    )


def test_a_host_that_starts_nothing_is_quarantined_and_costs_no_task_more_than_its_refusals(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, "w0")
    site.hosts["w0"].never_starts = True
    site.launch("one")
    for _ in range(8):
        site.cycle(61.0)
    worker = site.cluster.workers[W0]
    assert worker.quarantine_reason == (
        "refused 3 launches in a row, last: w0 acknowledged the launch but did not start it"
    )
    for _ in range(20):
        uncordon(site.session(), ["w0"])
        site.cycle(61.0)
    assert len(site.task("one").attempts) == Limits().max_dispatch_failures
    end = site.task("one").end
    assert end is not None
    assert (site.state_of("one"), end.reason) == (JobState.FAILED, EndReason.DISPATCH_FAILED)


def test_what_a_host_holds_up_at_the_same_time_is_one_refusal(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.hosts["w0"].never_starts = True
    site.launch("sweep", replicas=3, cpu=0.5)
    site.cycle()
    site.cycle(61.0)
    assert all(task.attempts[0].held_up for task in site.cluster.tasks_of(JobId("sweep")))
    worker = site.cluster.workers[W0]
    assert (worker.refusals, worker.quarantined) == (1, False)
    assert worker.cooldown_until == site.clock.now() + 10.0


@pytest.mark.parametrize("state", [RemoteState.PREPARING, RemoteState.PREPARED, RemoteState.LAUNCHING])
def test_what_was_on_its_way_when_it_was_heard_of_is_not_late_because_nobody_weighed_it(
    tmp_path: Path, state: RemoteState
) -> None:
    """This machine slept in between, or somebody else held the lock."""
    site = Site(tmp_path, "w0")
    host, session = site.hosts["w0"], site.session()
    host.never_starts = True
    site.launch("one", setup="true")
    site.cycle()
    known, heard_at = observe.call_context(site.cluster, W0), site.clock.now()
    (token,) = known.attempts
    said = replace(host.report(()), attempts=(AttemptReport(token=token, state=state, started_ago=1.0),))
    site.clock.time += 8 * 3600.0
    with session.transaction() as draft:
        observe.record_answers(session, draft, [observe.WorkerAnswer(said, heard_at, known, heard_at)])
    assert site.attempt("one").state is AttemptState.ASSIGNED


def a_gang_that_waited_for_long(path: Path) -> Site:
    """Its first rank was set up at once, its second one ten minutes later; then both are told to start."""
    site = Site(path, "w0", "w1", "w2")
    site.gang("train", 2, setup="./install")
    site.cycle()
    ranks = [host for host in site.hosts.values() if host.tokens]
    for host in ranks:
        assert "go" not in host.calls
        host.of("train/task-" + str(ranks.index(host))).state = RemoteState.PREPARED
        host.never_starts = host is ranks[0]
        site.cycle(600.0)
    return site


def test_a_rank_that_waited_long_for_the_others_has_the_whole_time_of_a_dispatch_to_start(
    tmp_path: Path,
) -> None:
    site = a_gang_that_waited_for_long(tmp_path)
    (slow,) = (host for host in site.hosts.values() if host.never_starts)
    assert slow.calls.count("go") == 3
    site.cycle(50.0)
    assert slow.calls.count("go") == 6
    assert site.cluster.jobs[JobId("train")].refused_rounds == 0
    slow.never_starts = False
    site.cycle(5.0)
    assert sorted(name for host in site.hosts.values() for name in host.running) == [
        "train/task-0",
        "train/task-1",
    ]
    assert all(worker.refusals == 0 for worker in site.cluster.workers.values())


def test_a_rank_that_waited_long_and_then_is_never_started_is_given_up_after_that_time(
    tmp_path: Path,
) -> None:
    site = a_gang_that_waited_for_long(tmp_path)
    site.cycle(50.0)
    site.cycle(11.0)
    assert site.cluster.jobs[JobId("train")].refused_rounds == 1


def test_without_a_start_note_on_the_host_the_time_since_the_assignment_counts(
    tmp_path: Path,
) -> None:
    """As where no name can be made any more: what is never started must not be waited for until for ever."""
    site = Site(tmp_path, "w0")
    site.hosts["w0"].never_starts, site.hosts["w0"].notes = True, False
    site.launch("one")
    site.cycle()
    site.cycle(59.0)
    assert site.attempt("one").held_up == ""
    site.cycle(2.0)
    assert site.task("one").attempts[0].held_up == "w0 acknowledged the launch but did not start it"


def test_what_was_told_to_start_long_ago_is_told_once_more_before_it_is_given_up(tmp_path: Path) -> None:
    """Nobody was there for an hour; what hindered the first start may be over."""
    site = Site(tmp_path, "w0")
    host = site.hosts["w0"]
    host.never_starts = True
    site.launch("one")
    site.cycle()
    host.never_starts = False
    site.cycle(3600.0)
    assert host.running == ["one/task-0"]


def test_a_rank_that_is_never_started_ends_the_round_as_a_refusal(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1", "w2")
    site.gang("train", 2)
    site.hosts["w0"].never_starts = True
    site.cycle()
    site.cycle(61.0)
    job = site.cluster.jobs[JobId("train")]
    assert (job.refused_rounds, job.failed_rounds, job.preempted_rounds) == (1, 0, 0)
    site.cycle(1.0)
    assert sorted(site.hosts["w1"].running + site.hosts["w2"].running) == ["train/task-0", "train/task-1"]


def hold(over: Event) -> None:
    over.wait(SAFETY_NET)


def test_a_task_that_never_starts_is_given_up_even_if_each_start_outlasts_a_cycle(
    tmp_path: Path,
) -> None:
    """As in `iris watch`: whoever is told to start something takes as long over his answer as a cycle lasts."""
    site = Site(tmp_path, "w0")
    host, session = site.hosts["w0"], site.session()
    host.never_starts = True
    site.launch("one")
    with Dispatcher(session) as dispatcher:
        for _ in range(300):  # a busy machine gets little done in one
            over = Event()
            host.meanwhile["go"] = partial(hold, over)
            cycle.Cycles(dispatcher, patience=0.05).run()
            over.set()
            if session.cluster.workers[W0].refusals:
                break
            site.clock.time += 61.0
        assert site.task("one").attempts[0].held_up == "w0 acknowledged the launch but did not start it"


def test_a_host_that_never_received_go_is_not_held_up(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    host, session = site.hosts["w0"], site.session()
    host.never_starts = True
    site.launch("one")
    site.cycle()
    with Dispatcher(session) as dispatcher:
        for _ in range(5):
            host.meanwhile["poll"] = partial(setattr, host, "silence", SilenceKind.UNREACHABLE)
            host.meanwhile["go"] = partial(setattr, host, "silence", None)
            cycle.Cycles(dispatcher).run()
            dispatcher.process_calls()
            site.clock.time += 61.0
    assert site.attempt("one").held_up == ""
    assert host.calls.count("go") > 3
