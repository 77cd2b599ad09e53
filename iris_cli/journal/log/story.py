"""The log's events about the task of an illegal transition."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from iris_cli.core.events.events import Transaction
from iris_cli.core.evolve.edit import IllegalTransitionError, ImpossibleHistoryError, lines_about
from iris_cli.errors import IrisError
from iris_cli.journal.log.timestamps import iso_time

MOST = 40
"""The most events of the log in a story: the last ones."""


def add_story(error: IllegalTransitionError, read: Callable[[], Iterable[Transaction]]) -> None:
    """Add the log's events about the task of an error to its story, once. A log that can't be read adds nothing."""
    if error.task is None or error.log_was_read:
        return
    error.log_was_read = True
    last = error.seq if isinstance(error, ImpossibleHistoryError) else None
    lines: deque[str] = deque(maxlen=MOST)
    number = 0
    with suppress(IrisError):
        for each in read():
            if last is not None and each.seq > last:
                break
            for line in lines_about(error.task, each.events, f"seq {each.seq} {iso_time(each.at)}"):
                lines.append(line)
                number += 1
    unsaid = (f"{number - MOST} earlier events",) if number > MOST else ()
    error.tell(error.task, earlier=(*unsaid, *lines))
