"""What an event that does not fit is answered with."""

from __future__ import annotations

from iris_cli.core.event import Event
from iris_cli.core.event import IllegalTransitionError as IllegalTransitionError
from iris_cli.core.task import Task
from iris_cli.errors import LogDamagedError


class ImpossibleHistoryError(IllegalTransitionError, LogDamagedError):
    """A transaction that stands in the log, and can't have happened by the rules of this program."""

    def __init__(self, seq: int, error: IllegalTransitionError) -> None:
        what = (
            f"seq {seq} of the event log can't have happened after what stands before it: {error!s:.{_SHOWN}}"
        )
        super().__init__(what, hint="`iris log verify` says where; `iris log salvage` ends the log before it")


_SHOWN = 400  # characters: the story of a task may be long


def illegal(event: Event, task: Task) -> IllegalTransitionError:
    """The refusal of an event about a task, with what has become of its attempts."""
    story = "; ".join(
        f"attempt-{attempt.number} on {attempt.worker} {attempt.state}"
        + (f" ({attempt.end.reason})" if attempt.end else "")
        for attempt in task.attempts
    )
    return IllegalTransitionError(f"{event} does not fit {task.id}, {task.state}: {story or 'never placed'}")
