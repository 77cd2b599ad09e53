"""Why something was placed where it is: what stood before it in rank and could not serve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from iris_cli.core.ids import JobId, TaskId
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.explain import wording
from iris_cli.core.scheduling.explain.explanation import Turns
from iris_cli.core.scheduling.explain.verdicts import Case, Verdict, fits, group_on, refused_before
from iris_cli.core.scheduling.explain.what_if import CycleRecord
from iris_cli.core.scheduling.placement import Assignment, Requirement
from iris_cli.core.scheduling.reasons import ReasonKind
from iris_cli.core.scheduling.sets import Group, first_of, positions_of

_WORDS = {
    ReasonKind.COOLDOWN: "cooling down",
    ReasonKind.STOPPING: "stopping",
    ReasonKind.RESERVED: "reserved",
}


_LOOKED_AT = 64  # so many of those that come first by name are looked at


class Choices:
    """The choices of a cycle, put into words when asked. `asked` tells what a job asked for."""

    def __init__(
        self, context: SchedulingContext, asked: Callable[[JobId], Requirement], record: CycleRecord
    ) -> None:
        self._context = context
        self._asked = asked
        self._record = record
        self._turns = Turns(record)
        self._large_enough: dict[Requirement, int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choices) and self._record.placed == other._record.placed

    __hash__ = None  # type: ignore[assignment]  # the record of a cycle grows

    def reason(self, task: TaskId) -> str:
        """`chose v4b: v4a busy`, or "" for a task that wasn't placed."""
        mates = [each for each in self._record.placed if each.task.job == task.job]
        there = [each for each in mates if each.task == task]
        if not there:
            return ""
        return self._in_words(task.job, mates if self._asked(task.job).shape else there)

    def worth_telling(self) -> dict[TaskId, str]:
        """The same for the first task that was placed of each job, where somebody was passed over for it."""
        by_job: dict[JobId, list[Assignment]] = {}
        for each in self._record.placed:
            if each.task.job not in by_job or self._asked(each.task.job).shape:
                by_job.setdefault(each.task.job, []).append(each)
        told = {placed[0].task: self._in_words(job, placed) for job, placed in by_job.items()}
        return {task: text for task, text in told.items() if ": " in text}

    def _in_words(self, job: JobId, placed: list[Assignment]) -> str:
        requirement = self._asked(job)
        chosen = dict.fromkeys(group_on(self._context, requirement, each.worker) for each in placed)
        names = ", ".join(str(group.key) for group in chosen)
        passed = wording.few(self._passed_over(job, requirement, min(chosen, key=lambda group: group.number)))
        return f"chose {names}" + (f": {passed}" if passed else "")

    def _passed_over(self, job: JobId, requirement: Requirement, chosen: Group) -> Iterator[str]:
        """Those that come first by name and serve no worse, but were busy, unwell or given to others before."""
        context = self._context
        before = refused_before(Case(context, requirement, context.open), chosen.number)
        for verdict in islice(before, _LOOKED_AT):
            if not _serves_no_worse(context, requirement, verdict.group, chosen):
                continue
            if verdict.kind is ReasonKind.BEHIND:
                workers = [context.fleet.ids[position] for position in positions_of(verdict.lacking)]
                taker = self._turns.first_before(job, workers)
                if taker is not None:
                    yield f"{verdict.group.key} taken by {taker}"
            elif verdict.kind is not None and self._could_serve(requirement, verdict.group):
                yield f"{verdict.group.key} {_word(context, verdict)}"

    def _could_serve(self, requirement: Requirement, group: Group) -> bool:
        """Whether it could on another day: that it is too small is no news."""
        large_enough = self._large_enough.get(requirement)
        if large_enough is None:
            large_enough = self._context.large_enough(requirement.need)
            self._large_enough[requirement] = large_enough
        return fits(group, requirement.shape, requirement.selected & large_enough)


def _serves_no_worse(context: SchedulingContext, requirement: Requirement, one: Group, chosen: Group) -> bool:
    """By preferences met; and CPU work has hosts without accelerators first."""
    plain_first = requirement.shape is None and requirement.plain and chosen.mask & context.cpu_tiers[0]
    no_less_liked = _preferences(requirement, one) >= _preferences(requirement, chosen)
    return no_less_liked and bool(not plain_first or one.mask & context.cpu_tiers[0])


def _preferences(requirement: Requirement, group: Group) -> int:
    """How many are met by those of a group's workers that meet the most, as many as are needed."""
    wanted, found = requirement.shape.size if requirement.shape else 1, 0
    for met, level in zip(reversed(range(len(requirement.levels))), requirement.levels, strict=True):
        there = min(wanted, (group.mask & requirement.selected & level).bit_count())
        wanted -= there
        found += met * there
    return found


def _word(context: SchedulingContext, verdict: Verdict) -> str:
    if verdict.kind is ReasonKind.UNHEALTHY:
        return wording.state(context.fleet.workers[first_of(verdict.lacking)])
    return _WORDS.get(verdict.kind, "busy") if verdict.kind else ""
