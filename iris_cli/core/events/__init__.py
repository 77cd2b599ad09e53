"""The events of the log: their base classes, and the error for an event that is not possible."""

from collections.abc import Iterable

from msgspec import Struct

from iris_cli.core.ids import AttemptId, TaskId


class Event(Struct, frozen=True, tag_field="type", tag=True, forbid_unknown_fields=True, omit_defaults=True):
    """An event in the log. The name of the class is its `type`."""


class AttemptEvent(Event, frozen=True, kw_only=True):
    """An event about one attempt; `attempt` is its number."""

    task: TaskId
    attempt: int

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.task, self.attempt)


class IllegalTransitionError(Exception):
    """An event is not possible in the current state. The message is one line.

    `story` has a line for each attempt of `task` and for each event about the task; the journal adds the events of the
    log. A traceback prints the story as notes.
    """

    task: TaskId | None = None
    record: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    log_was_read: bool = False

    @property
    def story(self) -> tuple[str, ...]:
        return (*self.record, *self.events)

    def attach(self, task: TaskId | None, record: Iterable[str] = (), earlier: Iterable[str] = ()) -> None:
        """Set the task. Insert `record` and `earlier` before the existing lines about its record and its events."""
        self.task = task
        self.record = (*record, *self.record)
        self.events = (*earlier, *self.events)
        self.__notes__ = list(self.story)
