"""What all events have in common."""

from __future__ import annotations

from typing import ClassVar

from iris_cli.core.dataclass import dataclass
from iris_cli.core.ids import AttemptId, TaskId
from iris_cli.core.making import CLOSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened. The name of the class is the `type` in the log."""

    TYPES: ClassVar[dict[str, type[Event]]] = {}

    def __init_subclass__(cls, **kwargs: object) -> None:
        # A slotted dataclass is made twice, the second time as the class that stays; its open twin doesn't count.
        if not hasattr(cls, CLOSED):
            Event.TYPES[cls.__name__] = cls


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEvent(Event):
    """An event about one attempt; `attempt` is its number."""

    task: TaskId
    attempt: int

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.task, self.attempt)


class IllegalTransitionError(Exception):
    """An event does not fit the state it met. The message tells the whole story of its task."""
