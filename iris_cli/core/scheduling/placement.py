"""Single tasks: one worker each, the best of those that fit."""

from __future__ import annotations

from collections.abc import Iterator

from iris_cli.core.dataclass import dataclass
from iris_cli.core.ids import TaskId, WorkerId
from iris_cli.core.scheduling.capacity import first_of
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.feasibility import Requirement
from iris_cli.core.task import Task


@dataclass(frozen=True, slots=True)
class Assignment:
    """One task goes to one worker: unpacks into that pair. `gpus` are the indexes it gets there."""

    task: TaskId
    worker: WorkerId
    gpus: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[str | TaskId]:
        yield self.task
        yield self.worker


def place_tasks(
    context: SchedulingContext, requirement: Requirement, tasks: list[Task], placed: list[Assignment]
) -> list[Task]:
    """Place tasks one after another as long as they fit. Returns the rest."""
    workers = context.fleet.workers
    for number, task in enumerate(tasks):
        position = _best(context, requirement)
        if position is None:
            requirement.exhausted = True
            return tasks[number:]
        placed.append(Assignment(task.id, workers[position].id, context.take(position, requirement.need)))
    return []


def _best(context: SchedulingContext, requirement: Requirement) -> int | None:
    """The first worker by rank: most preferences met, then the tiers that keep slices whole, then its id.

    The last choice is the best again while it has room: room only shrinks, and a change that could lift
    another worker above it moves the context's version.
    """
    if requirement.exhausted:
        return None
    version, position = requirement.last
    if version == context.version and context.has_room(position, requirement.need):
        return position
    candidates = requirement.candidates(context)
    if not candidates:
        return None
    best = next(found for level in requirement.levels if (found := candidates & level))
    tiers = context.cpu_tiers if requirement.plain else context.device_tiers
    position = first_of(next(found for tier in tiers if (found := best & tier)))
    requirement.last = (context.version, position)
    return position
