"""Follow the output of tasks for `iris logs --follow`, until all of it was read."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial

from msgspec import Struct, field, structs

from iris_cli.core import Attempt, Cluster, Task, TaskId, TaskState, WorkerId
from iris_cli.core.ids import is_attempt_name
from iris_cli.ops.logs import logs
from iris_cli.ops.logs.log_reading import LogLine, LogText, Query, Reading, by_worker, poll_worker, take_turns
from iris_cli.ops.loop.foreground import CycleRunner
from iris_cli.ops.names import select_tasks
from iris_cli.ops.session import Session
from iris_cli.ops.views.view import load_view
from iris_cli.remote.fan_out import FanOut

POLL_EVERY = 1.0  # seconds
CALLS_A_SECOND = 32  # a call costs this machine a millisecond, so many workers are read less often
MAX_RATE = 1 << 20  # characters per second; more output is unreadable, and expensive to print
CALLS_A_SECOND_AT_MAX_RATE = 12  # calls per second if the output exceeds MAX_RATE
STEP_TIME = 1.0  # seconds; answers within this time are one step, so that equal lines can be folded
CALLS_PER_BATCH = 8  # calls that are sent before answers are received
_SHORT_WAIT = 0.01  # seconds to wait for answers between two batches of calls
MAX_TRIES = 3  # maximum calls in a row to a silent worker after its attempt has ended
_LATE_ANSWERS = 0.1  # seconds between two checks for late answers
_MAX_BACKOFF = 30.0  # maximum seconds between two calls to a silent worker


class Step(Struct):
    """New lines, in the order in which each task wrote them, and notes about tasks.

    `is_full_poll`: all workers were polled, and not only workers with unread output.
    """

    texts: list[LogText] = field(default_factory=list)
    notes: list[tuple[TaskId, str]] = field(default_factory=list)
    is_full_poll: bool = False

    @property
    def lines(self) -> list[LogLine]:
        return [line for text in self.texts for line in text.lines()]


class _FollowedAttempt(Struct):
    """One attempt that is being followed."""

    reading: Reading
    printed: bool = False
    failures: int = 0  # consecutive calls without an answer
    poll_after: float = 0.0  # monotonic time of the next poll after a failure
    done: bool = False

    @property
    def is_behind(self) -> bool:
        """True if the last poll left output unread."""
        return self.reading.silence is None and not self.reading.at_end


class Follower:
    """Follows tasks from attempt to attempt, or only one attempt if `name` or `query` selects one.

    Each line is returned as a whole and exactly once. A silent worker is polled again later. `until`: monotonic time at
    which to stop. At the end, `cut_short` is True if the end of an output could not be read.
    """

    def __init__(self, session: Session, name: str, query: Query, *, until: float = math.inf) -> None:
        self.cut_short = False
        # Workers with an open call, each with the cluster at the time of the call.
        self._open_calls: dict[WorkerId, Cluster] = {}
        self._last_full_poll = self._next_full_poll = -math.inf  # monotonic times
        self._received = 0  # characters since the last full poll
        self._until = until
        self._other_texts: list[Iterator[LogText]] = []  # texts of pulled copies and of log tails
        self._session = session
        self._query = query
        self._runner = CycleRunner(session)
        self._printed_reasons: dict[TaskId, str] = {}  # last reason printed for each pending retry
        view = load_view(session, runs_cycles=True)
        chosen = select_tasks(view.cluster, name, ranks=query.ranks, attempt=query.attempt)
        self._only_one_attempt = query.attempt is not None or is_attempt_name(name)
        self._followed: dict[TaskId, _FollowedAttempt | None] = {
            task.id: self._follow(task, attempt, query.tail) if attempt else None for task, attempt in chosen
        }
        self._first = Step(
            notes=[(task.id, logs.not_started_words(view, task)) for task, attempt in chosen if not attempt]
        )

    @property
    def tasks(self) -> int:
        return len(self._followed)

    def steps(self) -> Iterator[Step]:
        """Yield a step about once per second, even without lines, until all tasks have ended and were read."""
        yield self._first
        fan_out: FanOut[Sequence[Reading]] = self._session.make_fan_out(
            self._session.limits.max_dispatch_parallelism
        )
        with self._runner, closing(fan_out):
            while True:
                # Read the cluster BEFORE the output, because an attempt that has ended writes no more output.
                cluster = self._runner.run_due_cycle()
                step = Step(notes=[*self._follow_next_attempts(cluster), *self._retry_notes(cluster)])
                self._finish_attempts_without_worker(cluster, step)
                self._submit(fan_out, cluster, step)
                self._collect(fan_out, step)
                yield step
                yield from (Step(texts=texts) for texts in take_turns(self._other_texts))
                self._other_texts = []
                if all(self._is_finished(cluster.tasks[task]) for task in self._followed):
                    return
                time_left = self._until - self._session.clock.monotonic()
                if time_left <= 0:
                    return
                self._runner.pause(min(self._pause(), time_left))

    def _follow(self, task: Task, attempt: Attempt, tail: int | None) -> _FollowedAttempt:
        return _FollowedAttempt(Reading(task.id, attempt, structs.replace(self._query, tail=tail)))

    def _follow_next_attempts(self, cluster: Cluster) -> list[tuple[TaskId, str]]:
        """Follow the next attempt of each task whose last attempt was read to the end. Return a note about each."""
        notes = []
        for task_id, followed in self._followed.items():
            task = cluster.tasks[task_id]
            number = 0 if followed is None else followed.reading.id.number + 1
            if self._only_one_attempt or number >= len(task.attempts) or (followed and not followed.done):
                continue
            self._followed[task_id] = self._follow(task, task.attempts[number], None)
            notes.append((task_id, f"attempt {number} on worker {task.attempts[number].worker}"))
        return notes

    def _retry_notes(self, cluster: Cluster) -> Iterator[tuple[TaskId, str]]:
        """Yield a note for each pending retry, once per reason."""
        for task_id, followed in self._followed.items():
            task, job = cluster.tasks[task_id], cluster.jobs[task_id.job]
            if (
                self._only_one_attempt
                or followed is None
                or not followed.done
                or task.state is not TaskState.PENDING
            ):
                continue
            reason = self._runner.reason(job.id if job.is_gang else task_id)
            if reason and self._printed_reasons.get(task_id) != reason:
                self._printed_reasons[task_id] = reason
                yield task_id, f"retry pending: {reason}"

    def _select(self, predicate: Callable[[_FollowedAttempt], bool]) -> list[_FollowedAttempt]:
        """Return the unfinished attempts that satisfy `predicate`, except those on workers with an open call."""
        return [
            each
            for each in self._followed.values()
            if each
            and not each.done
            and each.reading.attempt.worker not in self._open_calls
            and predicate(each)
        ]

    def _finish_attempts_without_worker(self, cluster: Cluster, step: Step) -> None:
        for followed in self._select(
            lambda each: not logs.has_output_on_worker(cluster, each.reading.attempt)
        ):
            attempt = cluster.attempt(followed.reading.id)
            self._finish(cluster, followed, step, logs.no_output_reason(attempt, None))

    def _submit(self, fan_out: FanOut[Sequence[Reading]], cluster: Cluster, step: Step) -> None:
        """Poll the workers that are due, one call each."""
        now = self._session.clock.monotonic()
        unfinished = self._select(lambda each: now >= each.poll_after)
        step.is_full_poll = is_full = now >= self._next_full_poll
        if is_full:
            workers = {each.reading.attempt.worker for each in unfinished}
            is_flood = self._received > MAX_RATE * (now - self._last_full_poll)
            calls = CALLS_A_SECOND_AT_MAX_RATE if is_flood else CALLS_A_SECOND
            interval = max(POLL_EVERY, len(workers) / calls)
            self._last_full_poll, self._next_full_poll = now, now + interval
            self._runner.min_interval = interval  # because a cycle also polls the workers
            self._received = 0
        due = by_worker([each.reading for each in unfinished if is_full or each.is_behind or each.failures])
        _ = self._session.runner  # creates the runner before the threads use it
        for number, (worker, readings) in enumerate(due.items(), 1):
            self._open_calls[worker] = cluster
            fan_out.submit(partial(poll_worker, self._session, cluster, readings, len(due)))
            if not number % CALLS_PER_BATCH:  # many threads that wake at the same time are slow
                self._receive(fan_out.take(_SHORT_WAIT), step)

    def _collect(self, fan_out: FanOut[Sequence[Reading]], step: Step) -> None:
        """Receive answers for STEP_TIME seconds. Later answers belong to the next step."""
        until = self._session.clock.monotonic() + STEP_TIME
        while self._open_calls:
            answered = fan_out.take(max(0.0, until - self._session.clock.monotonic()))
            if not answered:
                break
            self._receive(answered, step)

    def _receive(self, answered: Sequence[Sequence[Reading]], step: Step) -> None:
        for reading in sorted((each for readings in answered for each in readings), key=lambda each: each.id):
            self._process(self._open_calls[reading.attempt.worker], reading, step)
        for readings in answered:
            del self._open_calls[readings[0].attempt.worker]

    def _pause(self) -> float:
        """Return the seconds until the next poll or late answer."""
        if self._select(lambda each: each.is_behind):
            return 0.0
        if self._open_calls:
            return _LATE_ANSWERS
        return min(POLL_EVERY, max(0.0, self._next_full_poll - self._session.clock.monotonic()))

    def _process(self, cluster: Cluster, reading: Reading, step: Step) -> None:
        """Add the result of one poll of an attempt to the step. `cluster` was read before the poll."""
        followed = self._followed[reading.id.task]
        assert followed is not None, "only followed attempts are polled"
        step.texts += reading.texts
        self._received += sum(len(text.text) for text in reading.texts)
        followed.printed = followed.printed or bool(reading.texts)
        ended = _has_ended(cluster, reading)
        worker = reading.attempt.worker
        if reading.silence is not None:
            followed.failures += 1
            pause = min(2.0 ** min(followed.failures, 10), _MAX_BACKOFF)
            followed.poll_after = self._session.clock.monotonic() + pause
            if not ended and followed.failures == 1:
                why = logs.no_output_reason(reading.attempt, reading.silence)
                step.notes.append((reading.id.task, f"{why}; trying again"))
        elif followed.failures:
            followed.failures = 0
            step.notes.append((reading.id.task, f"worker {worker} answers again"))
        for stream in reading.replaced:
            note = f"{stream} was replaced or truncated on worker {worker}; printing it from the start"
            step.notes.append((reading.id.task, note))
        if not ended:
            return
        if reading.silence is not None:
            if followed.failures >= MAX_TRIES:
                self._finish(cluster, followed, step, logs.no_output_reason(reading.attempt, reading.silence))
        elif reading.is_gone and not followed.printed:
            self._finish(cluster, followed, step, logs.no_files_words(reading.attempt))
        elif reading.at_end:
            self._finish(cluster, followed, step)

    def _finish(self, cluster: Cluster, followed: _FollowedAttempt, step: Step, why: str = "") -> None:
        """Finish an attempt. `why`: why its output could not be read to the end from the worker, otherwise ''."""
        reading = followed.reading
        followed.done = True
        if why:
            attempt = cluster.attempt(reading.id)
            output = logs.other_output(
                self._session, reading, attempt, why, has_shown_output=followed.printed
            )
            self._other_texts.append(_with_last_line(output.texts, reading))
            if output.has_texts or why != logs.no_files_words(attempt):
                step.notes.append((reading.id.task, output.note))
            self.cut_short = self.cut_short or (reading.silence is not None and not output.has_end)
        else:
            step.texts += reading.rest()

    def _is_finished(self, task: Task) -> bool:
        followed = self._followed[task.id]
        if followed is None:
            return task.state.terminal
        is_last = followed.reading.id.number == len(task.attempts) - 1
        return followed.done and (self._only_one_attempt or (is_last and task.state.terminal))


def _with_last_line(texts: Iterable[LogText], reading: Reading) -> Iterator[LogText]:
    """Yield the remaining texts of an output, and its unfinished last line."""
    yield from texts
    yield from reading.rest()


def _has_ended(cluster: Cluster, reading: Reading) -> bool:
    """Return True if the attempt has ended. If its worker is silent, the end of the task is enough."""
    if reading.silence is not None and cluster.tasks[reading.id.task].state.terminal:
        return True
    return cluster.attempt(reading.id).end is not None
