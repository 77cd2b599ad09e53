"""What all events have in common."""

from __future__ import annotations

from msgspec import Struct

from iris_cli.core.ids import AttemptId, TaskId


class Event(Struct, frozen=True, tag_field="type", tag=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that happened. The name of the class is the `type` in the log."""


class AttemptEvent(Event, frozen=True, kw_only=True):
    """An event about one attempt; `attempt` is its number."""

    task: TaskId
    attempt: int

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.task, self.attempt)


class IllegalTransitionError(Exception):
    """An event does not fit the state it met. The message tells the whole story of its task."""
