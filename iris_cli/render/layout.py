"""Layout of lines and tables. Loading rich takes long, so this module lays out plain output itself.

Output is plain if it does not go to a terminal, each character takes one column, and no line is too long. For plain
output, rich would print exactly the same bytes. rich lays out all other output.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    import rich.console
    import rich.table
    import rich.text

Renderable: TypeAlias = "rich.console.RenderableType"
ELLIPSIS = "…"  # in folded names; one column wide, also for rich
_GAP = 2  # blanks between columns


class Text(Struct, frozen=True):
    """Pieces of text with their styles, on one line or several."""

    pieces: tuple[tuple[str, str], ...]
    no_wrap: bool = False

    @classmethod
    def assemble(cls, *parts: Text | str | tuple[str, str]) -> Text:
        pieces: list[tuple[str, str]] = []
        for part in parts:
            if isinstance(part, Text):
                pieces += part.pieces
            else:
                pieces.append((part, "") if isinstance(part, str) else part)
        return cls(tuple(pieces))

    @property
    def content(self) -> str:
        return "".join(piece for piece, _ in self.pieces)

    def lines(self, width: int) -> list[str] | None:
        """Return the lines; None if rich must lay them out."""
        lines = self.content.split("\n")
        return lines if all(len(line) <= width and _is_plain(line) for line in lines) else None

    def __rich__(self) -> rich.text.Text:
        from rich.text import Text as RichText

        if len(self.pieces) == 1:
            ((content, style),) = self.pieces
            return RichText(content, style=style, no_wrap=self.no_wrap or None, overflow="fold", tab_size=4)
        return RichText.assemble(*self.pieces, no_wrap=self.no_wrap or None, overflow="fold")


class Table(Struct, frozen=True, kw_only=True):
    """Cells in columns. `styles`: the style of each column; only used without `headers`."""

    rows: Sequence[Sequence[Text]]
    headers: Sequence[str] = ()
    right: Sequence[bool] = ()  # for each column, True if it is aligned right
    styles: Sequence[str] = ()

    def lines(self, width: int) -> list[str] | None:
        """Return the lines; None if rich must lay them out."""
        lines = [list(self.headers)] if self.headers else []
        lines += [[cell.content for cell in row] for row in self.rows]
        if not (lines and lines[0] and all(_is_plain(cell) for line in lines for cell in line)):
            return None
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        if sum(widths) + _GAP * (len(widths) - 1) > width:
            return None
        right = self.right or (False,) * len(widths)
        return [
            (" " * _GAP).join(
                cell.rstrip().rjust(column_width) if is_right else cell.ljust(column_width)
                for cell, column_width, is_right in zip(line, widths, right, strict=True)
            )
            for line in lines
        ]

    def __rich__(self) -> rich.table.Table:
        from rich.table import Table as RichTable
        from rich.text import Text as RichText

        padding = (0, _GAP, 0, 0)
        if self.headers:
            laid_out_table = RichTable(
                box=None, pad_edge=False, padding=padding, header_style="dim", show_edge=False
            )
            for header, right in zip(self.headers, self.right, strict=True):
                laid_out_table.add_column(
                    RichText(header), justify="right" if right else "left", overflow="fold"
                )
        else:
            laid_out_table = RichTable.grid(padding=padding, pad_edge=False)
            for style in self.styles:
                laid_out_table.add_column(style=style, overflow="fold")
        for row in self.rows:
            laid_out_table.add_row(*row)
        return laid_out_table


def _is_plain(line: str) -> bool:
    """Return whether each character takes one column and is printable."""
    return line.isprintable() and (line.isascii() or line.replace(ELLIPSIS, "").isascii())


# Escaping of untrusted text: from workers, users and files.


# Controls, formats (bidirectional overrides), surrogates, private use, line and paragraph separators.
_DANGEROUS = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_PLAIN = bytes(range(0x20, 0x7F)) + b"\n\t"


def clean(text: str) -> str:
    """Return `text` with every control character made visible, except line feeds and tabs. Fast for clean text."""
    if text.isascii():
        is_plain = not text.encode("ascii").translate(None, _PLAIN)
    else:
        is_plain = text.replace("\n", "").replace("\t", "").isprintable()
    return text if is_plain else "".join(map(_visible, text))


def clean_line(text: str) -> str:
    """Return `text` on one line, with every control character made visible."""
    return clean(text).replace("\n", "⏎").replace("\t", " ")


@cache
def _visible(character: str) -> str:
    import unicodedata  # slow to import, and most text is ASCII

    if character in "\n\t" or unicodedata.category(character) not in _DANGEROUS:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
