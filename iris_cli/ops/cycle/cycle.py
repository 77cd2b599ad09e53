"""Run one scheduling cycle: poll workers, settle ended attempts, place pending tasks, dispatch.

A cycle is a series of small transactions. Each holds the lock only to read, decide and append, and takes it
only if there is something to append. All SSH calls happen between transactions, so several invocations can
run at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from iris_cli.core import AttemptId, Cluster, JobId, TaskId, TaskState, Token, WorkerCondition, WorkerId
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import attempts, jobs, workers
from iris_cli.core.messages.observations import Silence
from iris_cli.ops.cycle import observe
from iris_cli.ops.cycle.calls import Enough, never
from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.secret_values import what_is_missing
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Assignment, Plan

PROMPT = 1.0
"""Seconds without an answer after which jobs that fit on the workers that have answered are placed."""
PATIENCE = 3.0
"""Seconds without an answer after which the remaining jobs are placed without the silent workers."""
PARTING = 0.5
"""Seconds that a launch gives calls about other jobs once its own job needs no more answers; granted a second
time for starts and stops."""


class CycleResult(Struct):
    """Result of one cycle. `plan` is None if nothing is pending. `late`: placement lacked answers or was skipped."""

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
    job: JobId | None = None,
) -> CycleResult:
    """Run one cycle. A hanging worker delays placement on other workers by at most `patience` seconds.

    If the caller passes a dispatcher, unfinished calls are left to `linger`; otherwise the cycle waits for
    all of them. With `job`, the cycle ends once no missing answer concerns that job; the next cycle takes
    over the remaining calls. Raises LockedError before any work is done, or NotWritableError.
    """
    if session.config.notify.channels:
        from iris_cli.ops.notify import after_cycle

        after_cycle.begin(session)
    if dispatcher is not None:
        result = CycleResult()
        _run(session, dispatcher, result, schedule=schedule, patience=patience)
    else:
        with Dispatcher(session) as own:
            result = CycleResult()
            enough = partial(_needs_no_answer, own, result, job, schedule) if job is not None else never
            _run(session, own, result, schedule=schedule, patience=patience, enough=enough)
            linger(session, own, result, schedule=schedule, enough=enough)
            if job is not None:
                _part(session, own, result, schedule=schedule)
    keep_logs(session, dispatcher or own)
    tell_news(session, result.plan)
    # After the last call: if this write fails, nothing else is lost.
    now = session.clock.now()
    session.state.write_heartbeat(
        {"at": now, "asked": result.asked, "silent": len(result.silent)},
        session.runs_as,
        {"at": now, **session.recorded()},
    )
    return result


def keep_logs(session: Session, dispatcher: Dispatcher) -> None:
    """Copy the output of ended attempts. A failure is reported and does not fail the cycle."""
    from iris_cli.ops.cycle.kept_logs import copy_logs

    ended = {token: each for token, each in dispatcher.ended.items() if token in dispatcher.wrote}
    dispatcher.wrote.difference_update(dispatcher.ended)
    dispatcher.ended.clear()
    try:
        copy_logs(session, ended)
    except Exception as error:
        session.fault("copying logs of ended attempts", error)


def tell_news(session: Session, plan: Plan | None = None) -> None:
    """Start sending notifications as configured by `notify` in `cluster.yaml`. A failure does not fail the cycle."""
    if not session.config.notify.channels:
        session.state.notices.forget()
        return
    from iris_cli.ops.notify import after_cycle

    try:
        after_cycle.tell(session, plan, session.state.read_heartbeat())
    except Exception as error:
        session.fault("sending notices", error)


def linger(
    session: Session,
    dispatcher: Dispatcher,
    result: CycleResult,
    *,
    schedule: bool = True,
    until: float = math.inf,
    enough: Enough = never,
) -> None:
    """Finish a cycle's calls until `enough()` or the monotonic time `until`; place again if late answers arrived."""
    if dispatcher.attend(until=until, enough=enough) and result.late:
        _conclude(session, dispatcher, result, schedule=schedule)
        dispatcher.attend(until=until, enough=enough)


def _part(session: Session, dispatcher: Dispatcher, result: CycleResult, *, schedule: bool) -> None:
    """Wait PARTING seconds for calls about other jobs, and PARTING more for the starts and stops that follow."""
    linger(session, dispatcher, result, schedule=schedule, until=session.clock.monotonic() + PARTING)
    if dispatcher.calls.working:
        dispatcher.attend(until=session.clock.monotonic() + PARTING)


def _needs_no_answer(dispatcher: Dispatcher, result: CycleResult, job: JobId, schedule: bool) -> bool:
    """Return True if no unfinished call matters to the job: none to its workers or to a worker that fits its tasks."""
    cluster = dispatcher.cluster
    own = {attempt.worker for _, attempt in cluster.live_of(job)}
    if not own.isdisjoint(dispatcher.engaged):
        return False
    if not schedule or all(task.state is not TaskState.PENDING for task in cluster.tasks_of(job)):
        return True
    if result.plan is None or not dispatcher.unheard:
        return result.plan is not None
    from iris_cli.core.scheduling import untouched

    competing = {key.job if isinstance(key, TaskId) else key for key in result.plan.result.waiting}
    now = dispatcher.session.clock.now()
    return job not in competing or job in untouched(cluster, dispatcher.unheard, now)


def _run(
    session: Session,
    dispatcher: Dispatcher,
    result: CycleResult,
    *,
    schedule: bool,
    patience: float,
    enough: Enough = never,
) -> None:
    _begin(session, dispatcher)
    result.asked = dispatcher.begin()
    _listen(session, dispatcher, result, schedule=schedule, patience=patience, enough=enough)
    result.late = enough()
    if not result.late:
        _conclude(session, dispatcher, result, schedule=schedule)
        dispatcher.send()


def _without_client(session: Session, cluster: Cluster) -> list[JobId]:
    """Return the jobs whose client has ended or was killed: its lock is free."""
    return [
        job.id
        for job in cluster.open_jobs()
        if job.client and job.end is None and session.state.clients.is_gone(job.client)
    ]


def _listen(
    session: Session,
    dispatcher: Dispatcher,
    result: CycleResult,
    *,
    schedule: bool,
    patience: float,
    enough: Enough,
) -> None:
    """Wait up to `patience` seconds for each next answer; place jobs that no missing answer affects at once.

    After `PROMPT` seconds placement no longer waits for launches and transfers.
    """
    strict, prompt = True, min(PROMPT, patience)
    decided: set[JobId] = set()

    def missing() -> set[WorkerId]:
        return dispatcher.unheard | dispatcher.calls.occupied

    while True:
        before = missing()
        if schedule and before and _anything_waits(dispatcher.cluster):
            _place_independent(session, dispatcher, result, decided, strict=strict)
            before = missing()

        def is_news(before: Collection[WorkerId] = before) -> bool:
            return enough() or missing() != before

        wait = prompt if strict else patience - prompt
        if dispatcher.attend(patience=wait, enough=is_news) or enough():
            return
        if missing() != before:
            continue
        if not strict or not (dispatcher.unheard or dispatcher.calls.listening):
            return
        strict = False


def _place_independent(
    session: Session, dispatcher: Dispatcher, result: CycleResult, decided: set[JobId], *, strict: bool
) -> None:
    """Place the jobs that depend on no missing answer; skip jobs already in `decided`.

    Jobs that end without a placement are left to the end of the cycle, because their reason names missing workers.
    """
    from iris_cli.core.lifecycle.placement import record_plan
    from iris_cli.core.scheduling import independent, untouched

    unheard = dispatcher.calls.occupied | dispatcher.unheard

    def rule(draft: Draft) -> tuple[tuple[Assignment, ...], list[AttemptId], list[JobId]]:
        pending = dict.fromkeys(task.id.job for task in draft.cluster.pending_tasks())
        candidates = untouched(draft.cluster, unheard, draft.at) if strict else pending
        if decided.issuperset(candidates):
            return (), [], []
        made = _plan(session, draft, unheard)
        found = independent(made, draft.cluster, unheard, draft.at, strict=strict)
        mine = record_plan(draft, made.only(found.assignments), _new_token(session))
        return found.assignments, mine, [job for job in pending if job not in found.dependent]

    assigned, mine, now_decided = dispatcher.decide(rule)
    decided.update(now_decided)
    result.assigned += assigned
    dispatcher.start(mine)


def _begin(session: Session, dispatcher: Dispatcher) -> None:
    """Record changes of time and configuration. The first write takes the lock before any worker is polled."""

    def rule(draft: Draft) -> None:
        workers.reconcile(draft, {worker: host.connection for worker, host in session.hosts.items()})
        attempts.take_over(draft, session.limits)
        jobs.cancel_without_client(draft, _without_client(session, draft.cluster))
        unable = what_is_missing(draft.cluster, session.state).jobs
        observe.settle(session, draft, dict.fromkeys(attempts.fence_unstartable(draft, unable)))

    dispatcher.decide(rule)
    if not session.begun and observe.questions(session, session.cluster, session.clock.now()):
        session.take_turn()


def _conclude(session: Session, dispatcher: Dispatcher, result: CycleResult, *, schedule: bool) -> None:
    """Settle jobs that waited for evidence, and place pending tasks on the workers that have answered."""

    def rule(draft: Draft) -> tuple[Plan | None, list[AttemptId]]:
        observe.weigh_silence(session, draft, dispatcher.seen)
        if draft.cluster.slices:
            from iris_cli.core.lifecycle.slices import join_complete_slices  # only if the cluster has slices

            join_complete_slices(draft)
        observe.settle_waiting(session, draft, dispatcher.unheard)
        if not schedule or not _anything_waits(draft.cluster):
            return None, []
        return assign(session, draft, dispatcher.calls.occupied | dispatcher.unheard)

    made, mine = dispatcher.decide(rule)
    dispatcher.start(mine)
    result.plan, result.late = made, bool(dispatcher.unheard or dispatcher.calls.occupied)
    result.assigned += made.assignments if made is not None else ()
    result.silent = [each for each in dispatcher.seen if isinstance(each, Silence)]
    dispatcher.concluded()


def _anything_waits(cluster: Cluster) -> bool:
    return next(cluster.pending_tasks(), None) is not None


def assign(
    session: Session, draft: Draft, unheard: Collection[WorkerId] = ()
) -> tuple[Plan, list[AttemptId]]:
    """Place pending tasks on the draft: all assignments of a cycle are one transaction.

    Workers that have not answered yet are treated as silent.
    """
    # Imported late: most cycles place nothing, and the scheduler is slow to load.
    from iris_cli.core.lifecycle.placement import record_plan

    made = _plan(session, draft, unheard)
    return made, record_plan(draft, made, _new_token(session))


def _plan(session: Session, draft: Draft, unheard: Collection[WorkerId]) -> Plan:
    from iris_cli.core.scheduling import plan

    return plan(
        _without(draft.cluster, unheard),
        draft.at,
        limits=session.limits,
        missing=what_is_missing(draft.cluster, session.state),
        offered=session.config.addable_devices,
    )


def _new_token(session: Session) -> Callable[[], Token]:
    return lambda: Token(session.randomness.hexadecimal(16))


def _without(cluster: Cluster, unheard: Collection[WorkerId]) -> Cluster:
    """Return the cluster with the unheard workers marked SUSPECT."""
    if not unheard:
        return cluster
    doubtful = {
        worker.id: structs.replace(worker, condition=WorkerCondition.SUSPECT, reason="no answer yet")
        for worker in cluster.workers.values()
        if worker.id in unheard and worker.condition is WorkerCondition.HEALTHY
    }
    return structs.replace(cluster, workers={**cluster.workers, **doubtful})


def send_stops(session: Session) -> None:
    """Send each stop that the log requests once, and record the answers."""
    with Dispatcher(session) as dispatcher:
        dispatcher.begin(ask=False)
        dispatcher.attend()
