"""Tasks and their attempts. Each has a state, and an end when it has ended."""

from __future__ import annotations

import signal
from enum import StrEnum
from typing import ClassVar, final

from iris_cli.core.ids import AttemptId, JobId, TaskId
from iris_cli.core.ids import StoredToken as Token
from iris_cli.core.ids import StoredWorkerId as WorkerId
from iris_cli.core.structs import Record, Value


class EndReason(StrEnum):
    """Reason of the end of an attempt, a task or a job."""

    OK = "ok"
    USER_ERROR = "user_error"
    TIMEOUT = "timeout"
    OOM = "oom"
    SIGNAL = "signal"
    SETUP_FAILED = "setup_failed"
    WORKER_FAILED = "worker_failed"
    PREEMPTED = "preempted"
    DISPATCH_FAILED = "dispatch_failed"
    SIBLING = "sibling"
    CANCELLED = "cancelled"
    RETRIED = "retried"
    JOB_ENDED = "job_ended"
    SCHEDULING_TIMEOUT = "scheduling_timeout"
    DEPENDENCY_FAILED = "dependency_failed"


INFRASTRUCTURE = frozenset({EndReason.WORKER_FAILED, EndReason.PREEMPTED})
"""Reasons of ends caused by a host, not by the user's program. A verdict prefers them to exit codes, because siblings
of a rank on a lost host fail, too."""

PROGRAM_FAILURES = frozenset({EndReason.USER_ERROR, EndReason.OOM, EndReason.SIGNAL, EndReason.SETUP_FAILED})
"""Reasons of ends charged against `max_retries_failure`. TIMEOUT is not charged: it is never retried."""


class FactKind(StrEnum):
    """Kind of a fact about a failed attempt."""

    MEMORY = "memory"  # the kernel killed a process because memory ran out
    KILLED = "killed"  # SIGKILL or exit 137, and no OOM kill by the kernel
    CRASH = "crash"  # the kernel's line about a CPU fault or a segmentation fault
    DISK = "disk"  # a file system of the task had no space left
    PREEMPTED = "preempted"  # the metadata server had announced the end of the VM
    HARDWARE = "hardware"  # the kernel's line about a chip, a disk, or a temperature


class Fact(Value, frozen=True, kw_only=True):
    """A fact that the worker found after an attempt's command failed.

    `proven`: the fact is certainly about this attempt, not about another process of the host. `text` comes from the
    worker and its kernel, so it may contain control characters.
    """

    kind: FactKind
    proven: bool = False
    text: str = ""


class End(Value, frozen=True, kw_only=True):
    """The end of an attempt, a task or a job.

    `at`: time of the end in seconds since the epoch, converted to the operator's clock.
    `trigger`: the task that caused the end, if it was another task. `ran`: the run time of the command in seconds, by
    the worker's clock; None if not reported. `facts`: at most one of each kind.
    """

    reason: EndReason
    at: float = 0.0
    exit_code: int | None = None
    trigger: TaskId | None = None
    error: str = ""
    log_tail: str = ""
    ran: float | None = None
    facts: tuple[Fact, ...] = ()

    def with_cause(self, reason: EndReason, at: float, trigger: TaskId | None) -> End:
        """Return the same end with another reason, time and trigger."""
        return End(
            reason=reason,
            at=at,
            exit_code=self.exit_code,
            trigger=trigger,
            error=self.error,
            log_tail=self.log_tail,
            ran=self.ran,
            facts=self.facts,
        )

    def without_details(self) -> End:
        """Return the end without log tail, run time and facts. Only the end of an attempt has these details."""
        return End(
            reason=self.reason, at=self.at, exit_code=self.exit_code, trigger=self.trigger, error=self.error
        )


def fact_of(end: End, kind: FactKind) -> Fact | None:
    return next((fact for fact in end.facts if fact.kind is kind), None)


def signal_of(end: End) -> str | None:
    """Return the name of the signal that ended the command (`SIGKILL`), or None.

    The exit code alone does not show a signal, because a program can exit with 137.
    """
    return _signal_name(end.exit_code) if end.reason is EndReason.SIGNAL else None


def vm_is_preempted(facts: tuple[Fact, ...]) -> bool:
    """Return whether the cloud had announced the end of the VM when the worker found these facts."""
    return any(fact.kind is FactKind.PREEMPTED and fact.proven for fact in facts)


def reason_of_exit(exit_code: int, cause: str, facts: tuple[Fact, ...] = ()) -> EndReason:
    """Return the reason of an end, from the worker's exit record. `cause` is empty, `timeout`, `oom`, or `signal`.

    A failure on a VM whose end is announced counts as a preemption.
    """
    if cause == EndReason.TIMEOUT:
        return EndReason.TIMEOUT
    if exit_code == 0:
        return EndReason.OK
    if vm_is_preempted(facts):
        return EndReason.PREEMPTED
    if cause == EndReason.OOM:
        return EndReason.OOM
    signalled = cause == EndReason.SIGNAL and _signal_name(exit_code)
    return EndReason.SIGNAL if signalled else EndReason.USER_ERROR


def _signal_name(exit_code: int | None) -> str | None:
    """Return the name of the signal that a shell reports as exit status 128 + number, or None."""
    if exit_code is None or not 128 < exit_code < 128 + 65:
        return None
    try:
        return signal.Signals(exit_code - 128).name
    except ValueError:
        return None


class TaskState(StrEnum):
    """State of a task. `RUNNING` starts when the worker reports that the user's command started."""

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

    __hash__ = str.__hash__  # because the hash of an enum is much slower


_OPEN = frozenset({TaskState.PENDING, TaskState.ASSIGNED, TaskState.RUNNING})


class AttemptState(StrEnum):
    """State of an attempt. Its resources are released only in `ENDED`, not when a stop is ordered or sent."""

    ASSIGNED = "ASSIGNED"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    ENDED = "ENDED"


class StopOrder(Value, frozen=True, kw_only=True):
    """Reason and time of a stop order, and the worker's clock `skew` at that time, to detect changed clocks."""

    reason: EndReason
    at: float
    trigger: TaskId | None = None
    skew: float = 0.0


class _Phase(Value, frozen=True, kw_only=True, tag_field="state"):
    """A phase of an attempt, with the data that only this phase has.

    Compare with `type(phase) is Ended`: `isinstance` takes 20 times as long for a struct.
    """


@final
class Assigned(_Phase, frozen=True, kw_only=True, tag=AttemptState.ASSIGNED.value):
    """The task was placed; its command has not started."""

    state: ClassVar[AttemptState] = AttemptState.ASSIGNED
    acknowledged: bool = False  # the worker acknowledged it
    taken_over: bool = False  # any invocation may repeat its dispatch
    held_up: str = ""  # why the worker did not start it after `go`


@final
class Running(_Phase, frozen=True, kw_only=True, tag=AttemptState.RUNNING.value):
    """The worker reported that the command has started."""

    state: ClassVar[AttemptState] = AttemptState.RUNNING
    started_at: float
    orphaned: bool = False  # its wrapper is gone, so no time limit applies
    quiet_since: float | None = None  # time of its last output if it is marked quiet
    quiet_in: str = ""  # the function that its program then executed; "" if unknown


@final
class Stopping(_Phase, frozen=True, kw_only=True, tag=AttemptState.STOPPING.value):
    """A stop was ordered. `before` is the phase before the order, or Running if the command started after the order."""

    state: ClassVar[AttemptState] = AttemptState.STOPPING
    order: StopOrder
    before: Assigned | Running
    unkillable: bool = False  # one of its processes survived SIGKILL; only a reboot ends it


@final
class Ended(_Phase, frozen=True, kw_only=True, tag=AttemptState.ENDED.value):
    """The attempt has ended. `before` is the phase in which it ended."""

    state: ClassVar[AttemptState] = AttemptState.ENDED
    end: End
    at: float  # when the end was recorded; `end.at` is when it happened
    before: Assigned | Running | Stopping
    refused: bool = False  # the worker refused the launch
    presumed: bool = False  # presumed gone: by `replace_lost`, the operator, or an expired lease
    reaped_at: float | None = None  # when its output was deleted on the worker


Phase = Assigned | Running | Stopping | Ended


class Attempt(Record, kw_only=True):
    """One attempt of a task on one worker. Times are seconds since the epoch by the operator's clock.

    The properties return data of the current phase or of an earlier one; None, False or "" if no phase has the data.
    """

    number: int
    worker: WorkerId
    token: Token
    phase: Phase = Assigned()
    round: int = 0
    gpus: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()  # one for each port name of its job
    chosen: str = ""  # why this worker was chosen although the scheduler prefers other workers
    assigned_at: float = 0.0

    @property
    def state(self) -> AttemptState:
        return self.phase.state

    @property
    def live(self) -> bool:
        return type(self.phase) is not Ended

    @property
    def phase_before_stop(self) -> Assigned | Running:
        """The phase of the attempt, or the phase before its stop order or its end."""
        phase = self.phase.before if type(self.phase) is Ended else self.phase
        return phase.before if type(phase) is Stopping else phase

    @property
    def acknowledged(self) -> bool:
        phase_before_stop = self.phase_before_stop
        return type(phase_before_stop) is Running or phase_before_stop.acknowledged

    @property
    def taken_over(self) -> bool:
        phase_before_stop = self.phase_before_stop
        return type(phase_before_stop) is Assigned and phase_before_stop.taken_over

    @property
    def held_up(self) -> str:
        phase_before_stop = self.phase_before_stop
        return phase_before_stop.held_up if type(phase_before_stop) is Assigned else ""

    @property
    def started_at(self) -> float | None:
        if type(self.phase) is Running:  # the most frequent case
            return self.phase.started_at
        phase_before_stop = self.phase_before_stop
        return phase_before_stop.started_at if type(phase_before_stop) is Running else None

    @property
    def orphaned(self) -> bool:
        phase_before_stop = self.phase_before_stop
        return type(phase_before_stop) is Running and phase_before_stop.orphaned

    @property
    def quiet_since(self) -> float | None:
        """The time of its last output; None unless it is running and marked quiet."""
        return self.phase.quiet_since if type(self.phase) is Running else None

    @property
    def quiet_in(self) -> str:
        """The function that its program executed when it was marked quiet: `all_reduce (train.py:4)`; '' if unknown."""
        return self.phase.quiet_in if type(self.phase) is Running else ""

    @property
    def stopping(self) -> Stopping | None:
        """Its phase Stopping, also after its end; None if no stop was ordered."""
        phase = self.phase.before if type(self.phase) is Ended else self.phase
        return phase if type(phase) is Stopping else None

    @property
    def stop(self) -> StopOrder | None:
        return self.stopping.order if self.stopping is not None else None

    @property
    def unkillable(self) -> bool:
        return self.stopping is not None and self.stopping.unkillable

    @property
    def end(self) -> End | None:
        return self.phase.end if type(self.phase) is Ended else None

    @property
    def ended_at(self) -> float | None:
        return self.phase.at if type(self.phase) is Ended else None

    @property
    def refused(self) -> bool:
        return type(self.phase) is Ended and self.phase.refused

    @property
    def presumed(self) -> bool:
        return type(self.phase) is Ended and self.phase.presumed

    @property
    def reaped_at(self) -> float | None:
        return self.phase.reaped_at if type(self.phase) is Ended else None


NO_ID = TaskId(JobId("-"), 0)


class Task(Record, kw_only=True):
    """One replica of a job. `attempts[n].number == n`; the last attempt is the current one.

    Snapshots omit the id, because it follows from the position of the task in its job. Every other task has its id.
    """

    id: TaskId = NO_ID
    state: TaskState = TaskState.PENDING
    attempts: tuple[Attempt, ...] = ()
    failures: int = 0  # charged against max_retries_failure
    preemptions: int = 0  # charged against max_retries_preemption
    refusals: int = 0  # consecutive refusals by workers
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
        """The id of the last attempt. Valid only if the task was placed at least once."""
        return AttemptId(self.id, len(self.attempts) - 1)
