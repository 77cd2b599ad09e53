"""Output of `iris watch`: a full screen on a terminal, otherwise a line for each change."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

from iris_cli.core.lifecycle.display import job_display, word_of
from iris_cli.core.model.cluster import Cluster
from iris_cli.ops.loop.foreground import Step
from iris_cli.ops.session import Session
from iris_cli.render.console import Output, is_in_foreground, is_screen
from iris_cli.render.tables import clock_time, fold
from iris_cli.render.watch.recent_events import RecentEvent, fold_events

if TYPE_CHECKING:
    from rich.text import Text

    from iris_cli.render.watch.board import DrawScreen
    from iris_cli.render.watch.live import LiveScreen

_MAX_EVENTS = 50  # maximum number of recent events kept for the screen


class Screen:
    """Context manager for the output of a watch; restores the terminal at the end.

    After each step, `look` reads the current state and returns a function that draws it.
    """

    def __init__(self, output: Output, session: Session, look: Callable[[], DrawScreen]) -> None:
        self._output = output
        self._session = session
        self._look = look
        self._draw: DrawScreen | None = None
        self._events: deque[RecentEvent] = deque(maxlen=_MAX_EVENTS)
        self._trouble = ""
        self._printed_messages: list[str] = []  # the log's messages at the last step
        self._live: LiveScreen | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Screen:
        self._session.progress = lambda _: nullcontext()  # no progress line: the screen shows progress
        if not (self._output.as_json or self._output.quiet) and is_screen(sys.stdout) and is_in_foreground():
            from iris_cli.render.watch import board  # noqa: F401 - two threads must not import it at the same time
            from iris_cli.render.watch.live import LiveScreen

            self._live = self._stack.enter_context(LiveScreen(self._output.console, self._paint))
            self._session.tell = self._add_message
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if self._live is not None:
            self._print_last_screen(*self._live.size())

    def look(self) -> None:
        """Read the state again and update the screen, if there is a screen."""
        if self._live is not None:
            self._draw = self._look()
            self._live.update()

    def show(self, step: Step) -> None:
        new = fold_events(step.entries)
        if self._live is not None:
            self._events.extend(new)
            self._trouble = step.trouble
            self.look()
            return
        if self._output.as_json:
            self._output.compact_json = True
            for entry in step.entries:
                self._output.document(entry)
        else:
            for each in new:
                self._output.line(f"{clock_time(each.at)}  {each.text}")
        for message in self._session.messages:
            if message not in self._printed_messages:
                self._output.warning(message)
        self._printed_messages = self._session.messages
        if step.trouble and step.trouble != self._trouble:
            self._output.warning(f"no cycle could be run: {step.trouble}")
        self._trouble = step.trouble
        self._output.flush()

    def _add_message(self, message: str) -> None:
        """Add a session's message to the events, because printing it would damage the screen."""
        self._events.append(RecentEvent(self._session.clock.now(), message))
        if self._live is not None:
            self._live.update()

    def _paint(self, width: int, height: int) -> Sequence[Text]:
        """Return the lines to show; runs in the painter thread."""
        from iris_cli.render.watch.board import ScreenInput, loading_lines

        screen_input = ScreenInput(
            now=self._session.clock.now(), events=tuple(self._events), trouble=self._trouble
        )
        draw = self._draw
        return draw(screen_input, width, height) if draw is not None else loading_lines()

    def _print_last_screen(self, width: int, height: int) -> None:
        """Print the last screen on the restored terminal, without repeated blank lines."""
        if self._draw is None:
            return
        was_blank = True
        for line in self._paint(width, max(5, height - 2)):
            is_blank = not line.plain
            if not (is_blank and was_blank):
                self._output.console.print(line, soft_wrap=True)
            was_blank = is_blank


def open_jobs_words(cluster: Cluster, follow_up: str = "") -> str:
    """Return the message about open jobs at the end of a watch. It ends with `follow_up` (default: what to type)."""
    jobs: dict[str, list[str]] = {"running": [], "stopping": [], "retrying": [], "pending": []}
    for job in cluster.open_jobs():
        if job.end is None:
            jobs.setdefault(word_of(job_display(cluster, job.id)).lower(), []).append(job.id)
        elif cluster.live_attempts_of(job.id):  # an ended job without live attempts is only a ghost
            jobs["stopping"].append(job.id)
    parts = [f"{fold(names, 3)} {word}" for word, names in jobs.items() if names]
    rest = f"; {follow_up}" if follow_up else ": iris status, or iris watch again"
    return f"stopped watching; {', '.join(parts) or 'nothing is running'}{rest}"
