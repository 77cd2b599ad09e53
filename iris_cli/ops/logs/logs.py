"""`iris logs`: what tasks have written, fetched from their workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from iris_cli.core.ids import AttemptId, TaskId, WorkerId
from iris_cli.core.messages.observations import Silence
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.task import Attempt, Task
from iris_cli.core.units import format_duration
from iris_cli.ops.logs.log_reading import BOTH, LogLine, LogText, Reading, read
from iris_cli.ops.logs.remains import Remains, remains
from iris_cli.ops.names import select_tasks
from iris_cli.ops.outcomes.causes import end_words
from iris_cli.ops.session import Session
from iris_cli.ops.views.view import View, look


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
    """The end of the logs of a job, a task or an attempt, as they are now, by task index.

    Raises NotFoundError and UsageError.
    """
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
        return (
            f"its output was removed from worker {attempt.worker} {kept} after it ended (limits.reap_after)"
        )
    if silence is None:
        return f"worker {attempt.worker} is no longer part of the cluster"
    return f"no answer from worker {attempt.worker} ({silence.step}: {silence.detail})"


def nothing_left(attempt: Attempt) -> str:
    """What is to be said of an attempt that has ended, and whose worker has no output of it."""
    return f"nothing is left on worker {attempt.worker}"


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
    return "has written nothing" + ("" if attempt.end is not None else " yet")
