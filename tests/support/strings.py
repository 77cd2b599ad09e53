"""Random strings for environments, from a seed: all bytes except NUL, and all characters that are special to shells."""

from __future__ import annotations

import random
from collections.abc import Iterator

_PIECES = (
    *map(chr, range(1, 0x80)),
    *"äß–日🧪\u2028\ufeff\u0301\u0085",
    *("$(id)", "`id`", "${HOME}", "$HOME", "$((1))", "$'\\n'", "~", "!!", "%s", "%%", "\\0", "\\x41", "\\\n"),
    *("'\\''", "'\"'\"'", "\"'", "<<EOF\n", "\nEOF\n", "}\n", "\n.\n", "\r\n", "\\", "\\\\", "=", "A=", "-n"),
)


def strings(seed: int, count: int) -> Iterator[str]:
    """Yield `count` strings of up to a hundred pieces, mostly short."""
    rng = random.Random(seed)
    for _ in range(count):
        length = rng.choice((0, 1, 2, 3, 5, 8, 13, 100))
        yield "".join(rng.choice(_PIECES) for _ in range(length))
