"""`lease`: silence is proof once the wrapper must have stopped what nobody asked about; and not before."""

from __future__ import annotations

from typing import Any

import pytest

from iris_cli.core.ids import WorkerId
from iris_cli.core.lifecycle.failure_detection import LEASE_MARGIN, may_renew_leases
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import TaskState
from iris_cli.core.model.worker import Worker, WorkerCondition
from tests.support.lab import Lab

W = WorkerId("w")
LEASE, GRACE = 600.0, 20.0
POLL_OVER = 60.0 + 10.0 + 5.0 + 30.0  # the view may be that old; connect; the longest call
DUE = POLL_OVER + LEASE + GRACE + LEASE_MARGIN


def lab(*said: str, **asked: Any) -> Lab:
    made = Lab().worker("w").job("train", **{"lease": LEASE, "grace": GRACE, **asked}).schedule()
    for each in said or ("running",):
        made.reports(f"train/task-0 {each}")
    return made


def silent_at(lab: Lab, *moments: float, kind: SilenceKind = SilenceKind.TIMEOUT) -> Lab:
    """Failed polls so long after the first one."""
    begin = lab.now
    for moment in (0.0, *moments):
        lab.now = begin + moment
        lab.silent("w", kind=kind)
    return lab


@pytest.mark.parametrize(
    ("moments", "over"),
    [
        ((1000.0,), False),  # one step, however long, proves nothing
        ((1e9,), False),
        ((DUE, 2 * DUE), True),
        ((DUE - 1.0, 2 * DUE), False),
        ((100.0, DUE + 1e6), False),  # a clock that jumped far ahead
        ((-1e6, -1e6 + DUE), False),  # one that stepped back
        ((-1e6, -1e6 + DUE, -1e6 + 2 * DUE), True),
        ((200.0, 400.0, 600.0, 800.0, DUE + 200.0), True),
    ],
)
def test_the_time_that_was_watched_is_proof_but_for_its_longest_step(
    moments: tuple[float, ...], over: bool
) -> None:
    lab_ = silent_at(lab(), *moments)
    assert lab_.attempt("train").live is not over
    assert (lab_.task("train").preemptions == 1) is over
    assert [ghost.attempt.number for ghost in lab_.cluster.ghosts.get(W, ())] == [0] * over


@pytest.mark.parametrize("left", ["orphaned", "running", "stopping", "unkillable"])
def test_a_worker_with_an_attempt_that_outlived_its_lease_takes_nothing_new(left: str) -> None:
    """The wrapper and its watchdog may have been killed while nobody could ask."""
    back = silent_at(lab(), DUE, 2 * DUE).reports(f"train/task-0/attempt-0 {left}").schedule()
    assert len(back.task("train").attempts) == 1
    back.reports("train/task-0/attempt-0 stopped").uncordon("w").schedule()
    assert back.cluster.ghosts == {}
    assert back.attempt("train").number == 1


def test_an_attempt_stopped_by_its_lease_does_not_block_the_worker() -> None:
    back = silent_at(lab(), DUE, 2 * DUE).reports("train/task-0/attempt-0 cancelled lease").schedule()
    assert back.cluster.ghosts == {}
    assert back.attempt("train").number == 1


def test_an_attempt_ended_when_its_lease_expired_not_when_somebody_looked() -> None:
    late = lab().advance(LEASE + 300.0)
    late.reports("train/task-0 cancelled lease 300s-ago")
    end = late.attempt("train").end
    assert end is not None
    assert end.at == late.now - 300.0


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        (("running",), {"lease": 0.0}),
        (("orphaned",), {}),
        (("running", "orphaned"), {}),
        (("prepared",), {}),
        (("absent",), {}),
    ],
    ids=["no lease", "orphaned from the first word on", "orphaned later", "not started", "not acknowledged"],
)
def test_there_is_no_proof_where_nobody_watches_over_the_lease(
    said: tuple[str, ...], asked: dict[str, Any]
) -> None:
    assert silent_at(lab(*said, **asked), DUE, 2 * DUE, 3 * DUE).attempt("train").live


def test_what_can_t_be_killed_is_not_stopped_by_its_lease_either() -> None:
    stuck = lab().cancel("train").reports("train/task-0 unkillable")
    assert silent_at(stuck, DUE, 2 * DUE, 3 * DUE).attempt("train").live


@pytest.mark.parametrize("kind", list(SilenceKind))
def test_no_kind_of_silence_renews_a_lease(kind: SilenceKind) -> None:
    assert not silent_at(lab(), DUE, 2 * DUE, kind=kind).attempt("train").live


def test_an_answer_restarts_the_lease_time() -> None:
    back = silent_at(lab(), 0.9 * DUE, 1.8 * DUE)
    back.answers(back.answer_of("w"))
    assert silent_at(back, 0.5 * DUE, 0.9 * DUE).attempt("train").live


def test_a_task_that_was_being_stopped_is_over_with_its_lease() -> None:
    cancelled = silent_at(lab().cancel("train"), DUE, 2 * DUE)
    assert not cancelled.attempt("train").live
    assert cancelled.task("train").state is TaskState.KILLED


def test_the_watchdogs_own_word_is_proof_at_once() -> None:
    stopped = lab().reports("train/task-0 cancelled")
    assert stopped.task("train").state is TaskState.PENDING


@pytest.mark.parametrize("condition", list(WorkerCondition))
@pytest.mark.parametrize("age", [-1.0, 0.0, 60.0, 60.1, 1e9])
def test_only_a_poll_of_a_healthy_worker_with_a_fresh_view_renews(
    condition: WorkerCondition, age: float
) -> None:
    worker = Worker(id=W, condition=condition)
    fresh = 0 <= age <= 60
    assert may_renew_leases(worker, age, Limits()) is (fresh and condition is WorkerCondition.HEALTHY)
