"""The same cycle once more with one thing changed: whether a change would do is tried, not reckoned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from iris_cli.core import Device, Job, Priority, Resources, Task, Worker, WorkerCondition
from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.scheduling.order import Entry
from iris_cli.core.scheduling.placement import Assignment

UnconfirmedStops = Mapping[WorkerId, Collection[JobId | None]] | Collection[WorkerId]
"""The workers where a stop isn't confirmed, and of which jobs. None stands for what ends with none of them."""


_LAST = 1 << 62  # the order of a job that is launched anew: behind all that have its priority by now


class ChangeKind(StrEnum):
    """What would be otherwise."""

    DROP = "drop"
    TOLERATE = "tolerate"
    SPREAD = "spread"
    JOB_ENDS = "job_ends"
    TASK_ENDS = "task_ends"
    UNCORDON = "uncordon"
    COMPLETES = "completes"
    RECOVERS = "recovers"
    RESTS = "rests"
    PRIORITY = "priority"
    LESS_CPU = "less_cpu"
    LESS_MEMORY = "less_memory"
    FEWER_GPUS = "fewer_gpus"


class Change(Struct, frozen=True, kw_only=True):
    """One change that would place a pending task or gang, or one more task of its job.

    `subject` is what to change: the constraint as typed, the taint, the job or task that would end, the worker to
    repair, the priority. `amount` is what to request instead: thousandths of a core, bytes or GPUs.
    """

    kind: ChangeKind
    subject: str = ""
    amount: int = 0
    text: str = ""

    def __str__(self) -> str:
        return self.text


class CycleRecord(Struct, frozen=True, kw_only=True, dict=True):
    """The input of a cycle, what it placed and `kept_out` of its queue; `decide` runs one on other input."""

    queue: Sequence[Entry]
    kept_out: Collection[TaskId | JobId]
    placed: Sequence[Assignment]
    get_job: Callable[[JobId], Job | None]
    workers: Sequence[Worker]
    unconfirmed_stops: UnconfirmedStops
    decide: Callable[..., Iterable[Assignment]]

    @cached_property
    def due(self) -> list[tuple[Job, list[Task]]]:
        """What competed, in order."""
        queue = [(job, tasks) for _, _, _, job, tasks, _, _ in self.queue]
        out = self.kept_out
        if not out:
            return queue
        rest = ((job, [task for task in tasks if task.id not in out]) for job, tasks in queue)
        return [(job, tasks) for job, tasks in rest if tasks and job.id not in out]

    def with_change(self, job_id: JobId, change: Change) -> list[WorkerId]:
        """Where the tasks of a job would be that are not placed without the change."""
        turn = next(at for at, (job, _) in enumerate(self.due) if job.id == job_id)
        queue = self.due[: turn + 1]  # who comes later makes no difference
        if change.kind is ChangeKind.JOB_ENDS:  # the tasks of it that still wait end, too
            queue = [(job, tasks) for job, tasks in queue if job.id != change.subject]
        asked = self.get_job(job_id)
        assert asked is not None
        changed = _changed_job(asked, change)
        after = self.decide(
            [task for _, tasks in queue for task in tasks],
            [_changed_worker(worker, change) for worker in self.workers],
            lambda each: changed if each == job_id else self.get_job(each),
            unconfirmed_stops=self._stops_after(change),
        )
        before = Counter(each.worker for each in self.placed if each.task.job == job_id)
        there = [each.worker for each in after if each.task.job == job_id]
        if len(there) <= before.total():
            return []
        return [worker for worker in there if not _take_one(before, worker)]

    def _stops_after(self, change: Change) -> list[WorkerId]:
        """When a job has ended, its own stops are confirmed."""
        stops = self.unconfirmed_stops
        if change.kind is not ChangeKind.JOB_ENDS or not isinstance(stops, Mapping):
            return list(stops)
        return [worker for worker, jobs in stops.items() if any(job != change.subject for job in jobs)]


def _take_one(counts: Counter[WorkerId], worker: WorkerId) -> bool:
    counts[worker] -= 1
    return counts[worker] >= 0


def _changed_job(job: Job, change: Change) -> Job:
    changed, resources, amount = copy(job), job.resources, change.amount
    match change.kind:
        case ChangeKind.DROP:
            rest = tuple(each for each in job.constraints if format_constraint(each) != change.subject)
            changed.constraints = rest
        case ChangeKind.TOLERATE:
            changed.tolerations = (*job.tolerations, change.subject)
        case ChangeKind.SPREAD:
            changed.spread = True
        case ChangeKind.PRIORITY:
            changed.priority, changed.order = Priority(change.subject), _LAST
        case ChangeKind.LESS_CPU:
            changed.resources = Resources(amount / 1000, resources.memory, resources.device)
        case ChangeKind.LESS_MEMORY:
            changed.resources = Resources(resources.cpu, amount, resources.device)
        case ChangeKind.FEWER_GPUS:
            assert resources.device is not None
            device = Device(resources.device.kind, resources.device.variant, amount)
            changed.resources = Resources(resources.cpu, resources.memory, device)
        case _:
            return job
    return changed


def _changed_worker(worker: Worker, change: Change) -> Worker:
    if change.kind in (ChangeKind.JOB_ENDS, ChangeKind.TASK_ENDS):
        claims = {
            attempt: claim
            for attempt, claim in worker.claims.items()
            if change.subject not in (attempt.task.job, str(attempt.task))
        }
        if len(claims) == len(worker.claims):
            return worker
        emptier = copy(worker)
        emptier.claims = claims
        return emptier
    if change.subject != worker.id:
        return worker
    changed = copy(worker)
    match change.kind:
        case ChangeKind.UNCORDON | ChangeKind.COMPLETES:
            changed.draining, changed.quarantined, changed.cooldown_until = False, False, 0.0
        case ChangeKind.RECOVERS:
            changed.condition = WorkerCondition.HEALTHY
            changed.unschedulable, changed.cooldown_until = False, 0.0
        case ChangeKind.RESTS:
            changed.cooldown_until = 0.0
        case _:
            return worker
    return changed
