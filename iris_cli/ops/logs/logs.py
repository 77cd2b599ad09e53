"""`iris logs`: the output of tasks, from their workers; else what was pulled of it, else its end in the event log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from iris_cli.core import Attempt, AttemptId, Cluster, Task, TaskId, WorkerId, format_duration
from iris_cli.core.messages.observations import Silence
from iris_cli.journal.files.pulled_logs import PulledLogs
from iris_cli.ops.logs.log_reading import (
    BOTH,
    LineCutter,
    LogLine,
    LogStream,
    LogText,
    Reading,
    last_lines,
    read,
)
from iris_cli.ops.names import select_tasks
from iris_cli.ops.outcomes.causes import end_words
from iris_cli.ops.session import Session
from iris_cli.ops.views.view import View, look
from iris_cli.remote.task_runner import LogChunk

_COMPARED = 200  # bytes


class Remains(Struct, frozen=True, kw_only=True):
    """`texts` go on where the worker fell silent, read as they are asked for; `note` says whence they are.

    `kept`: they are from the event log; `pulled`: they were pulled; `whole`: to the end.
    """

    texts: Iterable[LogText] = ()
    anything: bool = False
    note: str = ""
    kept: bool = False
    pulled: bool = False
    whole: bool = False


def remains(session: Session, reading: Reading, attempt: Attempt, why: str, *, begun: bool) -> Remains:
    """What is left of an attempt, whose worker can't be asked, for a reason `why`.

    `begun`: the beginning of it was shown already. Raises NotWritableError if what was pulled can't be read.
    """
    logs, end = session.state.task_logs, attempt.end
    times = [at for name in reading.streams if (at := logs.written_at(reading.id, name)) is not None]
    pulled_at = max(times, default=None)
    # Clocks may differ, and what was all there before the end was not written again after it.
    whole = pulled_at is not None and attempt.ended_at is not None and pulled_at >= attempt.ended_at
    whole = whole and not logs.cut_off(reading.id)
    whole = whole or (end is not None and _reaches(logs, reading, end.log_tail))
    kept = end.log_tail if end is not None and not begun else ""
    if not whole and any(logs.end(reading.id, name) is not None for name in reading.streams):
        texts = (text for name in reading.streams for text in _pulled(logs, reading, name))
        note = f"{why}; showing the end of its output, copied when it ended"
        return Remains(texts=texts, anything=True, note=note, pulled=True, whole=True)
    if pulled_at is not None and (whole or not kept):
        anything = any(
            logs.size(reading.id, name) > stream.offset for name, stream in reading.streams.items()
        )
        texts = (text for name in reading.streams for text in _pulled(logs, reading, name))
        age = format_duration(max(0.0, session.clock.now() - pulled_at))
        note = f"{why}; showing what was pulled {age} ago"
        if not anything and begun:
            note = why if whole else f"{why}; the end of its output is missing"
        return Remains(texts=texts, anything=anything, note=note, pulled=True, whole=whole)
    if kept:
        note = f"{why}; showing the last lines from the event log"
        if pulled_at is not None:
            note += f"; earlier output was pulled to {logs.path(reading.id, 'out').parent}"
        return Remains(texts=(_kept_text(reading, kept),), anything=True, note=note, kept=True)
    return Remains(note=f"{why}; the end of its output is missing" if begun else why)


def _reaches(logs: PulledLogs, reading: Reading, log_tail: str) -> bool:
    """Whether what was pulled ends as the output did: with the end of `err`, if there is any."""
    for name in ("err", "out"):
        if size := logs.size(reading.id, name):
            last = logs.read(reading.id, name, max(0, size - _COMPARED), _COMPARED).decode("utf-8", "replace")
            return log_tail.endswith(
                last[4:] if size > _COMPARED else last
            )  # it may begin inside a character
    return False


def _pulled(logs: PulledLogs, reading: Reading, name: str) -> Iterator[LogText]:
    """The lines of one stream beyond those that were read, a piece at a time. Raises NotWritableError."""
    stream, end = reading.streams[name], logs.end(reading.id, name)
    first, last = end or (0, b"")
    size = first + len(last) if end else logs.size(reading.id, name)
    if not stream.offset:  # the worker may have said that there is nothing: here its last lines are wanted
        stream = reading.streams[name] = LogStream(reading.tail)
    while size > stream.offset:
        offset, limit = stream.wanted
        start = max(first, offset if offset >= 0 else size + offset)
        data = last[start - first :][:limit] if end else logs.read(reading.id, name, start, limit)
        if not data:
            break  # somebody has just removed it
        text = stream.take(LogChunk(data=data, offset=start, size=size, inode=stream.inode or 1))
        if text:
            yield reading.text(name, text)
    if rest := stream.cutter.rest():
        yield reading.text(name, rest)


def _kept_text(reading: Reading, log_tail: str) -> LogText:
    """The event log does not tell the streams apart: whichever is wanted, these lines are all there is."""
    cutter = LineCutter()
    text = cutter.feed(log_tail.encode("utf-8", "replace")) + cutter.rest()
    return reading.text(next(iter(reading.streams)), last_lines(text, reading.tail))


class Query(Struct, frozen=True, kw_only=True):
    """What to fetch. `tail` lines of each stream, None for all of them; no `ranks` means every rank.

    Without an `attempt` it is the last one of each task. `streams` are of `out` and `err`; `dated`: also when they were
    last written. `relative`: show paths below a task's work directory relative to it.
    """

    tail: int | None = 20
    ranks: tuple[int, ...] = ()
    attempt: int | None = None
    streams: tuple[str, ...] = BOTH
    dated: bool = False
    relative: bool = False


class TaskLog(Struct, frozen=True, kw_only=True):
    """The log of one task. `attempt` and `worker` are None where it was never placed.

    `note` says why there is nothing, or not everything. `kept`: the lines are the end that the event log
    keeps of an attempt; `pulled`: they were pulled before. `silence` is why its worker could not be asked. `idle` is
    how long ago each stream of what runs was last written, in seconds, if that was asked for.
    """

    task: TaskId
    state: str
    attempt: int | None = None
    worker: WorkerId | None = None
    lines: tuple[LogLine, ...] = ()
    note: str = ""
    kept: bool = False
    pulled: bool = False
    silence: Silence | None = None
    idle: Mapping[str, float] = field(default_factory=dict)


class Fetching:
    """The logs of a job, a task or an attempt on their way, as they are now. Raises NotFoundError and UsageError."""

    def __init__(self, session: Session, what: str, query: Query) -> None:
        self._session, self._view = session, look(session)
        self._chosen = select_tasks(self._view.cluster, what, ranks=query.ranks, attempt=query.attempt)
        self._readings = {
            task.id: Reading(
                AttemptId(task.id, attempt.number),
                attempt,
                streams=query.streams,
                tail=query.tail,
                dated=query.dated,
                relative=query.relative,
            )
            for task, attempt in self._chosen
            if attempt is not None
        }
        self._begun: set[TaskId] = set()
        self._left: dict[TaskId, Remains] = {}  # of what no worker can give

    @property
    def tasks(self) -> int:
        """How many tasks it is about."""
        return len(self._chosen)

    def turns(self) -> Iterator[list[LogText]]:
        """A piece of each at a time, until all that is there was read."""
        cluster = self._view.cluster
        unread = [each for each in self._readings.values() if is_there(cluster, each.attempt)]
        while unread:
            turn = [reading for batch in read(self._session, cluster, unread) for reading in batch]
            texts = [text for reading in turn for text in reading.texts]
            self._begun |= {text.attempt.task for text in texts}
            yield texts
            unread = [each for each in turn if not each.at_end and each.silence is None]
        yield from self._turns_of_remains()

    def _turns_of_remains(self) -> Iterator[list[LogText]]:
        cluster = self._view.cluster
        for task, reading in self._readings.items():
            if why := _why_elsewhere(cluster, reading):
                begun = task in self._begun
                self._left[task] = remains(self._session, reading, reading.attempt, why, begun=begun)
        unread = [iter(each.texts) for each in self._left.values()]
        while unread:
            turn = [(texts, next(texts, None)) for texts in unread]
            unread = [texts for texts, text in turn if text is not None]
            yield [text for _, text in turn if text is not None]

    def logs(self, texts: Mapping[TaskId, list[LogText]]) -> list[TaskLog]:
        """When there are no more turns: by task index, `texts` of them and what else is known."""
        return [
            TaskLog(task=task.id, state=task.state, note=not_started(self._view, task))
            if task.id not in self._readings
            else self._log(task, self._readings[task.id], texts.get(task.id, []))
            for task, _ in self._chosen
        ]

    def _log(self, task: Task, reading: Reading, texts: list[LogText]) -> TaskLog:
        begun, left = task.id in self._begun, self._left.get(task.id)
        return _task_log(self._view.cluster, task, reading, texts, left, begun=begun)


def fetch(session: Session, what: str, query: Query) -> list[TaskLog]:
    """The end of the logs of a job, a task or an attempt, by task index. Raises NotFoundError and UsageError."""
    fetching = Fetching(session, what, query)
    texts: dict[TaskId, list[LogText]] = {}
    for turn in fetching.turns():
        for text in turn:
            texts.setdefault(text.attempt.task, []).append(text)
    return fetching.logs(texts)


def not_started(view: View, task: Task) -> str:
    """Why a task was never placed."""
    if task.end is not None:
        return f"never started: {end_words(task.end)}"
    return f"has not started: {view.prospect(view.cluster.jobs[task.job], task.id)}"


def is_there(cluster: Cluster, attempt: Attempt) -> bool:
    """Whether there is a worker to ask, and it may have some of the output."""
    return attempt.worker in cluster.workers and attempt.reaped_at is None


def without_worker(attempt: Attempt, silence: Silence | None) -> str:
    """Why a worker can't be asked, in words."""
    if attempt.reaped_at is not None and attempt.ended_at is not None:
        kept = format_duration(attempt.reaped_at - attempt.ended_at)
        return f"output removed from worker {attempt.worker} {kept} after the end (limits.reap_after)"
    if silence is None:
        return f"worker {attempt.worker} is no longer in the cluster"
    return f"no answer from worker {attempt.worker} ({silence.step}: {silence.detail})"


def nothing_left(attempt: Attempt) -> str:
    """What is to be said of an attempt that has ended, and whose worker has no output of it."""
    return f"no files left on worker {attempt.worker}"


def _why_elsewhere(cluster: Cluster, reading: Reading) -> str:
    """Why output has to come from elsewhere than its worker; "" where it hasn't, or there never was any."""
    attempt = reading.attempt
    if _out_of_reach(cluster, reading):
        never = attempt.started_at is None and attempt.reaped_at is not None
        return "" if never else without_worker(attempt, reading.silence)
    return nothing_left(attempt) if reading.is_gone and attempt.end is not None else ""


def _out_of_reach(cluster: Cluster, reading: Reading) -> bool:
    return reading.silence is not None or not is_there(cluster, reading.attempt)


def _task_log(
    cluster: Cluster,
    task: Task,
    reading: Reading,
    texts: list[LogText],
    left: Remains | None,
    *,
    begun: bool,
) -> TaskLog:
    """`texts` are all that was read and nobody has printed; `left` says what of it is from elsewhere."""
    attempt, note = reading.attempt, left.note if left is not None else ""
    out_of_reach = _out_of_reach(cluster, reading)
    if (left is None and out_of_reach) or (left is not None and not (out_of_reach or left.anything)):
        note = _nothing_written(attempt)
    lines = _lines([*texts, *reading.rest()], reading)
    if not lines and not begun and not note and reading.tail != 0:
        note = _nothing_written(attempt)
    return TaskLog(
        task=task.id,
        state=task.state,
        attempt=attempt.number,
        worker=attempt.worker,
        lines=lines,
        note=note,
        kept=left is not None and left.kept,
        pulled=left is not None and left.pulled,
        silence=reading.silence,
        idle={} if reading.attempt.end is not None else reading.idle,
    )


def _lines(texts: Sequence[LogText], reading: Reading) -> tuple[LogLine, ...]:
    """As many of each stream as were asked for: unfinished ones came on top."""
    found: list[LogLine] = []
    for name in reading.streams:
        lines = [line for text in texts if text.stream == name for line in text.lines()]
        found += lines if reading.tail is None else lines[max(0, len(lines) - reading.tail) :]
    return tuple(found)


def _nothing_written(attempt: Attempt) -> str:
    if attempt.end is not None and attempt.started_at is None:
        return f"attempt {attempt.number} never started: {end_words(attempt.end)}"
    if attempt.end is None and attempt.started_at is None:
        how = "is being set up" if attempt.acknowledged else "is being sent"
        return f"has not started: {how} on worker {attempt.worker}"
    return "no output" + ("" if attempt.end is not None else " yet")
