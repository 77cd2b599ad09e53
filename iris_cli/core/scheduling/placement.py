"""Single tasks: one worker each, the best of those that fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from iris_cli.core import Task, TaskId, WorkerId
from iris_cli.core.scheduling.capacity import first_of
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.feasibility import Requirement


class Assignment(Struct):
    """One task goes to one worker: unpacks into that pair. `gpus` are the indexes it gets there."""

    task: TaskId
    worker: WorkerId
    gpus: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[str | TaskId]:
        yield self.task
        yield self.worker

    def __hash__(self) -> int:
        return hash((self.task, self.worker, self.gpus))


def find_seat(context: SchedulingContext, requirement: Requirement) -> bool:
    """Take a place for one task, whose position is then `requirement.seat`. False where nothing fits any more.

    The last choice is the best again while it has room: room only shrinks, and a change that could lift
    another worker above it moves the context's version.
    """
    if requirement.seat_version == context.version and context.take(requirement.seat, requirement.parcel):
        return True
    return _choose(context, requirement) and context.take(requirement.seat, requirement.parcel)


def assign(context: SchedulingContext, requirement: Requirement, task: Task, position: int) -> Assignment:
    """The assignment of a task that has taken its share of a worker."""
    worker, count = context.fleet.ids[position], requirement.need.gpus
    return Assignment(task.id, worker, context.take_gpus(position, count) if count else ())


def _choose(context: SchedulingContext, requirement: Requirement) -> bool:
    """Find the first worker by rank: most preferences met, then the tiers that keep slices whole, then the fewest free
    GPUs for a task that needs some, then its id.
    """
    candidates = requirement.candidates(context)
    if not candidates:
        requirement.exhausted = True
        return False
    best = _first_common(candidates, requirement.levels)
    best = _first_common(best, context.cpu_tiers if requirement.plain else context.device_tiers)
    if requirement.need.gpus:
        best = _first_common(best, context.gpu_tiers(requirement.need.gpus))
    requirement.seat = first_of(best)
    requirement.worker = context.fleet.ids[requirement.seat]
    requirement.seat_version = context.version
    return True


def _first_common(workers: int, sets: Iterable[int]) -> int:
    """What workers have in common with the first of these sets in which any of them is."""
    for each in sets:
        if common := workers & each:
            return common
    return 0
