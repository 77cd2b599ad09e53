"""Read the output of attempts from their workers: one call for all that is wanted of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.core.ids import AttemptId, WorkerId
from iris_cli.core.messages.observations import Silence
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.task import Attempt
from iris_cli.core.work_paths import relative_paths
from iris_cli.ops.logs.log_stream import FIRST, LogStream
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.remote.task_runner import LogChunk, LogPiece

BOTH = ("out", "err")
MOST_PIECES = 128  # of one call
_MOST_OF_A_CALL = 1 << 20  # bytes
_MOST_AT_ONCE = 64 << 20  # bytes of all calls that are under way


class LogLine(Struct, frozen=True):
    """One line of one attempt; `stream` is `out` or `err`."""

    attempt: AttemptId
    stream: str
    text: str

    @property
    def rank(self) -> int:
        return self.attempt.task.index

    def as_text(self) -> LogText:
        """The same as a text of one line."""
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
        """The same one by one."""
        return [LogLine(self.attempt, self.stream, text) for text in self.text.split("\n")[:-1]]


class Reading:
    """An attempt whose output is being read, and how far that has come.

    `tail` is how many lines of each stream to begin with, None for all. `dated`: the worker is asked when each was last
    written; `idle` then says how long ago that was, in seconds, where it is known. `relative`: paths below the work
    directory are relative to it in every text.
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
        self.texts: list[LogText] = []  # what the last turn brought
        self.silence: Silence | None = None  # why it brought nothing
        self.streams = {name: LogStream(tail) for name in streams}

    @property
    def at_end(self) -> bool:
        """Whether the last turn brought everything there was."""
        return self.silence is None and all(stream.at_end for stream in self.streams.values())

    @property
    def replaced(self) -> list[str]:
        """The streams in whose place the last turn found another file, or a shorter one."""
        if self.silence is not None:
            return []
        return [name for name, stream in self.streams.items() if stream.replaced]

    @property
    def is_gone(self) -> bool:
        """Whether none of its files is there."""
        return not any(stream.inode for stream in self.streams.values())

    def wanted(self, most: int) -> list[LogPiece]:
        """The next piece of each stream, of at most so many bytes."""
        from iris_cli.remote.task_runner import LogPiece

        return [
            LogPiece(
                token=self.attempt.token, stream=name, offset=offset, limit=min(limit, most), dated=self.dated
            )
            for name, stream in self.streams.items()
            for offset, limit in [stream.wanted]
        ]

    def take(self, chunks: Sequence[LogChunk]) -> None:
        """These are the pieces that were wanted."""
        self.silence = None
        ages = zip(self.streams, (chunk.idle for chunk in chunks), strict=True)
        self.idle |= {name: idle for name, idle in ages if idle is not None}
        texts = [stream.take(chunk) for stream, chunk in zip(self.streams.values(), chunks, strict=True)]
        self.texts = [self.text(name, text) for name, text in zip(self.streams, texts, strict=True) if text]

    def fail(self, silence: Silence) -> None:
        """The worker does not answer: the same will be asked again."""
        self.texts, self.silence = [], silence

    def rest(self) -> list[LogText]:
        """Unfinished last lines: to be asked for when no more will come."""
        rests = {name: stream.cutter.rest() for name, stream in self.streams.items()}
        return [self.text(name, text) for name, text in rests.items() if text]

    def text(self, stream: str, lines: str) -> LogText:
        """Whole lines of one stream, as they are to be shown."""
        shown = relative_paths(lines, self.attempt.token) if self._relative else lines
        return LogText(self.id, stream, shown)


def by_worker(readings: Sequence[Reading]) -> Mapping[WorkerId, list[Reading]]:
    """Whose worker is the same."""
    found: dict[WorkerId, list[Reading]] = {}
    for reading in readings:
        found.setdefault(reading.attempt.worker, []).append(reading)
    return found


def read(session: Session, cluster: Cluster, readings: Sequence[Reading]) -> Iterator[list[Reading]]:
    """Let each have its turn, worker by worker in parallel; they come back in batches, as workers answer."""
    of_worker = by_worker(readings)
    session.runner  # noqa: B018 - made here once, not in each of the threads
    for batch in session.fan_out(
        list(of_worker), lambda worker: ask(session, cluster, of_worker[worker], len(of_worker))
    ):
        yield [reading for answered in batch for reading in answered]


def ask(
    session: Session, cluster: Cluster, readings: Sequence[Reading], workers: int = 1
) -> Sequence[Reading]:
    """One turn of attempts of the same worker: in one call, unless there are very many of them.

    `workers` are asked at the same time, for whose answers there must be room. Runs in a thread of its own.
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
