"""Calm tables: no boxes, one blank between columns, nothing from outside read as markup or as an escape."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.table import Table
from rich.text import Text

from iris_cli.core.units import format_duration
from iris_cli.journal.timestamps import iso_time
from iris_cli.render.clean import clean, clean_line
from iris_cli.render.fold import fold

if TYPE_CHECKING:
    from rich.console import JustifyMethod

T = TypeVar("T")

NARROW = 80
"""Below this width, in columns, tables leave out what can be done without."""

STYLES = {
    "RUNNING": "green",
    "SUCCEEDED": "dim",
    "FAILED": "bold red",
    "WORKER_FAILED": "red",
    "UNSCHEDULABLE": "bold red",
    "KILLED": "dim",
    "PENDING": "yellow",
    "ASSIGNED": "cyan",
    "STOPPING": "yellow",
    "healthy": "green",
    "lost": "bold red",
    "untrusted": "bold red",
    "auth_failed": "red",
    "quarantined": "red",
    "unusable": "red",
    "suspect": "yellow",
    "cooling": "yellow",
    "stopping": "yellow",
}


_RIGHT = frozenset({"AGE", "RAN", "FREE", "TRY", "SEQ"})
_COLOURED = frozenset({"STATE", "STATUS"})

Row = tuple[str, ...]


def table(headers: Sequence[str], rows: Iterable[Row], *, only: Collection[str] = ()) -> Table:
    """A table of one-line cells. `only` names the columns to show where not all of them find room.

    A column in which no row has anything is left out.
    """
    rows = list(rows)
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    shown = [
        (place, header)
        for place, header in enumerate(headers)
        if (not only or header in only) and any(row[place] for row in rows)
    ]
    for _, header in shown:
        justify: JustifyMethod = "right" if header in _RIGHT else "left"
        made.add_column(Text(header), justify=justify, overflow="fold")
    for row in rows:
        made.add_row(
            *(state(row[place]) if header in _COLOURED else text(row[place]) for place, header in shown)
        )
    return made


def folded(rows: Iterable[T], name: Callable[[T], str], cells: Callable[[T], Row]) -> list[Row]:
    """One line for all rows that differ in nothing but their names; the names are the first cell."""
    alike: dict[Row, list[str]] = {}
    for row in rows:
        alike.setdefault(cells(row), []).append(name(row))
    return [(fold(names), *line) for line, names in alike.items()]


def facts(pairs: Iterable[tuple[str, str]]) -> Table:
    """What is known, one fact a line; facts without content are left out."""
    made = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    made.add_column(style="dim", overflow="fold")
    made.add_column(overflow="fold")
    for label, content in pairs:
        if content:
            made.add_row(text(label), text(content))
    return made


def text(content: str, style: str = "") -> Text:
    """One line of anything."""
    return Text(clean_line(content), style=style, overflow="fold")


def block(content: str, style: str = "") -> Text:
    """Several lines of anything."""
    return Text(clean(content), style=style, overflow="fold", tab_size=4)


def state(word: str) -> Text:
    """A state or condition in its colour."""
    return Text(clean_line(word), style=STYLES.get(word, ""), no_wrap=True)


def clock_time(at: float | None) -> str:
    """`2026-11-20 14:03:09`, in UTC; '' for what has not happened."""
    if at is None:
        return ""
    try:
        return iso_time(at)[:19].replace("T", " ")
    except OverflowError:
        return "?"


def duration(seconds: float | None) -> str:
    """`2h10m`; '' for what never began."""
    return "" if seconds is None else format_duration(seconds)
