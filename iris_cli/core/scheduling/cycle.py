"""One scheduling cycle: a pure function of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.job import Job
from iris_cli.core.limits import Limits
from iris_cli.core.scheduling import wording
from iris_cli.core.scheduling.capacity import Amounts
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.explain import Explainer, Explanation
from iris_cli.core.scheduling.feasibility import Requirement, Signatures, shape_of
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.gangs import GangPlacer, malformed
from iris_cli.core.scheduling.order import Entry, entries_of, overdue
from iris_cli.core.scheduling.placement import Assignment, place_tasks
from iris_cli.core.scheduling.reasons import Reason, ReasonKind
from iris_cli.core.task import Task
from iris_cli.core.worker import Worker

WaitingKey = TaskId | JobId
"""A single task by its own id, a gang by that of its job."""


class Waiting(Mapping[WaitingKey, tuple[Reason, ...]]):
    """What waits, and why: the reasons, never none, in order of precedence. They are made when looked at."""

    def __init__(
        self, explainer: Explainer, unmet: Mapping[WaitingKey, Requirement | tuple[Reason, ...]]
    ) -> None:
        self._explainer = explainer
        self._unmet = unmet

    def __getitem__(self, key: WaitingKey) -> tuple[Reason, ...]:
        return self.explain(key).reasons

    def __iter__(self) -> Iterator[WaitingKey]:
        return iter(self._unmet)

    def __len__(self) -> int:
        return len(self._unmet)

    def __contains__(self, key: object) -> bool:
        return key in self._unmet

    def __repr__(self) -> str:
        return repr(dict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingResult:
    """What a cycle decided.

    `assignments` are in the order of decision, those of a gang in the order of its tasks. `timed_out_tasks`
    were never placed within their `scheduling_timeout`. `waiting` holds everything else. `reservations` names
    the groups that are kept for a gang.
    """

    assignments: tuple[Assignment, ...]
    timed_out_tasks: tuple[TaskId, ...]
    waiting: Mapping[WaitingKey, tuple[Reason, ...]]
    reservations: Mapping[JobId, tuple[str, ...]]
