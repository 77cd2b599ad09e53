"""Why something was placed where it is: what stood before it in rank and could not serve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from iris_cli.core.ids import JobId, TaskId
from iris_cli.core.scheduling import wording
from iris_cli.core.scheduling.capacity import first_of
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.feasibility import Requirement
from iris_cli.core.scheduling.placement import Assignment
from iris_cli.core.scheduling.reasons import ReasonKind
from iris_cli.core.scheduling.verdicts import Case, Verdict, group_on, near_misses

_WORDS = {
    ReasonKind.COOLDOWN: "cooling down",
    ReasonKind.STOPPING: "stopping",
    ReasonKind.RESERVED: "reserved",
}


class Choices:
    """The choices of a cycle, put into words when asked. `asked` tells what a job asked for."""

    def __init__(self, context: SchedulingContext, asked: Callable[[JobId], Requirement]) -> None:
        self._context = context
        self._asked = asked

    def reason(self, task: TaskId, assignments: Iterable[Assignment]) -> str:
        """`chose v4b: v4a busy`, or "" for a task that wasn't placed."""
        seats = {each.task: each.worker for each in assignments if each.task.job == task.job}
        if task not in seats:
            return ""
        requirement = self._asked(task.job)
        workers = seats.values() if requirement.shape else [seats[task]]
        chosen = list(dict.fromkeys(group_on(self._context, requirement, worker) for worker in workers))
        names = ", ".join(str(group.key) for group in chosen)
        before = min(group.number for group in chosen)
        case = Case(self._context, requirement, self._context.open)
        passed = wording.few(_passed_over(case, before))
        return f"chose {names}" + (f": {passed}" if passed else "")


def _passed_over(case: Case, before: int) -> Iterator[str]:
    """Those that come first by name and serve, but were busy or unwell when the cycle began."""
    for verdict in sorted(near_misses(case), key=lambda verdict: verdict.group.number):
        if verdict.group.number < before and _serves_otherwise(verdict):
            yield f"{verdict.group.key} {_word(case.context, verdict)}"


def _serves_otherwise(verdict: Verdict) -> bool:
    kind = verdict.kind
    return kind is not None and kind.rank > ReasonKind.GROUP_SHAPE.rank and kind is not ReasonKind.BEHIND


def _word(context: SchedulingContext, verdict: Verdict) -> str:
    if verdict.kind is ReasonKind.UNHEALTHY:
        return wording.state(context.fleet.workers[first_of(verdict.lacking)])
    return _WORDS.get(verdict.kind, "busy") if verdict.kind else ""
