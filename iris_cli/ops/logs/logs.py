"""Output of tasks for `iris logs`. Sources, in this order: the worker, a pulled copy, the log tail in the event log."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from iris_cli.core import Attempt, Cluster, Job, Task, TaskId, WorkerId, format_duration, group_pairs
from iris_cli.core.messages.observations import Silence
from iris_cli.journal.files.pulled_logs import PulledLogs
from iris_cli.ops.logs import log_reading
from iris_cli.ops.names import select_tasks
from iris_cli.ops.outcomes.causes import end_words
from iris_cli.ops.session import Session
from iris_cli.ops.views.view import View, load_view
from iris_cli.remote.task_runner import LogChunk

_COMPARED = 200  # bytes at the end of a pulled copy that are compared with the log tail


class OtherOutput(Struct, frozen=True, kw_only=True):
    """Output of an attempt from other sources than its worker.

    `texts` are read lazily. `note` names the source. `kept`: the output is from the event log. `pulled`: the output is
    from a pulled copy. `has_end`: the end of the output is present.
    """

    texts: Iterable[log_reading.LogText] = ()
    has_texts: bool = False
    note: str = ""
    kept: bool = False
    pulled: bool = False
    has_end: bool = False


def other_output(
    session: Session, reading: log_reading.Reading, attempt: Attempt, why: str, *, has_shown_output: bool
) -> OtherOutput:
    """Return the output of an attempt from other sources. `why`: the reason why its worker can't be polled.

    Raises NotWritableError if a pulled copy can't be read.
    """
    logs, end = session.state.task_logs, attempt.end
    times = [at for name in reading.streams if (at := logs.written_at(reading.id, name)) is not None]
    pulled_at = max(times, default=None)
    # A comparison of times is not sufficient, because clocks may differ, and because output that was complete before
    # the attempt's end is not pulled again.
    has_end = pulled_at is not None and attempt.ended_at is not None and pulled_at >= attempt.ended_at
    has_end = has_end and not logs.is_incomplete(reading.id)
    has_end = has_end or (end is not None and _ends_like(logs, reading, end.log_tail))
    kept = end.log_tail if end is not None and not has_shown_output else ""
    texts = (text for name in reading.streams for text in _pulled_texts(logs, reading, name))
    if not has_end and any(logs.end(reading.id, name) is not None for name in reading.streams):
        note = f"{why}; showing the end of its output, copied when it ended"
        return OtherOutput(texts=texts, has_texts=True, note=note, pulled=True, has_end=True)
    if pulled_at is not None and (has_end or not kept):
        has_texts = any(
            logs.size(reading.id, name) > stream.offset for name, stream in reading.streams.items()
        )
        age = format_duration(max(0.0, session.clock.now() - pulled_at))
        note = f"{why}; showing what was pulled {age} ago"
        if not has_texts and has_shown_output:
            note = why if has_end else f"{why}; the end of its output is missing"
        return OtherOutput(texts=texts, has_texts=has_texts, note=note, pulled=True, has_end=has_end)
    if kept:
        note = f"{why}; showing the last lines that iris saved when it ended"
        if pulled_at is not None:
            note += f"; earlier output was pulled to {logs.path(reading.id, 'out').parent}"
        return OtherOutput(texts=(_log_tail_text(reading, kept),), has_texts=True, note=note, kept=True)
    return OtherOutput(note=f"{why}; the end of its output is missing" if has_shown_output else why)


def _ends_like(logs: PulledLogs, reading: log_reading.Reading, log_tail: str) -> bool:
    """Return True if the log tail ends like the pulled copy of `err`, or like the copy of `out` if `err` is empty."""
    for name in ("err", "out"):
        if size := logs.size(reading.id, name):
            last = logs.read(reading.id, name, max(0, size - _COMPARED), _COMPARED).decode("utf-8", "replace")
            # The first bytes may be a part of a character.
            return log_tail.endswith(last[4:] if size > _COMPARED else last)
    return False


def _pulled_texts(logs: PulledLogs, reading: log_reading.Reading, name: str) -> Iterator[log_reading.LogText]:
    """Yield the lines of one stream in a pulled copy that were not read yet, in pieces. Raises NotWritableError."""
    stream, end = reading.streams[name], logs.end(reading.id, name)
    end_offset, end_data = end or (0, b"")
    size = end_offset + len(end_data) if end else logs.size(reading.id, name)
    if not stream.offset:  # nothing was read, perhaps because the worker reported an empty file
        stream = reading.streams[name] = log_reading.LogStream(reading.query.tail)
    while size > stream.offset:
        offset, limit = stream.wanted
        start = max(end_offset, offset if offset >= 0 else size + offset)
        data = end_data[start - end_offset :][:limit] if end else logs.read(reading.id, name, start, limit)
        if not data:
            break  # another process has removed the copy
        text = stream.take(LogChunk(data=data, offset=start, size=size, inode=stream.inode or 1))
        if text:
            yield reading.text(name, text)
    if rest := stream.cutter.rest():
        yield reading.text(name, rest)


def _log_tail_text(reading: log_reading.Reading, log_tail: str) -> log_reading.LogText:
    """Return the log tail as a text of the first stream. In the log tail, both streams are mixed."""
    cutter = log_reading.LineCutter()
    text = cutter.feed(log_tail.encode("utf-8", "replace")) + cutter.rest()
    return reading.text(next(iter(reading.streams)), log_reading.last_lines(text, reading.query.tail))


class TaskLog(Struct, frozen=True, kw_only=True):
    """The log of one task. `attempt` and `worker` are None if the task was never placed.

    `note` says why lines are missing. `kept`: the lines are the log tail in the event log. `pulled`: the lines are from
    a pulled copy. `silence`: why the worker could not be polled. `idle`: the age in seconds of each stream's last
    write, for a running attempt if the query requests it.
    """

    task: TaskId
    state: str
    attempt: int | None = None
    worker: WorkerId | None = None
    lines: tuple[log_reading.LogLine, ...] = ()
    note: str = ""
    kept: bool = False
    pulled: bool = False
    silence: Silence | None = None
    idle: Mapping[str, float] = field(default_factory=dict)


class LogFetch:
    """Reads the present logs of a job, a task or an attempt. Raises NotFoundError and UsageError."""

    def __init__(self, session: Session, name: str, query: log_reading.Query) -> None:
        self._session, self._view = session, load_view(session)
        self._tasks = select_tasks(self._view.cluster, name, ranks=query.ranks, attempt=query.attempt)
        self._readings = {
            task.id: log_reading.Reading(task.id, attempt, query)
            for task, attempt in self._tasks
            if attempt is not None
        }
        self._begun: set[TaskId] = set()  # tasks with output that was already returned
        self._other_outputs: dict[TaskId, OtherOutput] = {}

    @property
    def tasks(self) -> int:
        return len(self._tasks)

    def turns(self) -> Iterator[list[log_reading.LogText]]:
        """Yield the next piece of each log, until all available output has been read."""
        cluster = self._view.cluster
        unread = [each for each in self._readings.values() if has_output_on_worker(cluster, each.attempt)]
        while unread:
            turn = log_reading.read(self._session, cluster, unread)
            texts = [text for reading in turn for text in reading.texts]
            self._begun |= {text.attempt.task for text in texts}
            yield texts
            unread = [each for each in turn if not each.at_end and each.silence is None]
        for task, reading in self._readings.items():
            if why := _why_not_from_worker(cluster, reading):
                has_shown_output = task in self._begun
                output = other_output(
                    self._session, reading, reading.attempt, why, has_shown_output=has_shown_output
                )
                self._other_outputs[task] = output
        yield from log_reading.take_turns([each.texts for each in self._other_outputs.values()])

    def logs(self, texts: Mapping[TaskId, list[log_reading.LogText]]) -> list[TaskLog]:
        """Return the logs by task index. `texts` are the texts of all `turns`, by task."""
        return [
            TaskLog(task=task.id, state=task.state, note=not_started_words(self._view, task))
            if task.id not in self._readings
            else self._log(task, self._readings[task.id], texts.get(task.id, []))
            for task, _ in self._tasks
        ]

    def _log(self, task: Task, reading: log_reading.Reading, texts: list[log_reading.LogText]) -> TaskLog:
        """Return the log of a task. `texts`: output that was not printed yet."""
        attempt, other = reading.attempt, self._other_outputs.get(task.id)
        note = other.note if other is not None else ""
        is_unreachable = _is_unreachable(self._view.cluster, reading)
        if is_unreachable if other is None else not (is_unreachable or other.has_texts or attempt.started_at):
            note = _no_output_words(self._view.cluster.jobs[task.job], attempt)
        lines = _lines([*texts, *reading.rest()], reading)
        if not lines and task.id not in self._begun and not note and reading.query.tail != 0:
            note = _no_output_words(self._view.cluster.jobs[task.job], attempt)
        return TaskLog(
            task=task.id,
            state=task.state,
            attempt=attempt.number,
            worker=attempt.worker,
            lines=lines,
            note=note,
            kept=other is not None and other.kept,
            pulled=other is not None and other.pulled,
            silence=reading.silence,
            idle={} if attempt.end is not None else reading.idle,
        )


def fetch(session: Session, name: str, query: log_reading.Query) -> list[TaskLog]:
    """Return the logs of a job, a task or an attempt, by task index. Raises NotFoundError, UsageError."""
    log_fetch = LogFetch(session, name, query)
    return log_fetch.logs(
        group_pairs((text.attempt.task, text) for turn in log_fetch.turns() for text in turn)
    )


def not_started_words(view: View, task: Task) -> str:
    """Return why a task was never placed."""
    if task.end is not None:
        return f"never started: {end_words(task.end)}"
    return f"has not started: {view.prospect(view.cluster.jobs[task.job], task.id)}"


def has_output_on_worker(cluster: Cluster, attempt: Attempt) -> bool:
    """Return True if the attempt's worker is in the cluster, and its output was not deleted from the worker."""
    return attempt.worker in cluster.workers and attempt.reaped_at is None


def no_output_reason(attempt: Attempt, silence: Silence | None) -> str:
    """Return why the output can't be read from its worker."""
    if attempt.reaped_at is not None and attempt.ended_at is not None:
        age = format_duration(attempt.reaped_at - attempt.ended_at)
        return (
            f"output removed from worker {attempt.worker} {age} after the end (iris gc or limits.reap_after)"
        )
    if silence is None:
        return f"worker {attempt.worker} is no longer in the cluster"
    return silence.words(f"worker {attempt.worker}")


def no_files_words(attempt: Attempt) -> str:
    """Return the message for an ended attempt whose worker has no output of it."""
    return f"no files left on worker {attempt.worker}"


def _why_not_from_worker(cluster: Cluster, reading: log_reading.Reading) -> str:
    """Return why output must come from another source; "" if the worker has it, or if the attempt never started."""
    attempt = reading.attempt
    if _is_unreachable(cluster, reading):
        has_no_output = attempt.started_at is None and attempt.reaped_at is not None
        return "" if has_no_output else no_output_reason(attempt, reading.silence)
    return no_files_words(attempt) if reading.is_gone and attempt.end is not None else ""


def _is_unreachable(cluster: Cluster, reading: log_reading.Reading) -> bool:
    return reading.silence is not None or not has_output_on_worker(cluster, reading.attempt)


def _lines(
    texts: Sequence[log_reading.LogText], reading: log_reading.Reading
) -> tuple[log_reading.LogLine, ...]:
    """Return the requested number of last lines of each stream."""
    found: list[log_reading.LogLine] = []
    for name in reading.streams:
        lines = [line for text in texts if text.stream == name for line in text.lines()]
        found += lines if reading.query.tail is None else lines[max(0, len(lines) - reading.query.tail) :]
    return tuple(found)


def _no_output_words(job: Job, attempt: Attempt) -> str:
    if attempt.end is not None and attempt.started_at is None:
        return f"attempt {attempt.number} never started: {end_words(attempt.end)}"
    if attempt.end is None and attempt.started_at is None:
        progress = "is being set up" if attempt.acknowledged else "is being sent"
        return f"has not started: {progress} on worker {attempt.worker}"
    if job.client:
        return "no output: it is on the terminal of iris run"
    return "no output" + ("" if attempt.end is not None else " yet")
