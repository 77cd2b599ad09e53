"""One cycle: see how the workers are, settle what ended, place what waits, carry it out.

A loop of small transactions. The lock is held for each only as long as it takes to read, decide and append, and
only if there is something to append; everything over SSH happens between them, so that several invocations may
run at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from iris_cli.core.cluster import Cluster
from iris_cli.core.dataclass import dataclass, field, replace
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import AttemptId, Token, WorkerId
from iris_cli.core.lifecycle import attempts, workers
from iris_cli.core.observations import Silence
from iris_cli.core.outcome import EndReason
from iris_cli.core.worker import WorkerCondition
from iris_cli.ops import observe
from iris_cli.ops.dispatch import Dispatcher
from iris_cli.ops.missing import what_is_missing
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Assignment, Plan

PATIENCE = 3.0
"""Seconds without an answer after which the others are placed without those that are still silent."""


@dataclass
class CycleResult:
    """What a cycle did: the last plan it made, what it placed, whom it asked and who did not answer.

    Where nothing waits there is no plan.

    `late`: somebody had not answered yet when that plan was made.
    """

    plan: Plan | None = None
    assigned: list[Assignment] = field(default_factory=list)
    asked: int = 0
    silent: list[Silence] = field(default_factory=list)
    late: bool = False


def run(
    session: Session,
    dispatcher: Dispatcher | None = None,
    *,
    schedule: bool = True,
    patience: float = PATIENCE,
) -> CycleResult:
    """One cycle. What hangs delays the placement on the others by no more than `patience` seconds.

    With a dispatcher that the caller keeps, what is still under way at the end is left to `linger`; else the
    cycle sees everything to its end. Raises LockedError before anything is done, or NotWritableError.
    """
    if session.config.notify.channels:
        from iris_cli.ops.notify import after_cycle

        after_cycle.begin(session)
    if dispatcher is not None:
        result = _run(session, dispatcher, schedule=schedule, patience=patience)
    else:
        with Dispatcher(session) as own:
            result = _run(session, own, schedule=schedule, patience=patience)
            linger(session, own, result, schedule=schedule)
    look_closer(session, dispatcher or own)
    tell_news(session, result.plan)
    # AFTER the last call: where this can't be written, nothing else is lost.
    session.state.write_heartbeat(
        {"at": session.clock.now(), "asked": result.asked, "silent": len(result.silent)}
    )
    session.wrote()
    return result


def look_closer(session: Session, dispatcher: Dispatcher) -> None:
    """Read more of what the attempts said that were seen to fail, where the end of it may not tell why."""
    ended, dispatcher.ended = dispatcher.ended, []
    if all(event.end.reason is EndReason.OK for event in ended):
        return
    from iris_cli.ops.telling import keep_telling

    try:
        keep_telling(session, ended)
    except Exception as error:
        session.fault("looking for the cause of a failure", error)


def tell_news(session: Session, plan: Plan | None = None) -> None:
    """Begin to tell what `notify` in `cluster.yaml` is for, if anything is new. What fails here fails alone."""
    if not session.config.notify.channels:
        session.state.notices.forget()
        return
    from iris_cli.ops.notify import after_cycle

    try:
        after_cycle.tell(session, plan, session.state.read_heartbeat())
    except Exception as error:
        session.fault("telling what is new", error)


def linger(
    session: Session,
    dispatcher: Dispatcher,
    result: CycleResult,
    *,
    schedule: bool = True,
    until: float = math.inf,
) -> None:
    """Attend to what a cycle left under way, at most until that monotonic time.

    When those that were late have answered, it places once more: they may have room, or have made some.
    """
    if dispatcher.attend(until=until) and result.late:
        _conclude(session, dispatcher, result, schedule=schedule)
        dispatcher.attend(until=until)


def _run(session: Session, dispatcher: Dispatcher, *, schedule: bool, patience: float) -> CycleResult:
    _begin(session, dispatcher)
    result = CycleResult(asked=dispatcher.begin())
    dispatcher.attend(patience=patience)
    _conclude(session, dispatcher, result, schedule=schedule)
    dispatcher.send()
    return result


def _begin(session: Session, dispatcher: Dispatcher) -> None:
    """What time and the configuration have changed.

    An invocation that has not written yet takes the lock before it asks anybody.
    """

    def rule(draft: Draft) -> None:
        workers.reconcile(draft, {worker: host.connection for worker, host in session.hosts.items()})
        attempts.take_over(draft, session.limits)
        unable = what_is_missing(draft.cluster, session.state).jobs
        observe.settle(session, draft, dict.fromkeys(attempts.give_back(draft, unable)))

    dispatcher.decide(rule)
    if not session.begun and observe.questions(session, session.cluster, session.clock.now()):
        session.take_turn()


def _conclude(session: Session, dispatcher: Dispatcher, result: CycleResult, *, schedule: bool) -> None:
    """Settle what waited for evidence, and place what waits on those that have answered."""

    def rule(draft: Draft) -> tuple[Plan | None, list[AttemptId]]:
        observe.weigh_silence(session, draft, dispatcher.seen)
        if draft.cluster.slices:
            _let_join(draft)
        observe.settle_waiting(session, draft, dispatcher.unheard)
        if not schedule or not _anything_waits(draft.cluster):
            return None, []
        return assign(session, draft, dispatcher.busy | dispatcher.unheard)

    made, mine = dispatcher.decide(rule)
    dispatcher.start(mine)
    result.plan, result.late = made, bool(dispatcher.unheard)
    result.assigned += made.assignments if made is not None else ()
    result.silent = [each for each in dispatcher.seen if isinstance(each, Silence)]
    dispatcher.concluded()


def _let_join(draft: Draft) -> None:
    """Slices of scale groups whose VMs have all passed their probes."""
    from iris_cli.core.lifecycle.slices import joined  # only for clusters that have some

    joined(draft)


def _anything_waits(cluster: Cluster) -> bool:
    return next(cluster.pending_tasks(), None) is not None


def assign(
    session: Session, draft: Draft, unheard: Collection[WorkerId] = ()
) -> tuple[Plan, list[AttemptId]]:
    """Place what waits, on the draft: all assignments of a cycle are one transaction.

    Workers that have not answered yet are taken for silent ones: they may turn out to be that.
    """
    # Only here: most cycles place nothing, and the scheduler takes time to load.
    from iris_cli.core.lifecycle.placement import carry_out
    from iris_cli.core.scheduling import plan

    made = plan(
        _without(draft.cluster, unheard),
        draft.at,
        limits=session.limits,
        missing=what_is_missing(draft.cluster, session.state),
        offered=session.config.offered,
    )
    return made, carry_out(draft, made, _new_token)


def _new_token() -> Token:
    from secrets import token_hex  # slow to import, and most cycles place nothing

    return Token(token_hex(16))


def _without(cluster: Cluster, unheard: Collection[WorkerId]) -> Cluster:
    """The cluster as it is if these workers stay silent."""
    if not unheard:
        return cluster
    doubtful = {
        worker.id: replace(worker, condition=WorkerCondition.SUSPECT, reason="it has not answered yet")
        for worker in cluster.workers.values()
        if worker.id in unheard and worker.condition is WorkerCondition.HEALTHY
    }
    return replace(cluster, workers={**cluster.workers, **doubtful})
