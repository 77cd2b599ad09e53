"""Pieces of HTML. Text from outside is data: nothing of it becomes a tag, an escape or a script."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from msgspec import Struct

from iris_cli.render.clean import clean_line

_N = ' class="n"'


class Cell(Struct, frozen=True):
    """One cell of a table: its text, what it is sorted by if not by that, and a class of the style sheet."""

    text: str
    key: float | None = None
    kind: str = ""


def safe(text: str) -> str:
    """Text between tags or in an attribute, with controls made visible."""
    return escape(clean_line(text))


def table(headers: Sequence[str], rows: Iterable[Sequence[Cell]], *, name: str = "") -> str:
    """A table. Columns whose cells have keys are numbers; those in which no row has anything are left out."""
    rows = list(rows)
    shown = [place for place in range(len(headers)) if any(row[place].text for row in rows)]
    numbers = {place for place in shown if any(row[place].key is not None for row in rows)}
    head = "".join(
        f'<th scope="col"{_N if place in numbers else ""}>{safe(headers[place])}</th>' for place in shown
    )
    body = "\n".join(f"<tr>{''.join(_cell(row[place]) for place in shown)}</tr>" for row in rows)
    named = f' id="{name}"' if name else ""
    return f'<div class="wide"><table{named}><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def embedded(content: Any) -> str:
    """JSON for a script element: no text in it can end that, or begin a comment."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    for each in "<>&":
        text = text.replace(each, f"\\u{ord(each):04x}")
    return text


def _cell(cell: Cell) -> str:
    kind = " ".join(filter(None, (cell.kind, "n" if cell.key is not None else "")))
    named = f' class="{kind}"' if kind else ""
    key = f' data-key="{cell.key:.10g}"' if cell.key is not None else ""
    return f"<td{named}{key}>{safe(cell.text)}</td>"
