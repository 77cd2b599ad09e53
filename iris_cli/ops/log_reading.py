"""Read the output of attempts from their workers, many at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from iris_cli.core.cluster import Cluster
from iris_cli.core.dataclass import dataclass
from iris_cli.core.ids import AttemptId, WorkerId
from iris_cli.core.observations import Silence
from iris_cli.core.task import Attempt
from iris_cli.ops.log_stream import Fetch, LineCutter, LogStream, Read
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.remote.task_runner import LogChunk

BOTH = ("out", "err")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one attempt; `stream` is `out` or `err`."""

    attempt: AttemptId
    stream: str
    text: str

    @property
    def rank(self) -> int:
        return self.attempt.task.index


class Reading:
    """An attempt whose output is being read, and how far that has come.

    `tail` is how many lines of each stream to begin with, None for all.
    """

    def __init__(
        self,
        attempt_id: AttemptId,
        attempt: Attempt,
        *,
        streams: Sequence[str] = BOTH,
        tail: int | None = None,
    ) -> None:
        self.id = attempt_id
        self.attempt = attempt
        self.tail = tail
        self.lines: list[LogLine] = []  # what the last turn brought
        self.at_end = False  # whether that was everything there was
        self.silence: Silence | None = None  # why it brought no more
        self._names = streams
        self._streams: dict[str, LogStream] = {}

    def turn(self, session: Session, cluster: Cluster) -> None:
        """Read on: one call for each stream, more if there is more. Runs in a thread of its own."""
        self.lines, self.at_end, self.silence = [], True, None
        target = session.target(cluster.workers[self.attempt.worker])
        for name in self._names:

            def fetch(offset: int, limit: int, name: str = name) -> LogChunk | Silence:
                token = self.attempt.token
                return session.runner.logs(target, token, stream=name, offset=offset, limit=limit)

            found = self._read(name, fetch)
            self.lines += [LogLine(self.id, name, text) for text in found.lines]
            self.at_end = self.at_end and found.at_end
            if found.silence is not None:
                return self.fail(found.silence)
        return None

    def _read(self, name: str, fetch: Fetch) -> Read:
        if name in self._streams or self.tail is None:
            return self._streams.setdefault(name, LogStream()).read_on(fetch)
        stream = LogStream()
        found = stream.read_last(fetch, self.tail)
        if found.silence is None:
            self._streams[name] = stream
        return found

    def fail(self, silence: Silence) -> None:
        """The worker does not answer."""
        self.at_end, self.silence = False, silence

    def rest(self) -> list[LogLine]:
        """Unfinished last lines: to be asked for when no more will come."""
        return [
            LogLine(self.id, name, text)
            for name, stream in self._streams.items()
            for text in stream.cutter.rest()
        ]


def read(session: Session, cluster: Cluster, readings: Sequence[Reading]) -> Iterator[list[Reading]]:
    """Let each have its turn, worker by worker in parallel; they come back in batches, as workers answer."""
    by_worker: dict[WorkerId, list[Reading]] = {}
    for reading in readings:
        by_worker.setdefault(reading.attempt.worker, []).append(reading)
    session.runner  # noqa: B018 - made here once, not in each of the threads

    def ask(worker: WorkerId) -> list[Reading]:
        silence = None
        for reading in by_worker[worker]:
            if silence is None:
                reading.turn(session, cluster)
                silence = reading.silence
            else:
                reading.lines = []
                reading.fail(silence)
        return by_worker[worker]

    for batch in session.fan_out(list(by_worker), ask):
        yield [reading for answered in batch for reading in answered]


def kept_lines(attempt_id: AttemptId, log_tail: str, count: int | None) -> list[LogLine]:
    """The end of the output that the event log keeps of an attempt, which does not tell the streams apart."""
    cutter = LineCutter()
    texts = cutter.feed(log_tail.encode("utf-8", "replace")) + cutter.rest()
    first = 0 if count is None else max(0, len(texts) - count)
    return [LogLine(attempt_id, "out", text) for text in texts[first:]]
