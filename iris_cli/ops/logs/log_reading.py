"""Read the output files of attempts in pieces from their workers, and return whole lines."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from msgspec import Struct

from iris_cli.core import Attempt, AttemptId, Cluster, TaskId, WorkerId, group_pairs
from iris_cli.core.messages.observations import Silence
from iris_cli.core.work_paths import relative_paths
from iris_cli.ops.session import Session
from iris_cli.remote.task_runner import LogChunk, LogPiece

R = TypeVar("R")

FIRST_READ = 32 << 10  # bytes from the end in the first read, enough for the last lines of most programs
PIECE = 512 << 10  # maximum bytes of a stream per request
MAX_LINE = 64 << 10  # maximum bytes in a line, because an endless line must not fill the memory
MAX_SEARCH = 16 << 20  # maximum bytes read from the end to find the last lines

Requests = Generator[tuple[int, int], "LogChunk", R]
"""Generator that yields requests (offset, number of bytes), and receives the answers."""

BOTH = ("out", "err")
MAX_PIECES = 128  # pieces per call
_MAX_CALL = 1 << 20  # bytes per call
_MAX_TOTAL = 64 << 20  # bytes of all open calls


class LineCutter(Struct):
    """Cuts a byte stream into whole lines of text. The lines do not depend on how the bytes are divided among calls.

    An incomplete line is held back. A line longer than MAX_LINE is cut between two characters. If a line was
    overwritten with carriage returns, as by a progress bar, only its last text is returned.
    """

    incomplete_line: bytes = b""

    def feed(self, data: bytes) -> str:
        """Return the lines that these bytes complete, each with its line feed."""
        complete, line_feed, last = (self.incomplete_line + data).rpartition(b"\n")
        *pieces, self.incomplete_line = _pieces(last)
        lines = complete.split(b"\n")
        if max(map(len, lines)) > MAX_LINE:
            complete = b"\n".join(piece for line in lines for piece in _pieces(line))
        return _text(complete + line_feed + b"".join(piece + b"\n" for piece in pieces))

    def rest(self) -> str:
        """Return the incomplete line, or ''. Call this method when no more bytes will come."""
        line, self.incomplete_line = self.incomplete_line, b""
        return _text(line + b"\n") if line else ""


def _pieces(line: bytes) -> list[bytes]:
    """Return the pieces of a line, each of at most MAX_LINE bytes."""
    pieces = []
    while len(line) > MAX_LINE:
        end = MAX_LINE
        while end > MAX_LINE - 4 and line[end] & 0xC0 == 0x80:  # inside a UTF-8 character
            end -= 1
        pieces.append(line[:end])
        line = line[end:]
    return [*pieces, line]


def _text(lines: bytes) -> str:
    text = lines.decode("utf-8", "replace")
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


class LogStream:
    """Read position in one output file. `tail`: number of last lines to begin with, or None for all lines.

    The caller requests the bytes `wanted` and passes the answer to `take`. `wanted` changes only after an answer, so a
    missing answer neither loses nor repeats lines.
    """

    def __init__(self, tail: int | None = None) -> None:
        self.offset = 0  # bytes received, including the incomplete line
        self.inode = 0
        self.at_end = False  # True if the last answer reached the end of the file
        self.replaced = False  # True if the file was replaced or truncated, so that reading restarts
        self.cutter = LineCutter()
        self._text = ""
        self._was_replaced = False
        self._requests = self._make_requests(tail)
        self.wanted = next(self._requests)
        """Offset (negative: from the end) and maximum number of bytes of the next request."""

    def take(self, chunk: LogChunk) -> str:
        """Return the lines that this answer completes. The answer may have fewer bytes than were requested."""
        self._text = ""
        self._was_replaced, self.replaced = self.replaced, False
        self.wanted = self._requests.send(chunk)
        return self._text

    def _make_requests(self, tail: int | None) -> Requests[None]:
        if tail is not None:
            yield from self._request_last(tail)
        while True:
            self._take_next((yield self.offset, PIECE))

    def _take_next(self, chunk: LogChunk) -> None:
        if not chunk.inode:
            self.at_end = True  # the file is missing; keep the position, because it may appear again
        elif chunk.size < self.offset or (self.inode and chunk.inode != self.inode):
            self._text = self.cutter.rest()
            self.offset, self.inode, self.replaced = 0, chunk.inode, True
            self.at_end = self._was_replaced  # stop after two replacements in a row
        else:
            self._text = self.cutter.feed(chunk.data)
            self.offset, self.inode = self.offset + len(chunk.data), chunk.inode
            self.at_end = not chunk.data or self.offset >= chunk.size

    def _request_last(self, count: int) -> Requests[None]:
        """Read the last `count` lines, within MAX_SEARCH bytes from the end. Later reads continue after these lines.

        Longer lines are cut, so `count` lines never have more than `count * MAX_LINE` bytes.
        """
        found = yield -FIRST_READ, FIRST_READ
        start, data, window = found.offset, found.data, FIRST_READ
        while start + len(data) < found.size or (start and data.count(b"\n") <= count):
            window *= 4
            start = max(0, found.size - window)
            data = yield from self._request_range(start, found.size)
            if window >= min(MAX_SEARCH, (count + 1) * MAX_LINE):
                break
        self.inode, self.offset, self.at_end = found.inode, start + len(data), True
        rest = data.partition(b"\n")[2]
        # Drop the first line, which is incomplete, unless it is needed.
        if start and rest.count(b"\n") >= count:
            data = rest
        self._text = last_lines(self.cutter.feed(data), count)

    def _request_range(self, start: int, end: int) -> Requests[bytes]:
        data = b""
        while start + len(data) < end:
            chunk = yield start + len(data), min(PIECE, end - start - len(data))
            if not chunk.data:
                break  # the file was truncated
            data += chunk.data
        return data


def last_lines(text: str, count: int | None) -> str:
    """Return the last `count` lines of a text of whole lines; all lines if `count` is None."""
    if count is None:
        return text
    lines = text.split("\n")[:-1]
    return "".join(f"{line}\n" for line in lines[max(0, len(lines) - count) :])


class LogLine(Struct, frozen=True):
    """One line of one attempt, without its line feed. `stream` is `out` or `err`."""

    attempt: AttemptId
    stream: str
    text: str

    def as_text(self) -> "LogText":
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
        return [LogLine(self.attempt, self.stream, text) for text in self.text.split("\n")[:-1]]


class Query(Struct, frozen=True, kw_only=True):
    """Selection of output: the last `tail` lines of each stream (None: all lines) of these `ranks` ((): all ranks).

    If `attempt` is None, the last attempt of each task is read. `streams`: `out`, `err` or both. `dated`: also get the
    time of the last write. `relative`: make paths below a task's work directory relative to that directory.
    """

    tail: int | None = 20
    ranks: tuple[int, ...] = ()
    attempt: int | None = None
    streams: tuple[str, ...] = BOTH
    dated: bool = False
    relative: bool = False


class Reading:
    """An attempt whose output is being read as selected by `query`, with its read positions.

    `idle`: seconds since the last write of each stream, if the query requests them and they are known.
    """

    def __init__(self, task: TaskId, attempt: Attempt, query: Query) -> None:
        self.query = query
        self.idle: dict[str, float] = {}
        self.id = AttemptId(task, attempt.number)
        self.attempt = attempt
        self.texts: list[LogText] = []  # lines of the last read
        self.silence: Silence | None = None  # why the last read failed
        self.streams = {name: LogStream(query.tail) for name in query.streams}

    @property
    def at_end(self) -> bool:
        """True if the last read reached the end of all streams."""
        return self.silence is None and all(stream.at_end for stream in self.streams.values())

    @property
    def replaced(self) -> list[str]:
        """Streams whose file was replaced or truncated before the last read."""
        if self.silence is not None:
            return []
        return [name for name, stream in self.streams.items() if stream.replaced]

    @property
    def is_gone(self) -> bool:
        """True if none of the attempt's output files exists."""
        return not any(stream.inode for stream in self.streams.values())

    def wanted(self, max_bytes: int) -> list[LogPiece]:
        """Return the next piece of each stream, at most `max_bytes` long."""
        return [
            LogPiece(
                token=self.attempt.token,
                stream=name,
                offset=offset,
                limit=min(limit, max_bytes),
                dated=self.query.dated,
            )
            for name, stream in self.streams.items()
            for offset, limit in [stream.wanted]
        ]

    def take(self, chunks: Sequence[LogChunk]) -> None:
        """Process the answers, one for each piece that `wanted` returned."""
        self.silence, self.texts = None, []
        for (name, stream), chunk in zip(self.streams.items(), chunks, strict=True):
            if chunk.idle is not None:
                self.idle[name] = chunk.idle
            if text := stream.take(chunk):
                self.texts.append(self.text(name, text))

    def fail(self, silence: Silence) -> None:
        """Record that the worker did not answer. The next read requests the same pieces."""
        self.texts, self.silence = [], silence

    def rest(self) -> list[LogText]:
        """Return the unfinished last line of each stream. Call this method when no more output will come."""
        rests = {name: stream.cutter.rest() for name, stream in self.streams.items()}
        return [self.text(name, text) for name, text in rests.items() if text]

    def text(self, stream: str, lines: str) -> LogText:
        """Return whole lines of one stream as a LogText, with relative paths if the query requests them."""
        shown = relative_paths(lines, self.attempt.token) if self.query.relative else lines
        return LogText(self.id, stream, shown)


def take_turns(sources: Sequence[Iterable[LogText]]) -> Iterator[list[LogText]]:
    """Yield lists with the next text of each source, until all sources are exhausted."""
    unread = list(map(iter, sources))
    while unread:
        turn = [(texts, next(texts, None)) for texts in unread]
        unread = [texts for texts, text in turn if text is not None]
        yield [text for _, text in turn if text is not None]


def by_worker(readings: Sequence[Reading]) -> Mapping[WorkerId, list[Reading]]:
    return group_pairs((reading.attempt.worker, reading) for reading in readings)


def read(session: Session, cluster: Cluster, readings: Sequence[Reading]) -> list[Reading]:
    """Read once from each worker, in parallel. Return the readings in the order of the answers."""
    groups = list(by_worker(readings).values())
    _ = session.runner  # creates the runner before the threads use it
    batches = session.fan_out(groups, lambda group: poll_worker(session, cluster, group, len(groups)))
    return [reading for batch in batches for answered in batch for reading in answered]


def poll_worker(
    session: Session, cluster: Cluster, readings: Sequence[Reading], workers: int = 1
) -> Sequence[Reading]:
    """Read new output of several attempts from their worker, in one call unless there are too many pieces.

    `workers`: number of workers read in parallel, which limits the size of each answer. Runs in a separate thread.
    """
    target = session.target(cluster.workers[readings[0].attempt.worker])
    step = MAX_PIECES // len(BOTH)
    for start in range(0, len(readings), step):
        group = readings[start : start + step]
        streams = sum(len(reading.streams) for reading in group)
        max_bytes = max(FIRST_READ, min(_MAX_CALL, _MAX_TOTAL // workers) // max(streams, 1))
        pieces = [piece for reading in group for piece in reading.wanted(max_bytes)]
        answer = session.runner.pieces(target, pieces)
        if isinstance(answer, Silence):
            for reading in readings[start:]:
                reading.fail(answer)
            break
        chunks = iter(answer)
        for reading in group:
            reading.take(list(islice(chunks, len(reading.streams))))
    return readings
