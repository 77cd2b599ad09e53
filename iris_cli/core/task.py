"""Tasks and their attempts. A task is not its attempts: each keeps its own state and its own end."""

from __future__ import annotations

from enum import StrEnum

from iris_cli.core.ids import AttemptId, JobId, TaskId, Token, WorkerId
from iris_cli.core.outcome import End, EndReason
from iris_cli.core.structs import Record, Value


class TaskState(StrEnum):
    """`RUNNING` starts when the worker says that the user's command started."""

    PENDING = "PENDING"
    ASSIGNED = "ASSIGNED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    WORKER_FAILED = "WORKER_FAILED"
    UNSCHEDULABLE = "UNSCHEDULABLE"

    @property
    def terminal(self) -> bool:
        return self not in _OPEN


_OPEN = frozenset({TaskState.PENDING, TaskState.ASSIGNED, TaskState.RUNNING})


class AttemptState(StrEnum):
    """Only `ENDED` releases what the attempt holds: not a decision, not a kill that was sent."""

    ASSIGNED = "ASSIGNED"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    ENDED = "ENDED"


class StopOrder(Value, frozen=True, kw_only=True):
    """Why an attempt is being stopped, and since when. `skew` is what was known then of its worker's clock.

    Should either of the two clocks be set afterwards, that shows as another skew.
    """

    reason: EndReason
    at: float
    trigger: TaskId | None = None
    skew: float = 0.0


class Attempt(Record, kw_only=True):
    """One try at one task on one worker. Times are seconds since the epoch by the operator's clock."""

    number: int
    worker: WorkerId
    token: Token
    state: AttemptState = AttemptState.ASSIGNED
    round: int = 0
    gpus: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()  # one for each name of its job
    chosen: str = ""  # why it was placed there, if others were passed over for it
    assigned_at: float = 0.0
    acknowledged: bool = False  # the worker said that it has it
    taken_over: bool = False  # its dispatcher died or slept: only the worker may say "not started" now
    refused: bool = False  # the worker said no
    held_up: str = ""  # the worker was told to start it, and did not: what is known of that
    orphaned: bool = False  # its wrapper is gone: it runs, and nobody there watches over it
    unkillable: bool = False  # a process of it survived SIGKILL: only a reboot ends that
    presumed: bool = False  # taken for dead: by `replace_lost`, by the operator's word, or as its lease ended
    started_at: float | None = None
    stop: StopOrder | None = None
    end: End | None = None
    ended_at: float | None = None  # when the end was recorded; `end.at` is when it happened
    reaped_at: float | None = None  # nothing of its output is left on the worker

    @property
    def live(self) -> bool:
        return self.state is not AttemptState.ENDED


class Task(Record, kw_only=True):
    """One replica of a job. `attempts[n].number == n`; the last one is the current attempt."""

    id: TaskId
    state: TaskState = TaskState.PENDING
    attempts: tuple[Attempt, ...] = ()
    failures: int = 0  # charged against max_retries_failure
    preemptions: int = 0  # charged against max_retries_preemption
    refusals: int = 0  # refused by workers, in a row
    end: End | None = None

    @property
    def job(self) -> JobId:
        return self.id.job

    @property
    def index(self) -> int:
        return self.id.index

    @property
    def current(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def current_id(self) -> AttemptId:
        """The id of the last attempt. The task must have been placed once."""
        return AttemptId(self.id, len(self.attempts) - 1)
