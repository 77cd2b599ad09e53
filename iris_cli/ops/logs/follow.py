"""Output of tasks as it is written, for `iris logs --follow`, until no more can come."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial

from msgspec import Struct, field

from iris_cli.core import Attempt, AttemptId, Cluster, Task, TaskId, TaskState, WorkerId
from iris_cli.ops.logs.log_reading import LogLine, LogText, Reading, ask, by_worker
from iris_cli.ops.logs.logs import Query, is_there, not_started, nothing_left, remains, without_worker
from iris_cli.ops.loop.wait import Caretaker
from iris_cli.ops.names import select_tasks
from iris_cli.ops.session import Session
from iris_cli.ops.views.view import look
from iris_cli.remote.fan_out import FanOut

POLL_EVERY = 1.0  # seconds
CALLS_A_SECOND = 32  # a call costs this machine a millisecond: many workers are polled less often
FLOOD = 1 << 20  # characters per second: more is unreadable, and expensive by itself
CALLS_IN_A_FLOOD = 12  # per second
TOGETHER = 1.0  # seconds in which answers of one turn form one step, so that equal lines can be folded
AT_ONCE = 8  # workers polled at the same time, if they answer in
_A_MOMENT = 0.01  # seconds
LAST_TRIES = 3  # for the end of finished output: a worker silent then may stay silent
_LATE_ANSWERS = 0.1  # seconds between two checks for late answers
_LONGEST_BACKOFF = 30.0  # seconds between two tries of a silent worker


class Step(Struct):
    """New lines, in the order in which each task wrote them, and notes about tasks.

    `is_turn`: all workers were polled, not only those behind.
    """

    texts: list[LogText] = field(default_factory=list)
    notes: list[tuple[TaskId, str]] = field(default_factory=list)
    is_turn: bool = False

    @property
    def lines(self) -> list[LogLine]:
        """Lines one by one."""
        return [line for text in self.texts for line in text.lines()]


class _Followed(Struct):
    """One attempt that is being followed."""

    reading: Reading
    printed: bool = False
    failures: int = 0  # turns without an answer, in a row
    ask_after: float = 0.0  # by the monotonic clock, after a failure
    done: bool = False

    @property
    def is_behind(self) -> bool:
        """True if the last turn left something unread."""
        return self.reading.silence is None and not self.reading.at_end


class Follower:
    """Follower of tasks from attempt to attempt, or of a single attempt if one was named.

    Each line comes whole and exactly once; a silent worker is polled again later. `cut_short`: the end of
    some output could not be read. It stops at `until`, a monotonic time.
    """

    def __init__(
        self,
        session: Session,
        what: str,
        query: Query,
        *,
        until: float = math.inf,
    ) -> None:
        self.cut_short = False
        # Workers without an answer yet, with the cluster at the time of the call:
        self._asked: dict[WorkerId, Cluster] = {}
        self._last_tick = self._next_tick = -math.inf  # times of full polls, monotonic clock
        self._came = 0  # characters since then
        self._until = until
        self._remains: list[Iterator[LogText]] = []  # texts from other sources than workers, not shown yet
        self._session = session
        self._query = query
        self._caretaker = Caretaker(session)
        self._waits: dict[TaskId, str] = {}  # last reason printed for each pending retry
        view = look(session, runs_cycles=True)
        chosen = select_tasks(view.cluster, what, ranks=query.ranks, attempt=query.attempt)
        self._only_one = query.attempt is not None or "/attempt-" in what
        self._followed: dict[TaskId, _Followed | None] = {
            task.id: self._begin(task, attempt, query.tail) if attempt else None for task, attempt in chosen
        }
        self._first = Step(
            notes=[(task.id, not_started(view, task)) for task, attempt in chosen if not attempt]
        )

    @property
    def tasks(self) -> int:
        """Number of tasks followed."""
        return len(self._followed)

    def steps(self) -> Iterator[Step]:
        """Yield steps until every task has ended and its output was read: at least one per second, maybe empty."""
        yield self._first
        fan_out: FanOut[Sequence[Reading]] = self._session.make_fan_out(
            self._session.limits.max_dispatch_parallelism
        )
        with self._caretaker, closing(fan_out):
            yield from self._steps(fan_out)

    def _steps(self, fan_out: FanOut[Sequence[Reading]]) -> Iterator[Step]:
        clock = self._session.clock
        while True:
            cluster = self._caretaker.look()  # before reading: an attempt that has ended writes no more
            step = Step(notes=[*self._go_on(cluster), *self._waiting_retries(cluster)])
            self._finish_those_without_worker(cluster, step)
            self._submit(fan_out, cluster, step)
            self._collect(fan_out, step)
            yield step
            yield from self._steps_of_remains()
            if all(self._is_over(cluster.tasks[task]) for task in self._followed):
                return
            left = self._until - clock.monotonic()
            if left <= 0:
                return
            self._caretaker.pause(min(self._pause(), left))

    def _begin(self, task: Task, attempt: Attempt, tail: int | None) -> _Followed:
        attempt_id = AttemptId(task.id, attempt.number)
        streams, relative = self._query.streams, self._query.relative
        return _Followed(Reading(attempt_id, attempt, streams=streams, tail=tail, relative=relative))

    def _go_on(self, cluster: Cluster) -> list[tuple[TaskId, str]]:
        """Switch to the next attempt of every task whose last one was read to its end."""
        notes = []
        for task_id, followed in self._followed.items():
            task = cluster.tasks[task_id]
            number = 0 if followed is None else followed.reading.id.number + 1
            if self._only_one or number >= len(task.attempts) or (followed and not followed.done):
                continue
            self._followed[task_id] = self._begin(task, task.attempts[number], None)
            notes.append((task_id, f"attempt {number} on worker {task.attempts[number].worker}"))
        return notes

    def _waiting_retries(self, cluster: Cluster) -> Iterator[tuple[TaskId, str]]:
        """Yield a note for each pending retry, once per reason."""
        for task_id, followed in self._followed.items():
            task, job = cluster.tasks[task_id], cluster.jobs[task_id.job]
            if self._only_one or followed is None or not followed.done or task.state is not TaskState.PENDING:
                continue
            reason = self._caretaker.reason(job.id if job.is_gang else task_id)
            if reason and self._waits.get(task_id) != reason:
                self._waits[task_id] = reason
                yield task_id, f"retry pending: {reason}"

    def _open(self, when: Callable[[_Followed], bool]) -> list[_Followed]:
        """Return the unfinished attempts whose worker is not being polled and that satisfy `when`."""
        return [
            each
            for each in self._followed.values()
            if each and not each.done and each.reading.attempt.worker not in self._asked and when(each)
        ]

    def _finish_those_without_worker(self, cluster: Cluster, step: Step) -> None:
        for followed in self._open(lambda each: not is_there(cluster, each.reading.attempt)):
            attempt = cluster.attempt(followed.reading.id)
            self._finish(cluster, followed, step, without_worker(attempt, None))

    def _submit(self, fan_out: FanOut[Sequence[Reading]], cluster: Cluster, step: Step) -> None:
        """Poll the workers that are due, one call each."""
        now = self._session.clock.monotonic()
        open_ones = self._open(lambda each: now >= each.ask_after)
        step.is_turn = is_tick = now >= self._next_tick
        if is_tick:
            workers = {each.reading.attempt.worker for each in open_ones}
            is_flood = self._came > FLOOD * (now - self._last_tick)
            calls = CALLS_IN_A_FLOOD if is_flood else CALLS_A_SECOND
            turn = max(POLL_EVERY, len(workers) / calls)
            self._last_tick, self._next_tick = now, now + turn
            self._caretaker.least = turn  # its polls are calls, too
            self._came = 0
        due = by_worker([each.reading for each in open_ones if is_tick or each.is_behind or each.failures])
        self._session.runner  # noqa: B018 - created once, before any thread uses it
        for number, (worker, readings) in enumerate(due.items(), 1):
            self._asked[worker] = cluster
            fan_out.submit(partial(ask, self._session, cluster, readings, len(due)))
            if not number % AT_ONCE:  # many threads waking at once cost twice as much
                self._hear(fan_out.take(_A_MOMENT), step)

    def _collect(self, fan_out: FanOut[Sequence[Reading]], step: Step) -> None:
        """Receive answers for TOGETHER seconds. Later answers belong to the next turn."""
        until = self._session.clock.monotonic() + TOGETHER
        while self._asked:
            answered = fan_out.take(max(0.0, until - self._session.clock.monotonic()))
            if not answered:
                break
            self._hear(answered, step)

    def _hear(self, answered: Sequence[Sequence[Reading]], step: Step) -> None:
        for reading in sorted((each for readings in answered for each in readings), key=lambda each: each.id):
            self._take(self._asked[reading.attempt.worker], reading, step)
        for readings in answered:
            del self._asked[readings[0].attempt.worker]

    def _pause(self) -> float:
        """Return the seconds until the next poll or late answer."""
        if self._open(lambda each: each.is_behind):
            return 0.0
        if self._asked:
            return _LATE_ANSWERS
        return min(POLL_EVERY, max(0.0, self._next_tick - self._session.clock.monotonic()))

    def _take(self, cluster: Cluster, reading: Reading, step: Step) -> None:
        """Take the result of one turn of an attempt. `cluster` is from before the poll."""
        followed = self._followed[reading.id.task]
        assert followed is not None, "it was asked for"
        step.texts += reading.texts
        self._came += sum(len(text.text) for text in reading.texts)
        followed.printed = followed.printed or bool(reading.texts)
        ended = _has_ended(cluster, reading)
        worker = reading.attempt.worker
        if reading.silence is not None:
            followed.failures += 1
            pause = min(2.0 ** min(followed.failures, 10), _LONGEST_BACKOFF)
            followed.ask_after = self._session.clock.monotonic() + pause
            if not ended and followed.failures == 1:
                why = without_worker(reading.attempt, reading.silence)
                step.notes.append((reading.id.task, f"{why}; trying again"))
        elif followed.failures:
            followed.failures = 0
            step.notes.append((reading.id.task, f"worker {worker} answers again"))
        for stream in reading.replaced:
            what = f"{stream} was replaced or truncated on worker {worker}; printing it from the start"
            step.notes.append((reading.id.task, what))
        if not ended:
            return
        if reading.silence is not None:
            if followed.failures >= LAST_TRIES:
                self._finish(cluster, followed, step, without_worker(reading.attempt, reading.silence))
        elif reading.is_gone and not followed.printed:
            self._finish(cluster, followed, step, nothing_left(reading.attempt))
        elif reading.at_end:
            self._finish(cluster, followed, step)

    def _finish(self, cluster: Cluster, followed: _Followed, step: Step, why: str = "") -> None:
        """Finish an attempt; `why` says why its output could not be read to the end, if so."""
        reading = followed.reading
        followed.done = True
        if why:
            attempt = cluster.attempt(reading.id)
            left = remains(self._session, reading, attempt, why, begun=followed.printed)
            self._remains.append(_then(left.texts, reading))
            if left.anything or why != nothing_left(attempt):
                step.notes.append((reading.id.task, left.note))
            self.cut_short = self.cut_short or (reading.silence is not None and not left.whole)
        else:
            step.texts += reading.rest()

    def _steps_of_remains(self) -> Iterator[Step]:
        """Yield a piece of each at a time: pulled output may exceed memory."""
        unread, self._remains = self._remains, []
        while unread:
            turn = [(texts, next(texts, None)) for texts in unread]
            unread = [texts for texts, text in turn if text is not None]
            yield Step(texts=[text for _, text in turn if text is not None])

    def _is_over(self, task: Task) -> bool:
        followed = self._followed[task.id]
        if followed is None:
            return task.state.terminal
        last = followed.reading.id.number == len(task.attempts) - 1
        return followed.done and (self._only_one or (last and task.state.terminal))


def _then(texts: Iterable[LogText], reading: Reading) -> Iterator[LogText]:
    """Yield the remaining texts of an output, and its unfinished last line."""
    yield from texts
    yield from reading.rest()


def _has_ended(cluster: Cluster, reading: Reading) -> bool:
    """Return True if no more output can come. A stop may never be proven if the worker is silent."""
    if reading.silence is not None and cluster.tasks[reading.id.task].state.terminal:
        return True
    return cluster.attempt(reading.id).end is not None
