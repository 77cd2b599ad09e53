"""A cluster that is watched: a calm screen on a terminal, elsewhere a line for each event."""

from __future__ import annotations

import json
from collections import deque
from contextlib import ExitStack
from types import TracebackType

from iris_cli.ops.history import Entry
from iris_cli.ops.session import Session
from iris_cli.ops.status import cluster_status
from iris_cli.ops.watch import Step
from iris_cli.render.as_json import document
from iris_cli.render.console import SCHEMA_VERSION, Output

_KEPT = 8
"""Newest events that stay on the screen below the cluster."""


class Screen:
    """Where the steps of a watch are shown; a context, because a terminal has to be given back as it was."""

    def __init__(self, output: Output, session: Session) -> None:
        self._output = output
        self._session = session
        self._live = not output.as_json and not output.quiet and output.console.is_terminal
        self._news: deque[Entry] = deque(maxlen=_KEPT)
        self._stack = ExitStack()

    def __enter__(self) -> Screen:
        if self._live:
            self._stack.enter_context(self._output.console.screen(hide_cursor=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if self._live:
            for entry in self._news:  # what was last seen stays in the scrollback
                self._output.line(_words(entry))

    def show(self, step: Step) -> None:
        """Show what is new."""
        self._news.extend(step.news)
        if self._live:
            self._repaint(step)
            return
        for entry in step.news:
            if self._output.as_json:
                self._output.text(json.dumps({"schema_version": SCHEMA_VERSION, **document(entry)}) + "\n")
            else:
                self._output.line(_words(entry))
        if step.trouble:
            self._output.message(f"no cycle: {step.trouble}")
        self._output.flush()

    def _repaint(self, step: Step) -> None:
        from iris_cli.render.status import ended_jobs, show_cluster
        from iris_cli.render.tables import text

        console = self._output.console
        console.clear()
        show_cluster(
            self._output, cluster_status(self._session, ended=ended_jobs(self._output)), everything=False
        )
        console.print()
        for entry in self._news:
            self._output.show(text(_words(entry)))
        if step.trouble:
            self._output.show(text(f"no cycle: {step.trouble}", "yellow"))


def _words(entry: Entry) -> str:
    from iris_cli.render.tables import clock_time

    return f"{clock_time(entry.at)}  {entry.text}"
