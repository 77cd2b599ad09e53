"""Rules broken one at a time, to see that the simulation notices. Each mutation takes one rule out of the tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from iris_cli.core.events import TaskAssigned, TaskDispatchFailed, TaskRequeued
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import AttemptId, JobId, Token
from iris_cli.core.lifecycle import attempts, gangs, identity, jobs, placement, workers
from iris_cli.core.limits import Limits
from iris_cli.core.observations import AttemptReport, RemoteState, Silence
from iris_cli.core.outcome import EndReason
from iris_cli.core.task import AttemptState, TaskState
from tests.simulation import machines, wires

S = RemoteState


@dataclass(frozen=True, slots=True)
class Mutation:
    """`breaks` says in words what is left out; `plant` leaves it out for as long as it is held."""

    name: str
    breaks: str
    plant: Callable[[], AbstractContextManager[Any]]


def _heard_as(heard: RemoteState, taken_for: RemoteState) -> AbstractContextManager[Any]:
    """One word of the workers is taken for another one."""
    reported = attempts.reported

    def mistaken(draft: Draft, attempt_id: AttemptId, report: AttemptReport, limits: Limits) -> None:
        if report.state is heard:
            code = 0 if taken_for is S.EXITED else report.exit_code
            report = replace(report, state=taken_for, exit_code=code)
        reported(draft, attempt_id, report, limits)

    return patch.object(attempts, "reported", mistaken)


def _only_running_siblings() -> AbstractContextManager[Any]:
    def stop_live(draft: Draft, job: JobId, reason: EndReason, trigger: Any = None) -> None:
        for attempt_id, attempt in draft.cluster.live_of(job):
            assigned = attempt.state is AttemptState.ASSIGNED and reason is EndReason.SIBLING
            if attempt.state is not AttemptState.STOPPING and not assigned:
                jobs.stop(draft, attempt_id, reason, trigger)

    return patch.object(jobs, "stop_live", stop_live)


def _release_on_silence() -> AbstractContextManager[Any]:
    silent = workers.silent

    def released(draft: Draft, silence: Silence, limits: Limits) -> None:
        silent(draft, silence, limits)
        identity.release(draft, silence.worker, "it does not answer")

    return patch.object(workers, "silent", released)


def _nothing_was_sent() -> AbstractContextManager[Any]:
    def said(self: wires.SimRunner, worker: Any, name: str, kind: Any, *, sent: bool) -> Silence:
        return Silence(worker=worker, kind=kind, step=name, detail=kind.value, sent=False)

    return patch.object(wires.SimRunner, "_silence", said)


def _not_sent_whoever_says_so() -> AbstractContextManager[Any]:
    def not_sent(draft: Draft, attempt_id: AttemptId, error: str) -> None:
        attempt = draft.cluster.attempt(attempt_id)
        if attempt.live and attempt.started_at is None:
            draft.record(TaskDispatchFailed(task=attempt_id.task, attempt=attempt_id.number, error=error))

    return patch.object(attempts, "not_sent", not_sent)


def _charge_twice() -> AbstractContextManager[Any]:
    settle = attempts._settle_task

    def twice(draft: Draft, task_id: Any, end: Any) -> None:
        settle(draft, task_id, end)
        last = draft.events[-1]
        if isinstance(last, TaskRequeued) and last.task == task_id:
            draft.record(last)

    return patch.object(attempts, "_settle_task", twice)


@contextmanager
def _leftover_alone() -> Iterator[None]:
    """A rank that could not be dispatched is placed once more by itself, beside its siblings."""
    settle, carry_out = gangs.settle, placement.carry_out

    def lenient(draft: Draft, job_id: JobId, limits: Limits, unheard: Any = ()) -> None:
        job = draft.cluster.jobs[job_id]
        in_flight = job.end is None and job.rounds > job.settled_rounds
        members = gangs._members(draft, job_id) if in_flight else []
        if any(task.state is TaskState.PENDING and attempt.end for task, attempt in members):
            return
        settle(draft, job_id, limits, unheard)

    def and_leftovers(draft: Draft, plan: Any, new_token: Callable[[], Token]) -> list[AttemptId]:
        assigned = carry_out(draft, plan, new_token)
        for job in draft.cluster.jobs.values():
            for task in draft.cluster.tasks_of(job.id) if job.is_gang and not job.end else ():
                if job.rounds > job.settled_rounds and task.state is TaskState.PENDING and task.attempts:
                    attempt = AttemptId(task.id, len(task.attempts))
                    worker = task.attempts[-1].worker
                    draft.record(
                        TaskAssigned(task=task.id, attempt=attempt.number, worker=worker, token=new_token())
                    )
                    assigned.append(attempt)
        return assigned

    with patch.object(gangs, "settle", lenient), patch("iris_cli.ops.cycle.carry_out", and_leftovers):
        yield


def _start_again() -> AbstractContextManager[Any]:
    go = machines.Machine.go

    def heedless(self: machines.Machine, worker: Any, token: Token) -> None:
        entry = self.home(worker).entries.get(token)
        if entry is not None and entry.state is S.RUNNING:
            entry.state = S.PREPARED
        go(self, worker, token)

    return patch.object(machines.Machine, "go", heedless)


def _launch_over_a_tombstone() -> AbstractContextManager[Any]:
    prepare = machines.Machine.prepare

    def heedless(self: machines.Machine, worker: Any, request: Any, *, cut: bool = False) -> None:
        entry = self.home(worker).entries.get(request.token)
        if entry is not None and entry.state is S.STOPPED:
            del self.home(worker).entries[request.token]
        prepare(self, worker, request, cut=cut)

    return patch.object(machines.Machine, "prepare", heedless)


def _no_fsync() -> AbstractContextManager[Any]:
    return patch("tests.simulation.disk.Medium.synced", lambda self, fd: None)


def _no_repair() -> AbstractContextManager[Any]:
    """What a killed writer left at the end of the log stays there, and the next line is glued to it."""
    return patch("iris_cli.journal.state_dir.repair", lambda *_: [])


def _no_lock() -> AbstractContextManager[Any]:
    return patch("tests.simulation.disk._locked", lambda fd: True)


def _anybody_is_trusted() -> AbstractContextManager[Any]:
    return patch.object(identity, "_doubt", lambda worker, boot_id: "")


def _boots_are_all_the_same() -> AbstractContextManager[Any]:
    return patch.object(identity, "_rebooted", lambda draft, worker, boot_id: None)


def _settled_at_once() -> AbstractContextManager[Any]:
    return patch.object(gangs, "_weight", lambda item: (0, -item[1].at, -item[0].index))


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("free-on-kill-sent", "STOPPING is taken for STOPPED", lambda: _heard_as(S.STOPPING, S.STOPPED)),
    Mutation(
        "free-the-unkillable", "UNKILLABLE is taken for STOPPED", lambda: _heard_as(S.UNKILLABLE, S.STOPPED)
    ),
    Mutation("orphans-are-lost", "ORPHANED is taken for LOST", lambda: _heard_as(S.ORPHANED, S.LOST)),
    Mutation("lost-is-success", "LOST is taken for exit code 0", lambda: _heard_as(S.LOST, S.EXITED)),
    Mutation("ignore-the-launch-token", "`go` starts what runs already once more", _start_again),
    Mutation("launch-over-a-tombstone", "a late launch starts what was fenced", _launch_over_a_tombstone),
    Mutation("leftover-rank-alone", "a rank that was not dispatched is placed by itself", _leftover_alone),
    Mutation("skip-assigned-siblings", "only RUNNING siblings are stopped", _only_running_siblings),
    Mutation("release-on-silence", "a worker that does not answer is taken for gone", _release_on_silence),
    Mutation("no-answer-is-not-started", "a launch without an answer counts as not sent", _nothing_was_sent),
    Mutation("anybody-says-not-started", '"not sent" counts after a take-over', _not_sent_whoever_says_so),
    Mutation("charge-twice", "one failure is charged twice", _charge_twice),
    Mutation("dispatch-before-fsync", "a line of the log is not synced before it is acted upon", _no_fsync),
    Mutation("keep-a-torn-record", "the next line is glued to a torn one, and lost with it", _no_repair),
    Mutation("two-writers", "the state directory is not locked", _no_lock),
    Mutation("trust-anybody", "a re-created host is believed to be the old one", _anybody_is_trusted),
    Mutation("overlook-reboots", "a new boot id means nothing", _boots_are_all_the_same),
)
