"""The only door to the terminal. Results go to stdout, messages to stderr, and never a stray escape."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct

from iris_cli.render.layout import Group, Renderable, Table, Text, clean, clean_line

if TYPE_CHECKING:
    from rich.console import Console

    from iris_cli.ops.progress import HowFar

_COLOUR_SWITCHES = {"FORCE_COLOR", "TTY_COMPATIBLE"}  # with these rich takes a pipe for a terminal


def _nothing() -> None:
    return None


class Output(Struct, dict=True):
    """How this invocation speaks: as JSON, as tables, or quietly."""

    as_json: bool = False
    quiet: bool = False
    color: bool = True
    in_lines: bool = False  # JSON was printed one object a line: so is what follows
    _before_results: Callable[[], None] = _nothing
    _before_messages: Callable[[], None] = _nothing

    @cached_property
    def console(self) -> Console:
        from rich.console import Console

        wanted = self.color and not os.environ.get("NO_COLOR")
        return Console(
            no_color=not wanted, highlight=False, markup=False, emoji=False, width=_width(), soft_wrap=False
        )

    @property
    def width(self) -> int:
        """In characters."""
        return _width() or self.console.width

    def show(self, renderable: Renderable) -> None:
        """A table or a Text, for a person."""
        self._before_results()
        if _may_have_colours():
            self.console.print(renderable)
            return
        lines = renderable.lines(self.width) if isinstance(renderable, Group | Table | Text) else None
        if lines is None:
            with self.console.capture() as captured:
                self.console.print(renderable)
            lines = captured.get().removesuffix("\n").split("\n")
        # What stands at the end of a line may have been filled up to the width of its column.
        sys.stdout.write("".join(f"{line.rstrip(' ')}\n" for line in lines))

    def view(
        self,
        view: Struct,
        messages: Sequence[str],
        names: Iterable[str],
        draw: Callable[[], Iterable[Renderable]],
    ) -> None:
        """A view as JSON; with --quiet the names in it, and what is wrong with the log; else drawn for a person."""
        if self.as_json:
            self.document(view)
        elif self.quiet:
            self.warnings(messages)
            for name in names:
                self.line(name)
        else:
            for part in draw():
                self.show(part)

    def line(self, text: str = "") -> None:
        """One line of a result."""
        self._before_results()
        sys.stdout.write(clean_line(text) + "\n")

    def done(self, text: str) -> None:
        """Print one line about what an action did. With --quiet the exit code says it."""
        if not self.quiet:
            self.line(text)

    def failed(self, text: str) -> None:
        """Print one line about what an action could not do, or lost. With --quiet it goes to stderr."""
        if self.quiet:
            self.warning(text)
        else:
            self.line(text)

    def text(self, text: str) -> None:
        """Text of several lines, as it is but for control characters."""
        self._before_results()
        sys.stdout.write(clean(text))

    def lines(self, text: str, prefix: str = "") -> None:
        """Whole lines of somebody else's, each behind a prefix of ours."""
        self._before_results()
        text = clean(text)
        if prefix:
            text = prefix + text.replace("\n", "\n" + prefix, text.count("\n") - 1)
        sys.stdout.write(text)

    def document(self, content: Struct) -> None:
        """A result as JSON, alone on stdout. docs/json.md has the types; `scripts/json_schema.py` lists them."""
        from iris_cli.render.as_json import json_text

        sys.stdout.write(json_text(content, None if self.in_lines else 2) + "\n")

    def message(self, text: str) -> None:
        """Print progress or a hint to stderr. Silent with --quiet."""
        if not self.quiet:
            self.warning(text)

    def warning(self, text: str) -> None:
        """Print a warning to stderr, also with --quiet: something failed, was lost, or was not done."""
        self._before_messages()
        sys.stderr.write(clean_line(text) + "\n")

    def warnings(self, texts: Iterable[str]) -> None:
        """Print several warnings."""
        for text in texts:
            self.warning(text)

    def progress(self, how_far: HowFar) -> AbstractContextManager[None]:
        """Around what may take long: a line about it comes and goes on a terminal, and nowhere else."""
        if self.as_json or self.quiet or not is_screen(sys.stderr):
            return nullcontext()
        from iris_cli.render.progress import LINE

        self._before_messages = LINE.wipe
        if sys.stdout.isatty():
            self._before_results = LINE.wipe
        return LINE(how_far)

    def flush(self) -> None:
        sys.stdout.flush()


def is_screen(stream: TextIO) -> bool:
    """Whether it is a terminal on which something that was written can be taken away again."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("", "dumb", "unknown")


def _may_have_colours() -> bool:
    return sys.stdout.isatty() or not _COLOUR_SWITCHES.isdisjoint(os.environ)


def _width() -> int | None:
    """In characters; None is that of the terminal."""
    if sys.stdout.isatty():
        return None
    said = os.environ.get("COLUMNS", "")
    # Where nobody reads a terminal the width is generous: a pipe must not lose the end of a line.
    return int(said) if said.isdecimal() and int(said) > 0 else 200
