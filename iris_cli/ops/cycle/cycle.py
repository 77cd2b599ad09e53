"""Run one scheduling cycle: poll workers, record ended attempts, place pending tasks, dispatch.

A cycle is a series of small transactions. A transaction takes the lock only if it has events to append, and holds it
only to read, decide and append. All SSH calls happen between transactions, so several invocations can run at the same
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from iris_cli.core import AttemptId, Cluster, JobId, TaskId, TaskState, Token, WorkerCondition, WorkerId
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import attempts, jobs, workers
from iris_cli.core.messages.observations import Silence
from iris_cli.ops.cycle import observe, polls
from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.secret_values import missing_for_jobs
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Assignment, Plan

_EARLY_TIMEOUT = 1.0
"""Seconds without an answer after which jobs are placed if they fit on the workers that have answered."""
ANSWER_TIMEOUT = 3.0
"""Seconds without an answer after which the remaining jobs are placed without the silent workers."""
_EXTRA_WAIT = 0.5
"""Seconds for which `run` waits for other open calls after its `job` needs no more answers. It then waits as long again
for the starts and stops that follow."""


class CycleResult(Struct):
    """Result of one cycle.

    `plan` is None if nothing is pending. `polled`: number of polled workers. `is_early`: the cycle did not wait
    for the answers of all workers.
    """

    plan: Plan | None = None
    assigned: list[Assignment] = field(default_factory=list)
    polled: int = 0
    silent: list[Silence] = field(default_factory=list)
    is_early: bool = False


def run(
    session: Session, *, schedule: bool = True, patience: float = ANSWER_TIMEOUT, job: JobId | None = None
) -> CycleResult:
    """Run one cycle and wait for its calls. With `job`, wait only for the calls that affect this job.

    Raises NotWritableError, or LockedError before anything was changed.
    """
    with Dispatcher(session) as dispatcher:
        cycles = Cycles(dispatcher, schedule=schedule, patience=patience, job=job)
        cycles.poll_and_place()
        cycles.finish_calls()
        if job is not None:
            cycles.job = None
            cycles.finish_calls(until=session.clock.monotonic() + _EXTRA_WAIT)
            if dispatcher.calls.has_orders:
                dispatcher.process_calls(until=session.clock.monotonic() + _EXTRA_WAIT)
    cycles.end()
    return cycles.result


class Cycles(Struct):
    """The cycles of one invocation. `result` is the result of the last cycle.

    `schedule`: place pending tasks. A hanging worker delays placement on other workers by at most `patience` seconds.
    `job`: end the cycle when no missing answer affects this job. The next cycle sends the remaining calls.
    """

    dispatcher: Dispatcher
    schedule: bool = True
    patience: float = ANSWER_TIMEOUT
    job: JobId | None = None
    result: CycleResult = field(default_factory=CycleResult)
    # Jobs for which no missing answer can change the placement.
    _decided: set[JobId] = field(default_factory=set)

    @property
    def session(self) -> Session:
        return self.dispatcher.session

    def run(self) -> None:
        """Run one cycle. Calls without an answer stay open for `finish_calls`. Raises the errors of `cycle.run`.

        After an error, `result` is still the result of the previous cycle.
        """
        before = self.result
        try:
            self.poll_and_place()
            self.end()
        except Exception:
            self.result = before
            raise

    def poll_and_place(self) -> None:
        """Begin a cycle: poll the workers, and place tasks on the workers that have answered."""
        if self.session.config.notify.channels:
            from iris_cli.ops import notify

            notify.begin(self.session)
        self.result = CycleResult()
        self._decided.clear()
        self._begin()
        self.result.polled = self.dispatcher.begin()
        self._listen()
        self.result.is_early = self._needs_no_answer()
        if not self.result.is_early:
            self._conclude()
            self.dispatcher.send()

    def finish_calls(self, *, until: float = math.inf) -> None:
        """Process the open calls until the monotonic time `until`. After late answers, place tasks again."""
        is_done = self._needs_no_answer
        if self.dispatcher.process_calls(until=until, is_done=is_done) and self.result.is_early:
            self._conclude()
            self.dispatcher.process_calls(until=until, is_done=is_done)

    def end(self) -> None:
        """End the cycle: copy the output of ended attempts, send notices, and record the time of the cycle."""
        session = self.session
        copy_ended_logs(self.dispatcher)
        send_notices(session, self.result.plan)
        # The heartbeat is written after the last call, so that nothing else is lost if the write fails.
        now = session.clock.now()
        session.state.write_heartbeat(
            {"at": now, "asked": self.result.polled, "silent": len(self.result.silent)},
            session.runs_as,
            {"at": now, **session.cycle_details()},
        )

    def _needs_no_answer(self) -> bool:
        """Return True if `job` is set, and no missing answer can affect that job."""
        if self.job is None:
            return False
        dispatcher, plan = self.dispatcher, self.result.plan
        cluster = dispatcher.cluster
        own_workers = {attempt.worker for _, attempt in cluster.live_attempts_of(self.job)}
        if not own_workers.isdisjoint(dispatcher.workers_with_calls):
            return False
        if not self.schedule or all(
            task.state is not TaskState.PENDING for task in cluster.tasks_of(self.job)
        ):
            return True
        if plan is None or not dispatcher.unanswered:
            return plan is not None
        from iris_cli.core.scheduling import unaffected_jobs

        competing = {key.job if isinstance(key, TaskId) else key for key in plan.result.waiting}
        now = self.session.clock.now()
        return self.job not in competing or self.job in unaffected_jobs(cluster, dispatcher.unanswered, now)

    def _begin(self) -> None:
        """Record the changes that follow from the time and the configuration, before any worker is polled."""
        session = self.session

        def rule(draft: Draft) -> None:
            workers.reconcile(draft, {worker: host.connection for worker, host in session.hosts.items()})
            attempts.take_over(draft, session.limits)
            open_jobs = [job for job in draft.cluster.open_jobs() if job.end is None]
            for job in open_jobs:
                # The lock of an interactive job's client is free if the client has ended or was killed.
                if job.client and session.state.clients.is_gone(job.client):
                    jobs.cancel(draft, job.id, jobs.CLIENT_GONE)
            missing_inputs = missing_for_jobs(draft.cluster, session.state).jobs
            observe.settle(session, draft, dict.fromkeys(attempts.fence_unstartable(draft, missing_inputs)))

        self.dispatcher.decide(rule)
        if not session.has_locked and polls.due(session, session.cluster):
            session.lock_once()

    @property
    def _awaited(self) -> set[WorkerId]:
        """Workers whose answer is missing. No task is placed on them."""
        return self.dispatcher.unanswered | self.dispatcher.calls.busy_workers

    def _must_place(self, cluster: Cluster) -> bool:
        return self.schedule and bool(cluster.pending_tasks())

    def _listen(self) -> None:
        """Receive answers until none arrives for `patience` seconds.

        Jobs that no missing answer affects are placed at once. After `_EARLY_TIMEOUT` seconds without an answer, jobs
        that fit on the workers that have answered are placed, too.
        """
        dispatcher = self.dispatcher
        strict, early_timeout = True, min(_EARLY_TIMEOUT, self.patience)
        while True:
            awaited = self._awaited
            if awaited and self._must_place(dispatcher.cluster):
                self._place_independent(strict=strict)
                awaited = self._awaited

            def has_changed(awaited: Collection[WorkerId] = awaited) -> bool:
                return self._needs_no_answer() or self._awaited != awaited

            timeout = early_timeout if strict else self.patience - early_timeout
            if dispatcher.process_calls(patience=timeout, is_done=has_changed) or self._needs_no_answer():
                return
            if self._awaited != awaited:
                continue
            if not strict or not (dispatcher.unanswered or dispatcher.calls.awaits_reports):
                return
            strict = False

    def _place_independent(self, *, strict: bool) -> None:
        """Place the jobs that depend on no missing answer, except those in `_decided`.

        `strict`: only jobs that no unanswered worker can affect. Jobs that end without a placement are left to
        `_conclude`, so that the reason can name all workers.
        """
        from iris_cli.core.lifecycle.placement import record_assignments
        from iris_cli.core.scheduling import independent_assignments, unaffected_jobs

        unanswered, decided = self._awaited, self._decided

        def rule(draft: Draft) -> tuple[tuple[Assignment, ...], list[AttemptId], list[JobId]]:
            pending = dict.fromkeys(task.id.job for task in draft.cluster.pending_tasks())
            candidates = unaffected_jobs(draft.cluster, unanswered, draft.at) if strict else pending
            if decided.issuperset(candidates):
                return (), [], []
            new_plan = _plan(self.session, draft, unanswered)
            found = independent_assignments(
                new_plan, draft.cluster, unanswered, draft.at, only_unaffected=strict
            )
            new_attempts = record_assignments(draft, new_plan, found.assignments, _new_token(self.session))
            return found.assignments, new_attempts, [job for job in pending if job not in found.dependent]

        assigned, new_attempts, now_decided = self.dispatcher.decide(rule)
        decided.update(now_decided)
        self.result.assigned += assigned
        self.dispatcher.start(new_attempts)

    def _conclude(self) -> None:
        """Record the verdicts that waited for evidence, and place pending tasks on the workers that have answered."""
        session, dispatcher, result = self.session, self.dispatcher, self.result

        def rule(draft: Draft) -> tuple[Plan | None, list[AttemptId]]:
            observe.decide_losses(session, draft, dispatcher.observations)
            if draft.cluster.slices:
                from iris_cli.core.lifecycle.slices import join_complete_slices

                join_complete_slices(draft)
            # Rounds that wait for evidence are included, because the evidence may never arrive.
            open_gangs = [job.id for job in draft.cluster.open_jobs() if job.is_gang and not job.end]
            observe.settle(session, draft, open_gangs, dispatcher.unanswered)
            if not self._must_place(draft.cluster):
                return None, []
            return assign(session, draft, self._awaited)

        result.plan, new_attempts = dispatcher.decide(rule)
        dispatcher.start(new_attempts)
        result.is_early = bool(self._awaited)
        result.assigned += result.plan.assignments if result.plan is not None else ()
        result.silent = [each for each in dispatcher.observations if isinstance(each, Silence)]
        dispatcher.end_cycle()


def send_notices(session: Session, plan: Plan | None = None) -> None:
    """Start sending notifications as configured by `notify` in `cluster.yaml`. A failure does not fail the cycle."""
    if not session.config.notify.channels:
        session.state.notices.forget()
        return
    from iris_cli.ops import notify

    try:
        notify.send_new_notices(session, plan, session.state.read_heartbeat())
    except Exception as error:
        session.fault("sending notices", error)


def copy_ended_logs(dispatcher: Dispatcher) -> None:
    """Copy the output of ended attempts to the state directory. A failure is reported and does not fail the cycle."""
    from iris_cli.ops.cycle.kept_logs import copy_logs

    ended = {token: each for token, each in dispatcher.ended.items() if token in dispatcher.with_output}
    dispatcher.with_output.difference_update(dispatcher.ended)
    dispatcher.ended.clear()
    try:
        copy_logs(dispatcher.session, ended)
    except Exception as error:
        dispatcher.session.fault("copying logs of ended attempts", error)


def assign(
    session: Session, draft: Draft, unanswered: Collection[WorkerId] = (), *, planned: JobId | None = None
) -> tuple[Plan, list[AttemptId]]:
    """Place pending tasks in the draft, but not on `unanswered` workers. Return the plan and the new attempts.

    `planned`: a job that exists only in the draft. Its files are not stored, and count as present.
    """
    # Imported here because most cycles place nothing, and the scheduler is slow to import.
    from iris_cli.core.lifecycle.placement import record_plan

    new_plan = _plan(session, draft, unanswered, planned)
    return new_plan, record_plan(draft, new_plan, _new_token(session))


def _plan(
    session: Session, draft: Draft, unanswered: Collection[WorkerId], planned: JobId | None = None
) -> Plan:
    from iris_cli.core.scheduling import plan

    missing = missing_for_jobs(draft.cluster, session.state)
    files = {job: why for job, why in missing.files.items() if job != planned}
    return plan(
        _with_suspects(draft.cluster, unanswered),
        draft.at,
        limits=session.limits,
        missing=structs.replace(missing, files=files),
        offered=session.config.addable_devices,
    )


def _new_token(session: Session) -> Callable[[], Token]:
    return lambda: Token(session.randomness.hexadecimal(16))


def _with_suspects(cluster: Cluster, unanswered: Collection[WorkerId]) -> Cluster:
    """Return the cluster with these workers marked SUSPECT, so that nothing is placed on them.

    Nothing is placed on a worker that is stopping attempts. It is not marked, so that it can be reserved.
    """
    if not unanswered:
        return cluster
    stopping = cluster.stopping_jobs()
    suspects = {
        worker.id: structs.replace(worker, condition=WorkerCondition.SUSPECT, reason="no answer yet")
        for worker in cluster.workers.values()
        if worker.id in unanswered and worker.condition is WorkerCondition.HEALTHY
        if worker.id not in stopping
    }
    return structs.replace(cluster, workers={**cluster.workers, **suspects})


def send_stops(session: Session) -> None:
    """Send each stop that the log requests once, and record the answers."""
    with Dispatcher(session) as dispatcher:
        dispatcher.begin(poll=False)
        dispatcher.process_calls()
