"""All output of commands: results on stdout, messages on stderr. Control characters are made visible."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct

from iris_cli.render.layout import Renderable, Table, Text, clean, clean_line

if TYPE_CHECKING:
    from rich.console import Console

    from iris_cli.ops.session import GetProgress

_COLOUR_SWITCHES = {"FORCE_COLOR", "TTY_COMPATIBLE"}  # variables with which rich treats a pipe as a terminal


class Output(Struct, dict=True):
    """Output of one invocation. `as_json`: print one JSON document. `quiet`: print only names, and warnings."""

    as_json: bool = False
    quiet: bool = False
    color: bool = True
    compact_json: bool = False  # print each JSON document on one line
    _before_results: Callable[[], None] = lambda: None
    _before_messages: Callable[[], None] = lambda: None

    @cached_property
    def console(self) -> "Console":
        from rich.console import Console

        has_colors = self.color and not os.environ.get("NO_COLOR")
        return Console(
            no_color=not has_colors,
            highlight=False,
            markup=False,
            emoji=False,
            width=_width(),
            soft_wrap=False,
        )

    @property
    def width(self) -> int:
        """Width of the output in columns."""
        return _width() or self.console.width

    def show(self, *parts: Renderable) -> None:
        """Print tables and Texts, one below the other."""
        self._before_results()
        for part in parts:
            if sys.stdout.isatty() or not _COLOUR_SWITCHES.isdisjoint(os.environ):
                self.console.print(part)
                continue
            lines = part.lines(self.width) if isinstance(part, Table | Text) else None
            if lines is None:
                with self.console.capture() as captured:
                    self.console.print(part)
                lines = captured.get().splitlines()
            # Remove the padding of the last cell.
            sys.stdout.write("".join(f"{line.rstrip(' ')}\n" for line in lines))

    def view(
        self,
        view: Struct,
        messages: Sequence[str],
        names: Iterable[str],
        draw: Callable[[], Iterable[Renderable]],
    ) -> None:
        """Print a view: as JSON with --json, `names` and `messages` with --quiet, otherwise the parts from `draw`."""
        if self.as_json:
            self.document(view)
        elif self.quiet:
            self.warnings(messages)
            for name in names:
                self.line(name)
        else:
            self.show(*draw())

    def line(self, text: str = "") -> None:
        """Print one line of a result to stdout."""
        self._before_results()
        sys.stdout.write(clean_line(text) + "\n")

    def done(self, text: str) -> None:
        """Print one line about a completed action. Silent with --quiet."""
        if not self.quiet:
            self.line(text)

    def failed(self, text: str) -> None:
        """Print one line about a failure or a loss: to stdout, or with --quiet to stderr."""
        if self.quiet:
            self.warning(text)
        else:
            self.line(text)

    def lines(self, text: str, prefix: str = "") -> None:
        """Print text of whole lines, with control characters made visible. Print `prefix` before each line."""
        self._before_results()
        text = clean(text)
        if prefix:
            text = prefix + text.replace("\n", "\n" + prefix, text.count("\n") - 1)
        sys.stdout.write(text)

    def document(self, content: Struct) -> None:
        """Print a result as JSON, the only output on stdout. docs/json.md lists the types of results."""
        from iris_cli.render.as_json import json_text

        sys.stdout.write(json_text(content, None if self.compact_json else 2) + "\n")

    def message(self, text: str) -> None:
        """Print progress or a hint to stderr. Silent with --quiet."""
        if not self.quiet:
            self.warning(text)

    def warning(self, text: str) -> None:
        """Print a warning to stderr, even with --quiet."""
        self._before_messages()
        sys.stderr.write(clean_line(text) + "\n")

    def warnings(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.warning(text)

    def progress(self, get_progress: "GetProgress") -> AbstractContextManager[None]:
        """Return a context that shows a progress line, if stderr is a terminal. --json and --quiet show no line."""
        if self.as_json or self.quiet or not is_screen(sys.stderr):
            return nullcontext()
        from iris_cli.render.progress import LINE

        self._before_messages = LINE.wipe
        if sys.stdout.isatty():
            self._before_results = LINE.wipe
        return LINE(get_progress)

    def flush(self) -> None:
        sys.stdout.flush()


def is_screen(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that can erase printed text."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("", "dumb", "unknown")


def is_in_foreground() -> bool:
    """Return whether this process group is in the foreground of the terminal and may paint on it."""
    try:
        return os.tcgetpgrp(sys.stdout.fileno()) == os.getpgrp()
    except OSError:
        return True  # the process has no controlling terminal


def _width() -> int | None:
    """Return the width in columns; None if the terminal's width applies."""
    if sys.stdout.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    # Lines in a pipe or a file may be long. The reader gets all text.
    return int(columns) if columns.isdecimal() and int(columns) > 0 else 200
