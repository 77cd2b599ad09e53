"""Text from workers, users and files on its way to a terminal: data, never instructions."""

from __future__ import annotations

import unicodedata

_KEPT = {"\n", "\t"}
# Controls, formats (bidirectional overrides), surrogates, private use, line and paragraph separators.
_DANGEROUS = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def clean(text: str) -> str:
    """`text` with every control character made visible; line feeds and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each in _KEPT or not _is_dangerous(each) else _visible(each) for each in text)


def clean_line(text: str) -> str:
    """The same in one line."""
    return clean(text).replace("\n", "⏎").replace("\t", " ")


def _is_dangerous(character: str) -> bool:
    return unicodedata.category(character) in _DANGEROUS


def _visible(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
