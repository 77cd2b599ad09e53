"""A launch without an answer is given up on record, and the next cycle asks the worker once whatever its back-off."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import AttemptState
from iris_cli.core.model.worker import Worker, WorkerCondition
from iris_cli.ops.cycle import cycle, observe, polls
from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.jobs.change import cancel
from iris_cli.ops.jobs.launch import unreachable_workers
from iris_cli.ops.views.job_status import job_status
from iris_cli.ops.views.why import why
from tests.render.scenes import session_of
from tests.support.fake_hosts import Host
from tests.support.fake_runner import Site
from tests.support.lab import Lab


def cut_in_prepare(step: str) -> Callable[[Host], None]:
    def plant(host: Host) -> None:
        host.cut = step

    return plant


def lose_answer_of_prepare(host: Host) -> None:
    host.silence, host.sent = SilenceKind.TIMEOUT, True


def refuse_connections(host: Host) -> None:
    host.silence = SilenceKind.UNREACHABLE


def lose_go(host: Host) -> None:
    def fall_silent() -> None:
        host.silence, host.sent, host.never_starts = SilenceKind.TIMEOUT, True, True

    host.meanwhile["prepare"] = fall_silent


def lose_answer_of_go(host: Host) -> None:
    def fall_silent() -> None:
        host.silence, host.sent = SilenceKind.PROTOCOL, True

    host.meanwhile["prepare"] = fall_silent


def heal(host: Host) -> None:
    host.silence, host.sent, host.never_starts, host.cut = None, False, False, ""


CUTS = pytest.mark.parametrize(
    "cut",
    [
        pytest.param(refuse_connections, id="nothing-was-sent"),
        pytest.param(cut_in_prepare("made"), id="half-prepared"),
        pytest.param(cut_in_prepare("prepared"), id="prepared-and-the-answer-is-lost"),
        pytest.param(lose_answer_of_prepare, id="the-answer-to-prepare-is-lost"),
        pytest.param(lose_go, id="go-is-lost"),
        pytest.param(lose_answer_of_go, id="the-answer-to-go-is-lost"),
    ],
)


def worker(site: Site, name: str) -> Worker:
    return site.cluster.workers[WorkerId(name)]


@CUTS
def test_the_next_cycle_starts_a_gang_whose_launch_was_cut(
    tmp_path: Path, cut: Callable[[Host], None]
) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.cycle()
    site.gang("train", 2)
    cut(site.hosts["w1"])
    site.cycle()
    heal(site.hosts["w1"])
    site.cycle(2.0)
    assert site.state_of("train") is JobState.RUNNING
    ranks = [entry for host in site.hosts.values() for entry in host.tokens.values() if entry.starts]
    assert [(entry.name, entry.starts) for entry in ranks] == [("train/task-0", 1), ("train/task-1", 1)]


@CUTS
def test_a_loop_starts_it_in_its_next_cycle(tmp_path: Path, cut: Callable[[Host], None]) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.cycle()
    site.gang("train", 2)
    cut(site.hosts["w1"])
    session = site.session()
    with Dispatcher(session) as dispatcher:
        cycles = cycle.Cycles(dispatcher)
        for _ in range(2):
            cycles.run()
            cycles.finish_calls()
            heal(site.hosts["w1"])
            site.clock.time += 1.0
    assert site.state_of("train") is JobState.RUNNING
    assert [host.of(f"train/task-{rank}").starts for rank, host in enumerate(site.hosts.values())] == [1, 1]


def test_it_is_given_up_in_the_transaction_that_records_the_silence(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    site.launch("one")
    site.hosts["w0"].cut = "made"
    session = site.session()
    session.view()
    session.new_transactions = []
    cycle.run(session)
    *_, silence = session.new_transactions
    assert [type(event).__name__ for event in silence.events] == [
        "WorkerConditionChanged",
        "DispatchTakenOver",
    ]
    assert site.attempt("one").taken_over


def test_a_launch_that_another_host_refuses_is_given_up_and_made_again_when_the_worker_is_back(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    site.launch("one")
    host = site.hosts["w0"]
    own, (host.boot_id, host.incarnation) = (host.boot_id, host.incarnation), ("boot-x", "another")
    site.cycle()
    assert worker(site, "w0").condition is WorkerCondition.UNTRUSTED
    assert site.attempt("one").taken_over
    host.boot_id, host.incarnation = own
    site.cycle(10.0)
    assert site.state_of("one") is JobState.RUNNING
    assert host.of("one").starts == 1


def test_a_worker_that_stays_silent_is_asked_once_and_then_backs_off(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    site.launch("one")
    host = site.hosts["w0"]
    lose_answer_of_prepare(host)
    site.cycle()
    assert (host.calls.count("prepare"), host.calls.count("poll")) == (1, 0)
    asked = []
    for _ in range(5):
        site.cycle(3.0)
        asked.append(host.calls.count("poll"))
    assert asked == [1, 1, 1, 1, 2]
    assert worker(site, "w0").condition is WorkerCondition.SUSPECT
    assert site.attempt("one").state is AttemptState.ASSIGNED


def test_it_is_not_asked_again_in_the_cycle_that_found_it_silent(tmp_path: Path) -> None:
    """Also where there is something else to tell it: a cut that lasts a second is over by the next cycle."""
    site = Site(tmp_path, "w0", "w1")
    site.cycle()
    site.gang("train", 2)
    site.hosts["w0"].refuses = "disk"
    lose_answer_of_prepare(site.hosts["w1"])
    site.cycle()
    assert site.hosts["w1"].calls[1:] == ["prepare"]


def test_a_refused_key_is_tried_once_per_back_off(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    site.launch("one")
    host = site.hosts["w0"]
    host.silence, host.sent = SilenceKind.AUTH, False
    site.cycle()
    site.cycle(2.0)
    assert host.calls.count("poll") == 0
    site.cycle(10.0)
    assert host.calls.count("poll") == 1


def test_a_poll_that_was_under_way_when_the_launch_was_cut_is_no_reason_to_wait(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    site.launch("old")
    site.cycle()
    host, session = site.hosts["w0"], site.session()
    lose_answer_of_prepare(host)
    known = observe.call_context(session.view(), WorkerId("w0"))
    question = polls.Poll(WorkerId("w0"), probe=False)
    asked_at = site.clock.now()
    seen = polls.poll_call(session, session.cluster, session.read_at, question, known)()
    heal(host)
    site.clock.time += 1.0
    site.launch("one")
    host.meanwhile["poll"] = lambda: lose_answer_of_prepare(host)
    site.cycle()
    heal(host)
    site.clock.time += 1.0
    with session.transaction() as draft:
        observe.record_answers(session, draft, [observe.validated_answer(session, known, asked_at, seen)])
    site.cycle(1.0)
    assert site.state_of("one") is JobState.RUNNING


def test_an_interrupted_invocation_gives_up_what_it_was_launching(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.cycle()
    site.launch("one")
    host, session = site.hosts["w0"], site.session()
    arrived, over = Event(), Event()

    def hang() -> None:
        arrived.set()
        over.wait(30.0)

    lose_answer_of_prepare(host)
    host.meanwhile["prepare"] = hang
    with suppress(KeyboardInterrupt), Dispatcher(session) as dispatcher:
        cycle.Cycles(dispatcher).run()
        assert arrived.wait(30.0)
        raise KeyboardInterrupt
    over.set()
    heal(host)
    assert site.attempt("one").taken_over
    site.cycle(1.0)
    assert (site.state_of("one"), host.of("one").starts) == (JobState.RUNNING, 1)


def test_a_gang_that_was_given_up_and_cancelled_leaves_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.cycle()
    site.gang("train", 2)
    lose_answer_of_prepare(site.hosts["w1"])
    site.cycle()
    heal(site.hosts["w1"])
    cancel(site.session(), ["train"])
    assert site.cluster.jobs[JobId("train")].end is not None
    assert list(site.cluster.live_attempts()) == []
    assert [host.running for host in site.hosts.values()] == [[], []]


def test_a_silent_worker_says_when_it_is_tried_again(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("job").schedule().reports("job/* running").silent("w").advance("3s")
    (place,) = why(session_of(lab, tmp_path / "state"), "job/task-0").places
    assert place.doubt == "suspect for 3s (connect: no route to host); polled again in 7s"


def test_a_job_whose_launch_got_no_answer_names_the_worker_and_when_it_is_tried_again(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("job").schedule().unanswered("job/*")
    (row,) = job_status(session_of(lab, tmp_path / "state"), "job").tasks
    assert row.why == (
        "its worker has not confirmed the start; "
        "worker: suspect for 0s (connect: timeout); polled again in the next cycle"
    )


def test_a_launch_names_the_worker_that_did_not_answer_and_when_it_is_tried_again(tmp_path: Path) -> None:
    session = session_of(Lab().worker("w").job("job").schedule().unanswered("job/*"), tmp_path / "state")
    session.view()
    for has_next_cycle, then in ((True, "polled again in the next cycle"), (False, "no cycles are running")):
        unreachable = unreachable_workers(session, JobId("job"), has_next_cycle=has_next_cycle)
        assert unreachable == {WorkerId("w"): f"connect: timeout; {then}"}
