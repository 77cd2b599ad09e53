"""Text from workers, users and files on its way to a terminal: data, never instructions."""

from __future__ import annotations

# Controls, formats (bidirectional overrides), surrogates, private use, line and paragraph separators.
_DANGEROUS = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_PLAIN = bytes(range(0x20, 0x7F)) + b"\n\t"


def clean(text: str) -> str:
    """`text` with every control character made visible; line feeds and tabs stay.

    Text of which nothing has to be changed, a megabyte a second of it, takes a few milliseconds.
    """
    if text.isascii():
        is_plain = not text.encode("ascii").translate(None, _PLAIN)
    else:
        is_plain = text.replace("\n", "").replace("\t", "").isprintable()
    return text if is_plain else text.translate(_SHOWN)


def clean_line(text: str) -> str:
    """The same in one line."""
    return clean(text).replace("\n", "⏎").replace("\t", " ")


class _Shown(dict[int, str]):
    """How each character is shown, found out when it is met first."""

    def __missing__(self, code: int) -> str:
        import unicodedata  # a megabyte of tables, and most text is ASCII

        character = chr(code)
        shown = self[code] = _visible(code) if unicodedata.category(character) in _DANGEROUS else character
        return shown


def _visible(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_SHOWN = _Shown({ord(each): each for each in "\n\t"})
