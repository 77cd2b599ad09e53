"""Log reading: one output file of an attempt, read in pieces over the network, returned in whole lines."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from iris_cli.core import Attempt, AttemptId, Cluster, WorkerId
from iris_cli.core.messages.observations import Silence
from iris_cli.core.work_paths import relative_paths
from iris_cli.ops.session import Session
from iris_cli.remote.task_runner import LogChunk, LogPiece

R = TypeVar("R")

FIRST = 32 << 10  # bytes from the end that hold the last lines of most programs
PIECE = 512 << 10  # bytes per call
LONGEST = 64 << 10  # bytes of a line: a program that never ends its line must not fill our memory
FARTHEST = 16 << 20  # bytes to go back for the last lines


Asking = Generator[tuple[int, int], "LogChunk", R]


class LineCutter(Struct):
    """Cutter of a byte stream into whole lines of text, independent of how the bytes are divided.

    An incomplete line is held back. A line beyond LONGEST is cut, between characters. Of a line that a
    progress bar overwrote only the last state is kept, as on a terminal. Lines are processed in bulk where
    possible: there may be tens of thousands per second.
    """

    held: bytes = b""

    def feed(self, data: bytes) -> str:
        """Return the lines that these bytes complete, each with its line feed."""
        data = self.held + data
        end = data.rfind(b"\n") + 1
        *pieces, self.held = _pieces(data[end:])
        return _text(_short_lines(data[:end]) + b"".join(piece + b"\n" for piece in pieces))

    def rest(self) -> str:
        """Return the held-back text as a line, once no more bytes will come."""
        held, self.held = self.held, b""
        return _text(held + b"\n") if held else ""


def _short_lines(lines: bytes) -> bytes:
    """Return the lines with long ones cut. Long lines are rare, so the search advances in steps of LONGEST."""
    place = 0
    while len(lines) - place > LONGEST:
        end = lines.rfind(b"\n", place, place + LONGEST + 1)
        if end < 0:
            cut = (b"\n".join(_pieces(line)) + b"\n" for line in lines[place:-1].split(b"\n"))
            return lines[:place] + b"".join(cut)
        place = end + 1
    return lines


def _pieces(line: bytes) -> list[bytes]:
    pieces = []
    while len(line) > LONGEST:
        cut = LONGEST
        while cut > LONGEST - 4 and line[cut] & 0xC0 == 0x80:  # inside a UTF-8 character
            cut -= 1
        pieces.append(line[:cut])
        line = line[cut:]
    return [*pieces, line]


def _text(lines: bytes) -> str:
    text = lines.decode("utf-8", "replace")
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


class LogStream:
    """Read position in one file; `tail`: begin with its last `tail` whole lines, None for all of it.

    Request `wanted`, pass the answer to `take`. `wanted` changes only after an answer, so missing answers
    neither lose nor repeat lines.
    """

    def __init__(self, tail: int | None = None) -> None:
        self.offset = 0  # bytes received, including held-back ones
        self.inode = 0
        self.at_end = False  # True if the last answer reached the end of the file
        self.replaced = False  # True if the file was replaced or truncated: reading restarts
        self.cutter = LineCutter()
        self._text = ""
        self._was_replaced = False
        self._asking = self._ask(tail)
        self.wanted = next(self._asking)
        """Offset (negative: from the end) and maximum number of bytes of the next request."""

    def take(self, chunk: LogChunk) -> str:
        """Return the lines that this answer completes; it may have fewer bytes than requested."""
        self._text = ""
        self._was_replaced, self.replaced = self.replaced, False
        self.wanted = self._asking.send(chunk)
        return self._text

    def _ask(self, tail: int | None) -> Asking[None]:
        if tail is not None:
            yield from self._ask_for_last(tail)
        while True:
            self._go_on((yield self.offset, PIECE))

    def _go_on(self, chunk: LogChunk) -> None:
        if not chunk.inode:
            self.at_end = True  # missing; if it comes back it may be the same file
        elif chunk.size < self.offset or (self.inode and chunk.inode != self.inode):
            self._text = self.cutter.rest()
            self.offset, self.inode, self.replaced = 0, chunk.inode, True
            self.at_end = self._was_replaced  # a worker that always reports this must not hold us
        else:
            self._text = self.cutter.feed(chunk.data)
            self.offset, self.inode = self.offset + len(chunk.data), chunk.inode
            self.at_end = not chunk.data or self.offset >= chunk.size

    def _ask_for_last(self, count: int) -> Asking[None]:
        """Read enough of the end to contain these lines, up to FARTHEST bytes. Later reads continue from there."""
        found = yield -FIRST, FIRST
        start, data, window = found.offset, found.data, FIRST
        while start + len(data) < found.size or (start and data.count(b"\n") <= count):
            window *= 4
            start = max(0, found.size - window)
            data = yield from self._ask_for(start, found.size)
            if window >= FARTHEST:
                break
        self.inode, self.offset, self.at_end = found.inode, start + len(data), True
        if start and b"\n" in data:
            data = data.partition(b"\n")[2]  # starts inside a line: drop its rest
        self._text = last_lines(self.cutter.feed(data), count)

    def _ask_for(self, start: int, end: int) -> Asking[bytes]:
        data = b""
        while start + len(data) < end:
            chunk = yield start + len(data), min(PIECE, end - start - len(data))
            if not chunk.data:
                break  # the file was truncated meanwhile
            data += chunk.data
        return data


def last_lines(text: str, count: int | None) -> str:
    """Return the last `count` of whole lines, None for all."""
    if count is None:
        return text
    lines = text.split("\n")[:-1]
    return "".join(f"{line}\n" for line in lines[max(0, len(lines) - count) :])


BOTH = ("out", "err")
MOST_PIECES = 128  # per call
_MOST_OF_A_CALL = 1 << 20  # bytes
_MOST_AT_ONCE = 64 << 20  # bytes of all calls under way


class LogLine(Struct, frozen=True):
    """One line of one attempt; `stream` is `out` or `err`."""

    attempt: AttemptId
    stream: str
    text: str

    @property
    def rank(self) -> int:
        return self.attempt.task.index

    def as_text(self) -> LogText:
        """Return the line as a LogText."""
        return LogText(self.attempt, self.stream, f"{self.text}\n")


class LogText(Struct, frozen=True):
    """Whole lines of one stream of one attempt, each with its line feed."""

    attempt: AttemptId
    stream: str
    text: str

    @property
    def rank(self) -> int:
        return self.attempt.task.index

    def lines(self) -> list[LogLine]:
        """Return the lines as LogLines."""
        return [LogLine(self.attempt, self.stream, text) for text in self.text.split("\n")[:-1]]


class Reading:
    """An attempt whose output is being read, with its read positions.

    `tail` is the number of last lines of each stream to begin with, None for all. `dated`: also request the
    time of each stream's last write; `idle` then has its age in seconds, if known. `relative`: paths below
    the work directory are shown relative to it.
    """

    def __init__(
        self,
        attempt_id: AttemptId,
        attempt: Attempt,
        *,
        streams: Sequence[str] = BOTH,
        tail: int | None = None,
        dated: bool = False,
        relative: bool = False,
    ) -> None:
        self.dated = dated
        self._relative = relative
        self.idle: dict[str, float] = {}
        self.id = attempt_id
        self.attempt = attempt
        self.tail = tail
        self.texts: list[LogText] = []  # result of the last turn
        self.silence: Silence | None = None  # why the last turn failed
        self.streams = {name: LogStream(tail) for name in streams}

    @property
    def at_end(self) -> bool:
        """True if the last turn read everything available."""
        return self.silence is None and all(stream.at_end for stream in self.streams.values())

    @property
    def replaced(self) -> list[str]:
        """Streams that the last turn found replaced or truncated."""
        if self.silence is not None:
            return []
        return [name for name, stream in self.streams.items() if stream.replaced]

    @property
    def is_gone(self) -> bool:
        """True if none of its files exists."""
        return not any(stream.inode for stream in self.streams.values())

    def wanted(self, most: int) -> list[LogPiece]:
        """Return the next piece of each stream, of at most `most` bytes."""
        return [
            LogPiece(
                token=self.attempt.token, stream=name, offset=offset, limit=min(limit, most), dated=self.dated
            )
            for name, stream in self.streams.items()
            for offset, limit in [stream.wanted]
        ]

    def take(self, chunks: Sequence[LogChunk]) -> None:
        """Take the answers to `wanted`."""
        self.silence = None
        ages = zip(self.streams, (chunk.idle for chunk in chunks), strict=True)
        self.idle |= {name: idle for name, idle in ages if idle is not None}
        texts = [stream.take(chunk) for stream, chunk in zip(self.streams.values(), chunks, strict=True)]
        self.texts = [self.text(name, text) for name, text in zip(self.streams, texts, strict=True) if text]

    def fail(self, silence: Silence) -> None:
        """Record that the worker did not answer; the next turn requests the same pieces."""
        self.texts, self.silence = [], silence

    def rest(self) -> list[LogText]:
        """Return unfinished last lines, once no more output will come."""
        rests = {name: stream.cutter.rest() for name, stream in self.streams.items()}
        return [self.text(name, text) for name, text in rests.items() if text]

    def text(self, stream: str, lines: str) -> LogText:
        """Return whole lines of one stream, as they are to be shown."""
        shown = relative_paths(lines, self.attempt.token) if self._relative else lines
        return LogText(self.id, stream, shown)


def by_worker(readings: Sequence[Reading]) -> Mapping[WorkerId, list[Reading]]:
    """Group the readings by worker."""
    found: dict[WorkerId, list[Reading]] = {}
    for reading in readings:
        found.setdefault(reading.attempt.worker, []).append(reading)
    return found


def read(session: Session, cluster: Cluster, readings: Sequence[Reading]) -> Iterator[list[Reading]]:
    """Run one turn of each reading, workers in parallel; yield them in batches as workers answer."""
    of_worker = by_worker(readings)
    session.runner  # noqa: B018 - created once, before any thread uses it
    for batch in session.fan_out(
        list(of_worker), lambda worker: ask(session, cluster, of_worker[worker], len(of_worker))
    ):
        yield [reading for answered in batch for reading in answered]


def ask(
    session: Session, cluster: Cluster, readings: Sequence[Reading], workers: int = 1
) -> Sequence[Reading]:
    """Run one turn of attempts of the same worker: in one call unless there are too many pieces.

    `workers` are polled in parallel and share the memory for answers. Runs in its own thread.
    """
    target = session.target(cluster.workers[readings[0].attempt.worker])
    step = MOST_PIECES // len(BOTH)
    silence: Silence | None = None
    for start in range(0, len(readings), step):
        some = readings[start : start + step]
        streams = sum(len(reading.streams) for reading in some)
        most = max(FIRST, min(_MOST_OF_A_CALL, _MOST_AT_ONCE // workers) // max(streams, 1))
        if silence is None:
            pieces = [piece for reading in some for piece in reading.wanted(most)]
            answer = session.runner.pieces(target, pieces)
            if not isinstance(answer, Silence):
                _hand_out(some, answer)
                continue
            silence = answer
        for reading in some:
            reading.fail(silence)
    return readings


def _hand_out(readings: Sequence[Reading], chunks: Sequence[LogChunk]) -> None:
    place = 0
    for reading in readings:
        reading.take(chunks[place : place + len(reading.streams)])
        place += len(reading.streams)
