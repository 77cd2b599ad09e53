"""A tar file that somebody else says was packed as ours are: whether that is so, seen as it comes by.

It is taken only if it is as we would have made it, byte for byte: files and links, that stay inside. So no worker has
to refuse it, which would count against the worker.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from itertools import pairwise

from iris_cli.core.ids import clip
from iris_cli.ops.workspace.archive import (
    BLOCK,
    END_SIZE,
    FILE,
    LINK,
    LONG_NAME,
    LONG_TARGET,
    Entry,
    oddity,
    padded,
)
from iris_cli.ops.workspace.selection import MOST_FILES

_LONGEST = 4096  # bytes of a name, or of the target of a link
_LONGEST_PART = 255  # bytes between two slashes
_MOST_NAMES = 64 << 20  # bytes of all names, for they are held


class OddTarError(Exception):
    """It is none that we would have made; the message says why."""


class TarCheck:
    """Give it all pieces in order, then `end` it; either raises OddTarError."""

    def __init__(self) -> None:
        self._names: list[bytes] = []
        self._room = _MOST_NAMES
        self._is_over = False
        self._reading = self._entries()
        self._wanted = next(self._reading)  # bytes that come next; a negative number of them only passes by
        self._held, self._come = b"", 0  # of these

    def feed(self, data: bytes) -> None:
        place = 0
        while place < len(data):
            step = min(abs(self._wanted) - self._come, len(data) - place)
            if self._wanted > 0:
                self._held += data[place : place + step]
            place, self._come = place + step, self._come + step
            if self._come == abs(self._wanted):
                held, self._held, self._come = self._held, b"", 0
                self._wanted = self._reading.send(held)

    def end(self) -> None:
        """Nothing follows."""
        if not self._is_over:
            raise OddTarError("it has no end")
        # What lies in a directory follows on its name at once, as no name holds a NUL.
        names = sorted(name.replace(b"/", b"\0") + b"\0" for name in self._names)
        for first, second in pairwise(names):
            if second.startswith(first):
                name = first[:-1].replace(b"\0", b"/")
                raise OddTarError(f"it holds {clip(os.fsdecode(name))} twice, or as a directory, too")

    def _entries(self) -> Generator[int, bytes]:
        said, long = b"", dict[bytes, bytes]()  # what came of an entry before its own block
        while any(block := (yield BLOCK)):
            kind = block[156:157]
            if kind in (LONG_NAME, LONG_TARGET):
                size = _size(block)
                if kind in long or not 0 < size <= _LONGEST + 1:
                    raise OddTarError("it holds a name that is too long")
                text = yield padded(size)
                said, long[kind] = said + block + text, text[: size - 1]
                continue
            entry = _entry(block, long)
            if entry.header != said + block:
                raise OddTarError(f"it says something of {clip(entry.name)} that iris doesn't")
            self._take(entry)
            said, long = b"", {}
            if entry.size:
                yield -padded(entry.size)
        if said or any((yield END_SIZE - BLOCK)):
            raise OddTarError("it has no end")
        self._is_over = True
        yield 1
        raise OddTarError("something follows its end")

    def _take(self, entry: Entry) -> None:
        name = os.fsencode(entry.name)
        if what := oddity(entry):
            raise OddTarError(f"it holds {what}: {clip(entry.name)}")
        for part in name.split(b"/"):
            if part in (b"", b".", b"..") or len(part) > _LONGEST_PART:
                raise OddTarError(f"it holds a name that leads out of it, or to nowhere: {clip(entry.name)}")
        self._names.append(name)
        self._room -= len(name)
        if len(self._names) > MOST_FILES or self._room < 0:
            raise OddTarError(f"it holds more than {MOST_FILES} files, or too many long names")


def _entry(block: bytes, long: Mapping[bytes, bytes]) -> Entry:
    """What a block says of a file or a link, whose name may have been too long for it."""
    name, prefix = _text(block[:100]), _text(block[345:500])
    name = long.get(LONG_NAME, prefix + b"/" + name if prefix else name)
    kind, target = block[156:157], None
    if kind == LINK:
        target = os.fsdecode(long.get(LONG_TARGET, _text(block[157:257])))
    elif kind != FILE:
        raise OddTarError(f"it holds something that is no file and no link: {clip(os.fsdecode(name))}")
    return Entry(
        name=os.fsdecode(name), size=_size(block), executable=block[100:107] == b"0000755", target=target
    )


def _text(field: bytes) -> bytes:
    return field.rstrip(b"\0")


def _size(block: bytes) -> int:
    try:
        size = int(block[124:135], 8)
    except ValueError:
        size = -1
    if size < 0:
        raise OddTarError("it holds something of no size")
    return size
