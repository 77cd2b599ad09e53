"""What an event that does not fit is answered with."""

from __future__ import annotations

from iris_cli.core.events import Event
from iris_cli.core.task import Task


class IllegalTransitionError(Exception):
    """An event does not fit the state it met. The message tells the whole story of its task."""


def illegal(event: Event, task: Task) -> IllegalTransitionError:
    """The refusal of an event about a task, with what has become of its attempts."""
    story = "; ".join(
        f"attempt-{attempt.number} on {attempt.worker} {attempt.state}"
        + (f" ({attempt.end.reason})" if attempt.end else "")
        for attempt in task.attempts
    )
    return IllegalTransitionError(f"{event} does not fit {task.id}, {task.state}: {story or 'never placed'}")
