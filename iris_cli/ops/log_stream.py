"""One output file of one attempt, read over the network piece by piece, handed on line by line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from iris_cli.core.dataclass import dataclass, field
from iris_cli.core.observations import Silence

if TYPE_CHECKING:
    from iris_cli.remote.task_runner import LogChunk

FIRST = 32 << 10  # bytes from the end that hold the last lines of most programs
PIECE = 256 << 10  # bytes per call
LONGEST = 64 << 10  # bytes of a line: a program that never ends its line must not fill our memory
TURN = 4 << 20  # bytes that one file may take before the others have their turn
FARTHEST = 16 << 20  # bytes to go back for the last lines

Fetch = Callable[[int, int], "LogChunk | Silence"]
"""Reads at most so many bytes (second) from an offset (first); a negative one counts from the end."""


@dataclass
class LineCutter:
    """Cuts a stream of bytes into lines of text, the same ones however the bytes are divided.

    What isn't a whole line yet is held back. A line beyond LONGEST is cut, between characters. Of a line that
    a progress bar wrote over again and again only the last state is left, as on a terminal.
    """

    held: bytes = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that these bytes complete."""
        *whole, last = (self.held + data).split(b"\n")
        lines = []
        for line in whole:
            *pieces, end = _pieces(line)
            lines += [_text(each) for each in (*pieces, end)]
        *pieces, self.held = _pieces(last)
        return lines + [_text(each) for each in pieces]

    def rest(self) -> list[str]:
        """What was held back: no more will come."""
        held, self.held = self.held, b""
        return [_text(held)] if held else []


def _pieces(line: bytes) -> list[bytes]:
    pieces = []
    while len(line) > LONGEST:
        cut = LONGEST
        while cut > LONGEST - 4 and line[cut] & 0xC0 == 0x80:  # inside a character of UTF-8
            cut -= 1
        pieces.append(line[:cut])
        line = line[cut:]
    return [*pieces, line]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]


@dataclass(frozen=True, slots=True)
class Read:
    """What one turn of reading brought. `silence` is why it brought no more, if so."""

    lines: list[str]
    at_end: bool = True
    silence: Silence | None = None


@dataclass
class LogStream:
    """How far one file has been read. `offset` counts the bytes seen, those that are held back too."""

    offset: int = 0
    inode: int = 0
    cutter: LineCutter = field(default_factory=LineCutter)

    def read_last(self, fetch: Fetch, count: int) -> Read:
        """The last `count` whole lines there are; reading goes on behind them."""
        found = fetch(-FIRST, FIRST)
        if isinstance(found, Silence):
            return Read([], at_end=False, silence=found)
        start, data = found.offset, found.data
        if start + len(data) < found.size or (start and data.count(b"\n") <= count):
            seen = _last_bytes(fetch, found.size, count)
            if isinstance(seen, Silence):
                return Read([], at_end=False, silence=seen)
            start, data = seen
        self.inode, self.offset = found.inode, start + len(data)
        if start and b"\n" in data:
            data = data.partition(b"\n")[2]  # it begins anywhere: what is left of a line there is none
        lines = self.cutter.feed(data)
        return Read(lines[max(0, len(lines) - count) :])

    def read_on(self, fetch: Fetch) -> Read:
        """The lines completed since, at most about TURN bytes of them."""
        lines: list[str] = []
        taken = 0
        while taken < TURN:
            chunk = fetch(self.offset, PIECE)
            if isinstance(chunk, Silence):
                return Read(lines, at_end=False, silence=chunk)
            if chunk.size < self.offset or (self.inode and chunk.inode != self.inode):
                lines += self.cutter.rest()  # another file is in its place: it begins at its beginning
                self.offset, self.inode = 0, chunk.inode
                taken += PIECE  # a worker that says so for ever must not hold us
                continue
            self.inode = chunk.inode
            self.offset += len(chunk.data)
            taken += len(chunk.data)
            lines += self.cutter.feed(chunk.data)
            if not chunk.data or self.offset >= chunk.size:
                return Read(lines)
        return Read(lines, at_end=False)


def _last_bytes(fetch: Fetch, size: int, count: int) -> tuple[int, bytes] | Silence:
    """The end of a file of `size` bytes: so much that `count` whole lines are in it, within reason.

    With the offset at which it begins.
    """
    window = FIRST
    while True:
        window *= 4
        start = max(0, size - window)
        data = _range(fetch, start, size)
        if isinstance(data, Silence):
            return data
        if not start or data.count(b"\n") > count or window >= FARTHEST:
            return start, data


def _range(fetch: Fetch, start: int, end: int) -> bytes | Silence:
    data = b""
    while start + len(data) < end:
        chunk = fetch(start + len(data), min(PIECE, end - start - len(data)))
        if isinstance(chunk, Silence):
            return chunk
        if not chunk.data:
            break  # it became shorter under our hands
        data += chunk.data
    return data
