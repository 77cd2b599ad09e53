"""`iris logs --follow`: the output of tasks as it is written, until nothing more can come."""

from __future__ import annotations

import math
from collections.abc import Iterator

from iris_cli.core.cluster import Cluster
from iris_cli.core.dataclass import dataclass, field
from iris_cli.core.ids import AttemptId, TaskId
from iris_cli.core.task import Attempt, Task
from iris_cli.ops.log_reading import LogLine, Reading, kept_lines, read
from iris_cli.ops.logs import Query, is_there, not_started, select, without_worker
from iris_cli.ops.session import Session
from iris_cli.ops.view import look
from iris_cli.ops.wait import Caretaker

POLL_EVERY = 1.0  # seconds
_LONGEST_BACKOFF = 30.0  # seconds between two tries of a worker that is silent


@dataclass
class Step:
    """What is new: lines in the order in which each task wrote them, and what is to be said of tasks."""

    lines: list[LogLine] = field(default_factory=list)
    notes: list[tuple[TaskId, str]] = field(default_factory=list)


@dataclass
class _Followed:
    """One attempt on its way to its end."""

    reading: Reading
    printed: bool = False
    failures: int = 0  # turns without an answer, in a row
    ask_after: float = 0.0  # by the monotonic clock
    done: bool = False


class Follower:
    """Follows tasks from attempt to attempt, or if one attempt was asked for just that.

    Lines come whole, none twice and none left out; a worker that does not answer is asked again later.
    `cut_short`: the end of some output could not be read. It stops by itself at `until`, a monotonic time.
    """

    def __init__(
        self,
        session: Session,
        what: str,
        query: Query,
        *,
        schedule: bool = False,
        until: float = math.inf,
    ) -> None:
        self.cut_short = False
        self._until = until
        self._session = session
        self._query = query
        self._caretaker = Caretaker(session, schedule=schedule)
        view = look(session)
        chosen = select(view.cluster, what, query)
        self._only_one = query.attempt is not None or "/attempt-" in what
        self._followed: dict[TaskId, _Followed | None] = {
            task.id: self._begin(task, attempt, query.tail) if attempt else None for task, attempt in chosen
        }
        self._first = Step(
            notes=[(task.id, not_started(view, task)) for task, attempt in chosen if not attempt]
        )

    @property
    def tasks(self) -> int:
        """How many tasks are followed."""
        return len(self._followed)

    def steps(self) -> Iterator[Step]:
        """Until every task is over and all it wrote was read. Waits between the steps."""
        yield self._first
        with self._caretaker:
            yield from self._steps()

    def _steps(self) -> Iterator[Step]:
        while True:
            cluster = self._caretaker.look()  # before reading: what had ended by then can write no more
            if notes := self._go_on(cluster):
                yield Step(notes=notes)
            # Who was silent comes last: waiting for it again must not hold up the lines of the others.
            for silent in (False, True):
                for step in self._read(cluster, silent=silent):
                    if step.lines or step.notes:
                        yield step
            if all(self._is_over(cluster.tasks[task]) for task in self._followed):
                return
            left = self._until - self._session.clock.monotonic()
            if left <= 0:
                return
            self._caretaker.pause(min(POLL_EVERY, left))

    def _begin(self, task: Task, attempt: Attempt, tail: int | None) -> _Followed:
        attempt_id = AttemptId(task.id, attempt.number)
        return _Followed(Reading(attempt_id, attempt, streams=self._query.streams, tail=tail))

    def _go_on(self, cluster: Cluster) -> list[tuple[TaskId, str]]:
        """Turn to the next attempt of every task whose last one has been read to its end."""
        notes = []
        for task_id, followed in self._followed.items():
            task = cluster.tasks[task_id]
            number = 0 if followed is None else followed.reading.id.number + 1
            if self._only_one or number >= len(task.attempts) or (followed and not followed.done):
                continue
            self._followed[task_id] = self._begin(task, task.attempts[number], None)
            notes.append((task_id, f"attempt {number} on worker {task.attempts[number].worker}"))
        return notes

    def _read(self, cluster: Cluster, *, silent: bool) -> Iterator[Step]:
        """One turn of everybody who is due; a step for each batch, so that a slow worker delays nobody."""
        now = self._session.clock.monotonic()
        due = {
            followed.reading.id: followed
            for followed in self._followed.values()
            if followed
            and not followed.done
            and now >= followed.ask_after
            and silent == bool(followed.failures)
        }
        gone = [each for each in due.values() if not is_there(cluster, each.reading.attempt)]
        asked = [each.reading for each in due.values() if each not in gone]
        step = Step()
        for followed in gone:
            self._finish(cluster, followed, step)
        yield step
        for batch in read(self._session, cluster, asked):
            step = Step()
            for reading in sorted(batch, key=lambda each: each.id):
                self._take(cluster, due[reading.id], step)
            yield step

    def _take(self, cluster: Cluster, followed: _Followed, step: Step) -> None:
        """What one turn of one attempt brought."""
        reading = followed.reading
        step.lines += reading.lines
        followed.printed = followed.printed or bool(reading.lines)
        ended = _has_ended(cluster, reading)
        if reading.silence is not None:
            followed.failures += 1
            pause = min(2.0 ** min(followed.failures, 10), _LONGEST_BACKOFF)
            followed.ask_after = self._session.clock.monotonic() + pause
            if not ended and followed.failures == 1:
                step.notes.append(
                    (reading.id.task, f"{without_worker(reading.attempt, reading.silence)}; trying again")
                )
        elif followed.failures:
            followed.failures = 0
            step.notes.append((reading.id.task, f"worker {reading.attempt.worker} answers again"))
        if ended and (reading.at_end or reading.silence is not None):
            self._finish(cluster, followed, step)

    def _finish(self, cluster: Cluster, followed: _Followed, step: Step) -> None:
        """Nothing more will be read of this attempt."""
        reading = followed.reading
        rest = reading.rest()
        step.lines += rest
        followed.done = True
        end = cluster.attempt(reading.id).end
        why = "" if reading.at_end else without_worker(reading.attempt, reading.silence)
        if not (followed.printed or rest) and end is not None and end.log_tail:
            step.lines += kept_lines(reading.id, end.log_tail, reading.tail)
            why = why or f"nothing is left on worker {reading.attempt.worker}"
            step.notes.append((reading.id.task, f"{why}; these last lines are from the log"))
        elif why:
            step.notes.append((reading.id.task, f"{why}; the end of its output is missing"))
        self.cut_short = self.cut_short or bool(reading.silence)

    def _is_over(self, task: Task) -> bool:
        followed = self._followed[task.id]
        if followed is None:
            return task.state.terminal
        last = followed.reading.id.number == len(task.attempts) - 1
        return followed.done and (self._only_one or (last and task.state.terminal))


def _has_ended(cluster: Cluster, reading: Reading) -> bool:
    """Whether there is nothing to wait for. A stop may never be proven where the worker is silent."""
    if reading.silence is not None and cluster.tasks[reading.id.task].state.terminal:
        return True
    return cluster.attempt(reading.id).end is not None
