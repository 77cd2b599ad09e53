"""What was seen of a worker. `remote` makes these values, `lifecycle` weighs them; neither knows the other."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from iris_cli.core.ids import RequestId, Token, WorkerId
from iris_cli.core.model.task import Fact


class RemoteState(StrEnum):
    """What a worker says about one launch token (the words of the worker protocol)."""

    ABSENT = "ABSENT"  # nothing there: it hasn't started *yet*
    PREPARING = "PREPARING"  # set-up is running
    PREPARED = "PREPARED"  # waits for `go`
    LAUNCHING = "LAUNCHING"  # `go` was won, the user's command hasn't reported yet
    RUNNING = "RUNNING"
    EXITED = "EXITED"  # final, with an exit code
    CANCELLED = "CANCELLED"  # final: stopped by iris
    NOSTART = "NOSTART"  # final: refused by the worker, with a cause
    ORPHANED = "ORPHANED"  # the wrapper is gone, processes of the attempt live
    LOST = "LOST"  # no process and no exit record: the result is unknown
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"  # final: the fence is proven; a tombstone says the same of what never started
    UNKILLABLE = "UNKILLABLE"


OVER = frozenset(
    {RemoteState.EXITED, RemoteState.CANCELLED, RemoteState.NOSTART, RemoteState.LOST, RemoteState.STOPPED}
)
"""Nothing of the attempt is left, and nothing of it will ever start."""


class AttemptReport(Struct, frozen=True, kw_only=True):
    """One token's line in a worker's answer.

    `exit_code` is the raw number (0-255) of an EXITED attempt. `cause` is the no-start cause
    (`setup`, `disk`, `chips`, `port`, `workspace`, `commands`), or what ended it: an EXITED one `timeout`, `oom` or
    `signal` (its shell reported one), a CANCELLED one `lease` (nobody renewed it).
    `started_ago` and `ended_ago` are seconds before the answer on the worker's own clock, so that a wrong wall
    clock there does no harm. Of a PREPARING one `started_ago` is since its set-up began; of a PREPARED one since
    it was first told to start, None if it never was or nobody noted it; of a LAUNCHING one since the last sign of
    life of what starts it. `last_output_ago`: seconds since a RUNNING or ORPHANED one wrote to its output, or since
    its start if it never did, at the time of the answer; None if not measured. `waited`: seconds since the answer.
    `ran` is the time from start to end by that clock; None if either is unknown or the two contradict each other.
    `log_tail` is the end of the task's output, decoded with replacement.
    `facts`: why it failed, as far as the worker knows.
    """

    token: Token
    state: RemoteState
    exit_code: int | None = None
    cause: str = ""
    started_ago: float | None = None
    ended_ago: float | None = None
    last_output_ago: float | None = None
    waited: float = 0.0
    ran: float | None = None
    output_bytes: int = 0
    log_tail: str = ""
    facts: tuple[Fact, ...] = ()

    def without_times(self) -> AttemptReport:
        return AttemptReport(
            token=self.token,
            state=self.state,
            exit_code=self.exit_code,
            cause=self.cause,
            output_bytes=self.output_bytes,
            log_tail=self.log_tail,
            facts=self.facts,
        )

    @property
    def consistent(self) -> bool:
        """Whether exit code and cause are such that go with the state."""
        code, cause = self.exit_code, self.cause
        if code is not None and not 0 <= code <= 255:
            return False
        if self.state is RemoteState.EXITED:
            return code is not None and cause in ("", "timeout", "oom", "signal")
        if self.state is RemoteState.NOSTART:
            return cause in ("setup", "disk", "chips", "port", "workspace", "commands")
        return code is None and cause in (("", "lease") if self.state is RemoteState.CANCELLED else ("",))


class OutboxFile(Struct, frozen=True, kw_only=True):
    """A request from inside a task, as it was found: `data` is None if it is too large to be one. `size` in bytes."""

    token: Token
    id: RequestId
    size: int
    data: bytes | None


class FromWorker(Struct, frozen=True, kw_only=True):
    """What an answer begins with: who says it, and in which life."""

    worker: WorkerId
    boot_id: str
    incarnation: str


class WorkerReport(FromWorker, frozen=True, kw_only=True):
    """A complete answer of one worker. `clock` and `uptime` are its own, in seconds.

    `lacking` are the workspaces, by their hashes, that attempts in this call need and that aren't there.
    `requests` are some of what the attempts ask for, in order of their names; those in `asking` have more.
    """

    clock: float = 0.0
    uptime: float = 0.0
    attempts: tuple[AttemptReport, ...] = ()
    lacking: tuple[str, ...] = ()
    requests: tuple[OutboxFile, ...] = ()
    asking: tuple[Token, ...] = ()


class ProbeReport(FromWorker, frozen=True, kw_only=True):
    """What a worker is: the answer to a probe. Memory and disk in bytes; `cpus` counts logical cores.

    `metadata` holds what the TPU metadata server said, by the server's own keys (`accelerator-type`,
    `agent-worker-number`, `instance-id`, `tpu-name`, `zone`, `preemptible`); empty where there is none.
    `containment` is what keeps a task's processes together there: `cgroup`, or its `session` and marker alone.
    `tokens` are the attempts found there that were not stopped, whether or not the log knows them. `warnings`
    are in words.
    """

    cpus: int = 0
    memory: int = 0
    disk_free: int = 0
    chips: int = 0
    gpus: int = 0
    gpu_variant: str = ""
    containment: str = ""
    clock: float = 0.0
    uptime: float = 0.0
    metadata: tuple[tuple[str, str], ...] = ()
    tokens: tuple[Token, ...] = ()
    warnings: tuple[str, ...] = ()


class ReapReport(FromWorker, frozen=True, kw_only=True):
    """Of which attempts nothing is left on a worker but their tokens, of those that it was asked to reap."""

    clock: float = 0.0
    uptime: float = 0.0
    tokens: tuple[Token, ...] = ()


class UsageReport(FromWorker, frozen=True, kw_only=True):
    """How many bytes the files of attempts take on a worker, of those that it was asked about and that have any."""

    sizes: tuple[tuple[Token, int], ...] = ()


class CacheReport(FromWorker, frozen=True, kw_only=True):
    """How many bytes a worker keeps in its caches that nobody has used for long: of each workspace and set-up."""

    sizes: tuple[tuple[str, int], ...] = ()

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.sizes)


class LockFile(StrEnum):
    """The lock file of the TPU library on a worker, which a killed program leaves behind."""

    NONE = "none"
    HELD = "held"  # somebody has it open, or a chip
    STALE = "stale"  # nobody has: the next start on these chips removes it
    FOREIGN = "foreign"  # no plain file, or another user's: left alone


class Holder(Struct, frozen=True, kw_only=True):
    """A process that holds chips. `boot_id`, `pid` and `start` (clock ticks since boot) name it, and no other.

    `token` is the attempt it belongs to, by its own word (the marker in its environment) or by proof; None is a
    process that iris didn't start, or that hides it. `devices` is empty for one that was to be stopped, holds
    nothing any more and still lives. `command` is as the worker has it: not fit for a terminal.
    """

    boot_id: str
    pid: int
    start: int
    devices: tuple[str, ...] = ()
    command: str = ""
    token: Token | None = None


class UnwedgeReport(FromWorker, frozen=True, kw_only=True):
    """What holds up a worker, beside the attempts that are iris's own.

    `attempts` are those that the caller doesn't know, and that nobody has stopped yet: running or over. With
    them are those that this call was to stop. `unseen` is how many processes of other users could not be looked
    into: what they hold is not known.
    """

    holders: tuple[Holder, ...] = ()
    attempts: tuple[AttemptReport, ...] = ()
    lock: LockFile = LockFile.NONE
    unseen: int = 0


class SilenceKind(StrEnum):
    """Why there is no answer. Only the first two are silence of the worker; the rest are said by somebody."""

    UNREACHABLE = "unreachable"  # refused, no route, name not found, connect timed out
    TIMEOUT = "timeout"  # connected, but no complete answer before the deadline
    AUTH = "auth"  # the worker answered and refused our key
    HOST_KEY = "host_key"  # the worker shows another host key than the one on record
    UNKNOWN_HOST = "unknown_host"  # no host key on record, and this call may not take a first one
    PROTOCOL = "protocol"  # bytes came back, but not a complete, well-formed frame
    LOCAL = "local"  # our own fault: key file missing, ~/.ssh/config unreadable


SILENT = frozenset({SilenceKind.UNREACHABLE, SilenceKind.TIMEOUT})  # nobody said anything


class Silence(Struct, frozen=True, kw_only=True):
    """No answer: nothing is known of what happened on the worker. `step` names where it ended."""

    worker: WorkerId
    kind: SilenceKind
    step: str
    detail: str
    hint: str = ""
    sent: bool = True  # False only if it is certain that not one byte of the call was sent
