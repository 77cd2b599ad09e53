"""Single tasks: one worker each, the best of those that fit."""

from __future__ import annotations

from collections.abc import Iterator

from iris_cli.core.dataclass import dataclass
from iris_cli.core.ids import TaskId, WorkerId
from iris_cli.core.scheduling.capacity import first_of
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.feasibility import Requirement
from iris_cli.core.task import Task


@dataclass(slots=True)  # not frozen: that takes three times as long to make; nobody changes one
class Assignment:
    """One task goes to one worker: unpacks into that pair. `gpus` are the indexes it gets there."""

    task: TaskId
    worker: WorkerId
    gpus: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[str | TaskId]:
        yield self.task
        yield self.worker

    def __hash__(self) -> int:
        return hash((self.task, self.worker, self.gpus))


def place_tasks(
    context: SchedulingContext, requirement: Requirement, tasks: list[Task], placed: list[Assignment]
) -> list[Task]:
    """Place tasks one after another as long as they fit. Returns the rest.

    The last choice is the best again while it has room: room only shrinks, and a change that could lift
    another worker above it moves the context's version.
    """
    parcel, gpus = requirement.parcel, requirement.need.gpus
    for number, task in enumerate(tasks):
        if requirement.seat_version != context.version or not context.take(requirement.seat, parcel):
            if not _choose(context, requirement):
                return tasks[number:]
            context.take(requirement.seat, parcel)
        if gpus:
            placed.append(assign(context, requirement, task, requirement.seat))
        else:
            placed.append(Assignment(task.id, requirement.worker))
    return []


def assign(context: SchedulingContext, requirement: Requirement, task: Task, position: int) -> Assignment:
    """The assignment of a task that has taken its share of a worker."""
    worker, count = context.fleet.ids[position], requirement.need.gpus
    return Assignment(task.id, worker, context.take_gpus(position, count) if count else ())


def _choose(context: SchedulingContext, requirement: Requirement) -> bool:
    """Find the first worker by rank: most preferences met, then the tiers that keep slices whole, then its id."""
    candidates = 0 if requirement.exhausted else requirement.candidates(context)
    requirement.exhausted = not candidates
    if not candidates:
        return False
    best = next(found for level in requirement.levels if (found := candidates & level))
    tiers = context.cpu_tiers if requirement.plain else context.device_tiers
    requirement.seat = first_of(next(found for tier in tiers if (found := best & tier)))
    requirement.worker = context.fleet.ids[requirement.seat]
    requirement.seat_version = context.version
    return True
