"""Run one scheduling cycle: poll workers, record ended attempts, place pending tasks, dispatch.

A cycle is a series of small transactions. A transaction takes the lock only if it has events to append, and holds it
only to read, decide and append. All SSH calls happen between transactions, so several invocations can run at the same
time.
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
from iris_cli.ops.cycle.calls import StopCondition, never
from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.secret_values import missing_for_jobs
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Assignment, Plan

PROMPT = 1.0
"""Seconds without an answer after which jobs are placed if they fit on the workers that have answered."""
PATIENCE = 3.0
"""Seconds without an answer after which the remaining jobs are placed without the silent workers."""
_EXTRA_WAIT = 0.5
"""Seconds for which a launch waits for calls about other jobs, when its own job needs no more answers. It waits
once more for the starts and stops that follow."""


class CycleResult(Struct):
    """Result of one cycle.

    `plan` is None if nothing is pending. `asked` is the number of polled workers. `late`: the placement lacked answers
    or was skipped.
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
    job: JobId | None = None,
) -> CycleResult:
    """Run one cycle.

    A hanging worker delays placement on other workers by at most `patience` seconds. With a `dispatcher`, unfinished
    calls stay open for `finish_calls`. Without a dispatcher, the cycle waits for all calls. With `job`, the cycle ends
    when no missing answer concerns that job, and the next cycle sends the remaining calls. Raises NotWritableError, or
    LockedError before anything was changed.
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
            is_done = partial(_needs_no_answer, own, result, job, schedule) if job is not None else never
            _run(session, own, result, schedule=schedule, patience=patience, is_done=is_done)
            finish_calls(session, own, result, schedule=schedule, is_done=is_done)
            if job is not None:
                _wait_for_others(session, own, result, schedule=schedule)
    copy_ended_logs(session, dispatcher or own)
    send_notices(session, result.plan)
    # The heartbeat is written after the last call, so that nothing else is lost if the write fails.
    now = session.clock.now()
    session.state.write_heartbeat(
        {"at": now, "asked": result.asked, "silent": len(result.silent)},
        session.runs_as,
        {"at": now, **session.cycle_details()},
    )
    return result


def copy_ended_logs(session: Session, dispatcher: Dispatcher) -> None:
    """Copy the output of ended attempts to the state directory. A failure is reported and does not fail the cycle."""
    from iris_cli.ops.cycle.kept_logs import copy_logs

    ended = {token: each for token, each in dispatcher.ended.items() if token in dispatcher.with_output}
    dispatcher.with_output.difference_update(dispatcher.ended)
    dispatcher.ended.clear()
    try:
        copy_logs(session, ended)
    except Exception as error:
        session.fault("copying logs of ended attempts", error)


def send_notices(session: Session, plan: Plan | None = None) -> None:
    """Start sending notifications as configured by `notify` in `cluster.yaml`. A failure does not fail the cycle."""
    if not session.config.notify.channels:
        session.state.notices.forget()
        return
    from iris_cli.ops.notify import after_cycle

    try:
        after_cycle.send_new_notices(session, plan, session.state.read_heartbeat())
    except Exception as error:
        session.fault("sending notices", error)


def finish_calls(
    session: Session,
    dispatcher: Dispatcher,
    result: CycleResult,
    *,
    schedule: bool = True,
    until: float = math.inf,
    is_done: StopCondition = never,
) -> None:
    """Finish a cycle's calls until `is_done()` or the monotonic time `until`. After late answers, place tasks again."""
    if dispatcher.process_calls(until=until, is_done=is_done) and result.late:
        _conclude(session, dispatcher, result, schedule=schedule)
        dispatcher.process_calls(until=until, is_done=is_done)


def _wait_for_others(
    session: Session, dispatcher: Dispatcher, result: CycleResult, *, schedule: bool
) -> None:
    """Wait `_EXTRA_WAIT` seconds for calls about other jobs, and as long again for starts and stops that result."""
    finish_calls(
        session, dispatcher, result, schedule=schedule, until=session.clock.monotonic() + _EXTRA_WAIT
    )
    if dispatcher.calls.has_orders:
        dispatcher.process_calls(until=session.clock.monotonic() + _EXTRA_WAIT)


def _needs_no_answer(dispatcher: Dispatcher, result: CycleResult, job: JobId, schedule: bool) -> bool:
    """Return True if no unfinished call goes to one of the job's workers, or to a worker that fits its tasks."""
    cluster = dispatcher.cluster
    own_workers = {attempt.worker for _, attempt in cluster.live_of(job)}
    if not own_workers.isdisjoint(dispatcher.workers_with_calls):
        return False
    if not schedule or all(task.state is not TaskState.PENDING for task in cluster.tasks_of(job)):
        return True
    if result.plan is None or not dispatcher.unanswered:
        return result.plan is not None
    from iris_cli.core.scheduling import untouched

    competing = {key.job if isinstance(key, TaskId) else key for key in result.plan.result.waiting}
    now = dispatcher.session.clock.now()
    return job not in competing or job in untouched(cluster, dispatcher.unanswered, now)


def _run(
    session: Session,
    dispatcher: Dispatcher,
    result: CycleResult,
    *,
    schedule: bool,
    patience: float,
    is_done: StopCondition = never,
) -> None:
    _begin(session, dispatcher)
    result.asked = dispatcher.begin()
    _listen(session, dispatcher, result, schedule=schedule, patience=patience, is_done=is_done)
    result.late = is_done()
    if not result.late:
        _conclude(session, dispatcher, result, schedule=schedule)
        dispatcher.send()


def _without_client(session: Session, cluster: Cluster) -> list[JobId]:
    """Return the open interactive jobs whose client has ended or was killed: the client's lock is free."""
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
    is_done: StopCondition,
) -> None:
    """Receive answers until none arrives for `patience` seconds.

    Jobs that no missing answer affects are placed at once. After `PROMPT` seconds without an answer, jobs that fit
    on the workers that have answered are placed, too.
    """
    strict, prompt = True, min(PROMPT, patience)
    decided: set[JobId] = set()

    def missing() -> set[WorkerId]:
        return dispatcher.unanswered | dispatcher.calls.busy_workers

    while True:
        before = missing()
        if schedule and before and _has_pending(dispatcher.cluster):
            _place_independent(session, dispatcher, result, decided, strict=strict)
            before = missing()

        def has_changed(before: Collection[WorkerId] = before) -> bool:
            return is_done() or missing() != before

        wait = prompt if strict else patience - prompt
        if dispatcher.process_calls(patience=wait, is_done=has_changed) or is_done():
            return
        if missing() != before:
            continue
        if not strict or not (dispatcher.unanswered or dispatcher.calls.awaits_reports):
            return
        strict = False


def _place_independent(
    session: Session, dispatcher: Dispatcher, result: CycleResult, decided: set[JobId], *, strict: bool
) -> None:
    """Place the jobs that depend on no missing answer, except those in `decided`.

    `strict`: only jobs that no unanswered worker can affect. Jobs that end without a placement are decided at the end
    of the cycle, when all answers are known and the reason can name all workers.
    """
    from iris_cli.core.lifecycle.placement import record_plan
    from iris_cli.core.scheduling import independent, untouched

    unanswered = dispatcher.calls.busy_workers | dispatcher.unanswered

    def rule(draft: Draft) -> tuple[tuple[Assignment, ...], list[AttemptId], list[JobId]]:
        pending = dict.fromkeys(task.id.job for task in draft.cluster.pending_tasks())
        candidates = untouched(draft.cluster, unanswered, draft.at) if strict else pending
        if decided.issuperset(candidates):
            return (), [], []
        new_plan = _plan(session, draft, unanswered)
        found = independent(new_plan, draft.cluster, unanswered, draft.at, strict=strict)
        new_attempts = record_plan(draft, new_plan.only(found.assignments), _new_token(session))
        return found.assignments, new_attempts, [job for job in pending if job not in found.dependent]

    assigned, new_attempts, now_decided = dispatcher.decide(rule)
    decided.update(now_decided)
    result.assigned += assigned
    dispatcher.start(new_attempts)


def _begin(session: Session, dispatcher: Dispatcher) -> None:
    """Record changes due to time and configuration. They are written before any worker is polled."""

    def rule(draft: Draft) -> None:
        workers.reconcile(draft, {worker: host.connection for worker, host in session.hosts.items()})
        attempts.take_over(draft, session.limits)
        jobs.cancel_without_client(draft, _without_client(session, draft.cluster))
        unable = missing_for_jobs(draft.cluster, session.state).jobs
        observe.settle(session, draft, dict.fromkeys(attempts.fence_unstartable(draft, unable)))

    dispatcher.decide(rule)
    if not session.begun and observe.questions(session, session.cluster, session.clock.now()):
        session.take_turn()


def _conclude(session: Session, dispatcher: Dispatcher, result: CycleResult, *, schedule: bool) -> None:
    """Record the verdicts that waited for evidence, and place pending tasks on the workers that have answered."""

    def rule(draft: Draft) -> tuple[Plan | None, list[AttemptId]]:
        observe.weigh_silence(session, draft, dispatcher.observations)
        if draft.cluster.slices:
            from iris_cli.core.lifecycle.slices import join_complete_slices

            join_complete_slices(draft)
        observe.settle_waiting(session, draft, dispatcher.unanswered)
        if not schedule or not _has_pending(draft.cluster):
            return None, []
        return assign(session, draft, dispatcher.calls.busy_workers | dispatcher.unanswered)

    new_plan, new_attempts = dispatcher.decide(rule)
    dispatcher.start(new_attempts)
    result.plan, result.late = new_plan, bool(dispatcher.unanswered or dispatcher.calls.busy_workers)
    result.assigned += new_plan.assignments if new_plan is not None else ()
    result.silent = [each for each in dispatcher.observations if isinstance(each, Silence)]
    dispatcher.end_cycle()


def _has_pending(cluster: Cluster) -> bool:
    return next(cluster.pending_tasks(), None) is not None


def assign(
    session: Session, draft: Draft, unanswered: Collection[WorkerId] = ()
) -> tuple[Plan, list[AttemptId]]:
    """Place pending tasks on the draft, none on the `unanswered` workers. Return the plan and the new attempts."""
    # Imported here because most cycles place nothing, and the scheduler is slow to import.
    from iris_cli.core.lifecycle.placement import record_plan

    new_plan = _plan(session, draft, unanswered)
    return new_plan, record_plan(draft, new_plan, _new_token(session))


def _plan(session: Session, draft: Draft, unanswered: Collection[WorkerId]) -> Plan:
    from iris_cli.core.scheduling import plan

    return plan(
        _without(draft.cluster, unanswered),
        draft.at,
        limits=session.limits,
        missing=missing_for_jobs(draft.cluster, session.state),
        offered=session.config.addable_devices,
    )


def _new_token(session: Session) -> Callable[[], Token]:
    return lambda: Token(session.randomness.hexadecimal(16))


def _without(cluster: Cluster, unanswered: Collection[WorkerId]) -> Cluster:
    """Return the cluster with these workers marked SUSPECT, so that nothing is placed on them."""
    if not unanswered:
        return cluster
    suspects = {
        worker.id: structs.replace(worker, condition=WorkerCondition.SUSPECT, reason="no answer yet")
        for worker in cluster.workers.values()
        if worker.id in unanswered and worker.condition is WorkerCondition.HEALTHY
    }
    return structs.replace(cluster, workers={**cluster.workers, **suspects})


def send_stops(session: Session) -> None:
    """Send each stop that the log requests once, and record the answers."""
    with Dispatcher(session) as dispatcher:
        dispatcher.begin(ask=False)
        dispatcher.process_calls()
