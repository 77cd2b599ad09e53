"""The only door to the terminal. Results go to stdout, messages to stderr, and never a stray escape."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from iris_cli.core.dataclass import dataclass
from iris_cli.render.clean import clean, clean_line
from iris_cli.render.layout import Group, Table, Text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

SCHEMA_VERSION = 1
_COLOUR_SWITCHES = {"FORCE_COLOR", "TTY_COMPATIBLE"}  # with these rich takes a pipe for a terminal


@dataclass
class Output:
    """How this invocation speaks: as JSON, as tables, or quietly."""

    as_json: bool = False
    quiet: bool = False
    color: bool = True

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

    def show(self, renderable: RenderableType) -> None:
        """A table or a Text, for a person."""
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

    def line(self, text: str = "") -> None:
        """One line of a result."""
        sys.stdout.write(clean_line(text) + "\n")

    def text(self, text: str) -> None:
        """Text of several lines, as it is but for control characters."""
        sys.stdout.write(clean(text))

    def lines(self, text: str, prefix: str = "") -> None:
        """Whole lines of somebody else's, each behind a prefix of ours."""
        text = clean(text)
        if prefix:
            text = prefix + text.replace("\n", "\n" + prefix, text.count("\n") - 1)
        sys.stdout.write(text)

    def document(self, content: Mapping[str, Any]) -> None:
        """A result as JSON, alone on stdout."""
        sys.stdout.write(json.dumps({"schema_version": SCHEMA_VERSION, **content}, indent=2) + "\n")

    def message(self, text: str) -> None:
        """Something to know beside the result. Silent with --quiet."""
        if not self.quiet:
            sys.stderr.write(clean_line(text) + "\n")

    def flush(self) -> None:
        sys.stdout.flush()


def _may_have_colours() -> bool:
    return sys.stdout.isatty() or not _COLOUR_SWITCHES.isdisjoint(os.environ)


def _width() -> int | None:
    """In characters; None is that of the terminal."""
    if sys.stdout.isatty():
        return None
    said = os.environ.get("COLUMNS", "")
    # Where nobody reads a terminal the width is generous: a pipe must not lose the end of a line.
    return int(said) if said.isdecimal() and int(said) > 0 else 200
