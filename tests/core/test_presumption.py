"""`replace_lost`: whose silence is taken for death, when, and what is remembered of what may still run."""

from __future__ import annotations

from typing import Any

import pytest

from iris_cli.core.constraints import AttributeValue
from iris_cli.core.events.events import AttemptPresumedGone, WorkerRegistered, WorkerSilenceCounted
from iris_cli.core.evolve import IllegalTransitionError, evolve
from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.lifecycle import failure_detection
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.job import Job, ReplaceLost
from iris_cli.core.model.task import AttemptState, EndReason, TaskState
from iris_cli.core.model.worker import Connection, Span, Worker
from tests.support.lab import Lab

NEVER, PREEMPTIBLE, ALWAYS = ReplaceLost.NEVER, ReplaceLost.PREEMPTIBLE, ReplaceLost.ALWAYS


@pytest.mark.parametrize(
    ("of_the_job", "of_the_worker", "preemptible", "moves"),
    [
        (None, PREEMPTIBLE, "true", True),
        (None, PREEMPTIBLE, "false", False),
        (None, PREEMPTIBLE, None, False),
        (None, ALWAYS, "false", True),
        (None, NEVER, "true", False),
        (NEVER, ALWAYS, "true", False),
        (ALWAYS, NEVER, "false", True),
        (PREEMPTIBLE, NEVER, "true", True),
        (PREEMPTIBLE, ALWAYS, "false", False),
    ],
)
def test_the_jobs_word_wins_over_that_of_the_worker(
    of_the_job: ReplaceLost | None, of_the_worker: ReplaceLost, preemptible: str | None, moves: bool
) -> None:
    attributes = {} if preemptible is None else {"preemptible": AttributeValue(preemptible)}
    worker = Worker(id=WorkerId("w"), attributes=attributes)
    job = Job(id=JobId("j"), replace_lost=of_the_job)
    assert failure_detection.is_replaced(job, worker, of_the_worker) is moves


@pytest.mark.parametrize(
    ("looks", "counts_as"),
    [
        ([0], 0),
        ([0, 600], 300),  # of one step half of what is wanted is believed, and no more
        ([0, 300, 600], 600),
        ([0, 100_000, 100_010], 310),  # a clock that jumps far ahead
        ([0, 100, -50_000, -49_900], 200),  # and one that steps back
        ([0, 10, 30, 70, 150, 310, 630], 610),
    ],
)
def test_silence_is_what_was_watched(looks: list[float], counts_as: float) -> None:
    span = Span(last=looks[0])
    for look in looks[1:]:
        span = span.extend_to(look)
    assert span.minimum(max_step=300) == counts_as


def lab(**asked: Any) -> Lab:
    made = Lab().worker("spot", preemptible=True).worker("w1").worker("w2").job("train", **asked)
    made.schedule().reports("train/* running")
    assert made.attempt("train").worker == "spot"
    return made


def looks(lab: Lab, *kinds: SilenceKind, every: str = "6m") -> Lab:
    """`spot` does not answer to so many polls, and `w1` does."""
    for kind in kinds:
        lab.answers(lab.silence_of("spot", kind), lab.answer_of("w1")).advance(every)
    return lab


@pytest.mark.parametrize("kind", [SilenceKind.UNREACHABLE, SilenceKind.TIMEOUT, SilenceKind.HOST_KEY])
def test_three_unanswered_polls_over_ten_minutes_are_enough(kind: SilenceKind) -> None:
    lost = looks(lab(), kind, kind)
    assert lost.attempt("train").live
    looks(lost, kind)
    assert lost.attempt("train").presumed
    assert lost.attempt("train").end is not None
    assert lost.task("train").state is TaskState.PENDING
    assert lost.task("train").preemptions == 1


@pytest.mark.parametrize(
    "kind", [SilenceKind.AUTH, SilenceKind.PROTOCOL, SilenceKind.LOCAL, SilenceKind.UNKNOWN_HOST]
)
def test_refusals_and_protocol_errors_do_not_count_as_silence(kind: SilenceKind) -> None:
    talking = looks(lab(), *[kind] * 9)
    assert talking.attempt("train").live
    interrupted = looks(lab(), SilenceKind.TIMEOUT, SilenceKind.TIMEOUT, kind, SilenceKind.TIMEOUT)
    assert interrupted.attempt("train").live


def test_two_polls_prove_nothing_however_far_apart_they_are() -> None:
    assert looks(lab(), SilenceKind.TIMEOUT, SilenceKind.TIMEOUT, every="100h").attempt("train").live


def test_a_clock_that_jumps_ahead_or_back_makes_no_silence() -> None:
    jumping = looks(lab(), SilenceKind.TIMEOUT, every="10s").advance("1000h")
    looks(jumping, *[SilenceKind.TIMEOUT] * 4, every="30s").advance(-5e6)
    assert looks(jumping, *[SilenceKind.TIMEOUT] * 4, every="30s").attempt("train").live
    # Nor does it keep a silence from being counted for ever.
    assert looks(jumping, *[SilenceKind.TIMEOUT] * 4).attempt("train").presumed


@pytest.mark.parametrize(("others", "moves"), [(1, False), (2, True)])
def test_less_than_half_of_the_fleet_must_be_silent(others: int, moves: bool) -> None:
    made = Lab().worker("spot", preemptible=True)
    for number in range(others):
        made.worker(f"w{number + 1}")
    made.job("train").schedule().reports("train/* running")
    looks(made, *[SilenceKind.TIMEOUT] * 3)
    assert made.attempt("train").presumed is moves


def test_hosts_that_never_answered_are_no_part_of_the_fleet() -> None:
    made = lab()
    for number in range(9):
        worker = WorkerId(f"planned-{number}")
        made.records(WorkerRegistered(worker=worker, connection=Connection(host=worker)))
        made.silent(worker)
    assert looks(made, *[SilenceKind.TIMEOUT] * 3).attempt("train").presumed


def test_a_quarantine_lasts_as_long_as_a_ghost_that_can_t_be_killed() -> None:
    haunted = looks(lab(), *[SilenceKind.TIMEOUT] * 3)
    haunted.reports("train/task-0/attempt-0 unkillable").advance("2h").probe("spot")
    assert haunted.the_worker("spot").quarantined
    haunted.reports("train/task-0/attempt-0 stopped").probe("spot")
    assert not haunted.the_worker("spot").quarantined


def test_an_answer_between_voids_the_silence() -> None:
    back = looks(lab(), SilenceKind.TIMEOUT, SilenceKind.TIMEOUT)
    back.answers(back.answer_of("spot"), back.answer_of("w1"))
    assert back.the_worker("spot").silence is None
    assert looks(back, SilenceKind.TIMEOUT, SilenceKind.TIMEOUT).attempt("train").live


def test_nothing_is_counted_where_nothing_runs() -> None:
    idle = Lab().worker("spot", preemptible=True).worker("w1").worker("w2")
    looks(idle, *[SilenceKind.TIMEOUT] * 3)
    assert not any(isinstance(event, WorkerSilenceCounted) for each in idle.log for event in each.events)


def test_what_never_started_is_not_charged() -> None:
    made = Lab().worker("spot", preemptible=True).worker("w1").worker("w2").job("train").schedule()
    looks(made, *[SilenceKind.TIMEOUT] * 3)
    assert (made.task("train").state, made.task("train").preemptions) == (TaskState.PENDING, 0)
    assert made.attempt("train").presumed


def test_what_is_being_stopped_is_presumed_gone_with_the_rest() -> None:
    cancelled = lab().cancel("train")
    looks(cancelled, *[SilenceKind.TIMEOUT] * 3)
    attempt = cancelled.attempt("train")
    assert attempt.state is AttemptState.ENDED
    assert attempt.end is not None
    assert attempt.end.reason is EndReason.CANCELLED


def test_what_can_t_be_killed_is_never_presumed_gone() -> None:
    stuck = lab().cancel("train").reports("train/task-0 unkillable")
    looks(stuck, *[SilenceKind.TIMEOUT] * 5)
    assert stuck.attempt("train").live
    stuck.forget_dead("spot")
    assert not stuck.attempt("train").live
    assert stuck.attempt("train").presumed


@pytest.mark.parametrize("said", ["exited 0", "exited 1", "stopped", "cancelled", "lost", "nostart disk"])
def test_an_ended_attempt_is_no_longer_a_ghost(said: str) -> None:
    haunted = looks(lab(), *[SilenceKind.TIMEOUT] * 3)
    haunted.reports(f"train/task-0/attempt-0 {said}")
    assert haunted.cluster.ghosts == {}
    assert haunted.task("train").state is TaskState.PENDING  # its result comes too late to count


@pytest.mark.parametrize(
    "said", ["running", "orphaned", "absent", "preparing", "prepared", "launching 1s-ago", "stopping"]
)
def test_an_attempt_that_may_still_run_or_start_is_a_ghost(said: str) -> None:
    haunted = looks(lab(), *[SilenceKind.TIMEOUT] * 3)
    haunted.reports(f"train/task-0/attempt-0 {said}")
    assert list(haunted.cluster.ghosts) == ["spot"]


def test_ghosts_outlast_that_their_worker_is_forgotten_and_comes_back() -> None:
    haunted = lab().forget_dead("spot")
    assert haunted.attempt("train").presumed
    haunted.configure().probe("spot")
    haunted.job("other", cpu=16.0, constraints=()).schedule()
    assert "spot" not in {attempt.worker for _, attempt in haunted.cluster.live_attempts()}
    haunted.reports("train/task-0/attempt-0 stopped")
    assert haunted.cluster.ghosts == {}


def test_an_answer_of_another_incarnation_proves_nothing_about_a_ghost() -> None:
    haunted = looks(lab(), *[SilenceKind.TIMEOUT] * 3)
    haunted.hosts[WorkerId("spot")].wipe()
    haunted.reports("train/task-0/attempt-0 stopped")
    assert list(haunted.cluster.ghosts) == ["spot"]


def test_what_has_ended_can_t_be_presumed_gone() -> None:
    over = lab().reports("train/* exited 0")
    event = AttemptPresumedGone(task=TaskId(JobId("train"), 0), attempt=0)
    with pytest.raises(IllegalTransitionError):
        evolve(over.cluster, [event], over.now)


def test_a_silent_worker_has_a_witness_from_outside_its_slice() -> None:
    fleet = Lab().slice("a").slice("b").job("train", tpu="v4-16").schedule().reports("train/* running")
    fleet.silent("a-0")
    asked = {WorkerId("a-0"), WorkerId("a-1")}
    assert failure_detection.choose_witnesses(fleet.cluster, asked) == ["b-0"]
    assert failure_detection.choose_witnesses(fleet.cluster, asked | {WorkerId("b-1")}) == []
    assert failure_detection.choose_witnesses(fleet.cluster, {WorkerId("b-0")}) == []
