"""Observations of workers. `remote` creates these values and `lifecycle` applies them, independently."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from iris_cli.core.ids import RequestId, Token, WorkerId
from iris_cli.core.model.task import Fact


class RemoteState(StrEnum):
    """State of one launch token as a worker reports it (the words of the worker protocol)."""

    ABSENT = "ABSENT"  # unknown to the worker: not started yet
    PREPARING = "PREPARING"  # set-up is running
    PREPARED = "PREPARED"  # waits for `go`
    LAUNCHING = "LAUNCHING"  # a `go` call started it, the user's command has not reported yet
    RUNNING = "RUNNING"
    EXITED = "EXITED"  # final, with an exit code
    CANCELLED = "CANCELLED"  # final: stopped by iris
    NOSTART = "NOSTART"  # final: refused by the worker, with a cause
    ORPHANED = "ORPHANED"  # the wrapper is gone, processes of the attempt live
    LOST = "LOST"  # no process and no exit record: the result is unknown
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"  # final: no process is left, or a tombstone prevents the start
    UNKILLABLE = "UNKILLABLE"


FINAL_STATES = frozenset(
    {RemoteState.EXITED, RemoteState.CANCELLED, RemoteState.NOSTART, RemoteState.LOST, RemoteState.STOPPED}
)
"""States in which no process of the attempt is left and it can never start."""


class AttemptReport(Struct, frozen=True, kw_only=True):
    """The line of one token in a worker's answer.

    `exit_code` is the raw number (0-255) of an EXITED attempt. `cause` is why a NOSTART attempt did not start
    (`setup`, `disk`, `chips`, `port`, `workspace`, `commands`), or what ended it: for EXITED `timeout`, `oom` or
    `signal` (reported by its shell), for CANCELLED `lease` (not renewed). `started_ago` and `ended_ago` are
    seconds before the answer on the worker's clock, so that its wrong wall clock does no harm. `started_ago` of
    PREPARING: since the set-up began; of PREPARED: since the first launch order, None if there was none or its
    time is unknown; of LAUNCHING: since the launcher's last sign of life. `last_output_ago`: seconds since the
    last output of a RUNNING or ORPHANED attempt, or since its start without output; None if not measured. `place`:
    the function that a program without output executes, from a second call; '' if unknown. `waited`: seconds since
    the answer. `ran`: seconds from start to end by the worker's clock; None if either is unknown or they contradict
    each other. `log_tail` is the end of the task's output, decoded with replacement. `facts`: causes of the
    failure known to the worker.
    """

    token: Token
    state: RemoteState
    exit_code: int | None = None
    cause: str = ""
    started_ago: float | None = None
    ended_ago: float | None = None
    last_output_ago: float | None = None
    place: str = ""
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
            place=self.place,
            output_bytes=self.output_bytes,
            log_tail=self.log_tail,
            facts=self.facts,
        )

    @property
    def consistent(self) -> bool:
        """True if exit code and cause are valid for the state."""
        code, cause = self.exit_code, self.cause
        if code is not None and not 0 <= code <= 255:
            return False
        if self.state is RemoteState.EXITED:
            return code is not None and cause in ("", "timeout", "oom", "signal")
        if self.state is RemoteState.NOSTART:
            return cause in ("setup", "disk", "chips", "port", "workspace", "commands")
        return code is None and cause in (("", "lease") if self.state is RemoteState.CANCELLED else ("",))


class OutboxFile(Struct, frozen=True, kw_only=True):
    """A request file from inside a task. `size` in bytes; `data` is None if the file is too large for a request."""

    token: Token
    id: RequestId
    size: int
    data: bytes | None


class AnswerHeader(Struct, frozen=True, kw_only=True):
    """The header of an answer: the worker, its boot and its incarnation."""

    worker: WorkerId
    boot_id: str
    incarnation: str


class WorkerReport(AnswerHeader, frozen=True, kw_only=True):
    """A complete answer of one worker. `clock` and `uptime` are the worker's, in seconds.

    `lacking` are the hashes of workspaces that attempts in this call need and that are missing on the worker.
    `requests` are the first requests of the attempts by name; the attempts in `asking` have more requests.
    """

    clock: float = 0.0
    uptime: float = 0.0
    attempts: tuple[AttemptReport, ...] = ()
    lacking: tuple[str, ...] = ()
    requests: tuple[OutboxFile, ...] = ()
    asking: tuple[Token, ...] = ()


class ProbeReport(AnswerHeader, frozen=True, kw_only=True):
    """The answer to a probe: the worker's properties. Memory and disk in bytes; `cpus` counts logical cores.

    `metadata` holds the answers of the TPU metadata server by its own keys (`accelerator-type`,
    `agent-worker-number`, `instance-id`, `tpu-name`, `zone`, `preemptible`); empty without a server.
    `containment` is how a task's processes are contained: `cgroup`, or `session` and marker alone. `tokens` are all
    attempts on the worker that were not stopped, also those that are not in the log.
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


class ReapReport(AnswerHeader, frozen=True, kw_only=True):
    """The answer to a reap call. `tokens` are the attempts without files on the worker, apart from the token."""

    clock: float = 0.0
    uptime: float = 0.0
    tokens: tuple[Token, ...] = ()


class UsageReport(AnswerHeader, frozen=True, kw_only=True):
    """Bytes used on a worker by the files of each queried attempt that has files."""

    sizes: tuple[tuple[Token, int], ...] = ()


class CacheReport(AnswerHeader, frozen=True, kw_only=True):
    """Sizes in bytes of the unused workspaces and set-ups in a worker's caches."""

    sizes: tuple[tuple[str, int], ...] = ()

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.sizes)


class LockFile(StrEnum):
    """State of the TPU library's lock file on a worker. A killed program leaves the file behind."""

    NONE = "none"
    HELD = "held"  # a process has the file or a chip open
    STALE = "stale"  # no process has either open: the next start on these chips removes the file
    FOREIGN = "foreign"  # not a plain file, or owned by another user: left unchanged


class ChipHolder(Struct, frozen=True, kw_only=True):
    """A process that holds chips. `boot_id`, `pid` and `start` (clock ticks since boot) identify it uniquely.

    `token` is its attempt, known by the marker in its environment or otherwise; None if iris didn't start the
    process, or it hides the marker. `devices` is empty for a process that survived the stop but released its chips.
    `command` is raw text from the worker: not safe for a terminal.
    """

    boot_id: str
    pid: int
    start: int
    devices: tuple[str, ...] = ()
    command: str = ""
    token: Token | None = None


class UnwedgeReport(AnswerHeader, frozen=True, kw_only=True):
    """Processes that hold chips, unknown attempts, and the lock file of a worker.

    `attempts` are the attempts that are unknown to the caller and not stopped yet, and those that this call had to
    stop. `unseen` is the number of other users' processes that could not be inspected.
    """

    holders: tuple[ChipHolder, ...] = ()
    attempts: tuple[AttemptReport, ...] = ()
    lock: LockFile = LockFile.NONE
    unseen: int = 0


class SilenceKind(StrEnum):
    """Reason of a missing answer. Only the first two count as silence of the worker."""

    UNREACHABLE = "unreachable"  # refused, no route, name not found, connect timed out
    TIMEOUT = "timeout"  # connected, but no complete answer before the deadline
    AUTH = "auth"  # the worker answered and refused the key
    HOST_KEY = "host_key"  # the worker presented another host key than the recorded one
    UNKNOWN_HOST = "unknown_host"  # no host key on record, and this call may not accept a first one
    PROTOCOL = "protocol"  # bytes arrived, but not a complete, well-formed frame
    LOCAL = "local"  # an error of this machine: key file missing, ~/.ssh/config unreadable


SILENT = frozenset({SilenceKind.UNREACHABLE, SilenceKind.TIMEOUT})  # no answer of any kind


class Silence(Struct, frozen=True, kw_only=True):
    """A missing answer. The effect of the call on the worker is unknown; `step` is the step that failed."""

    worker: WorkerId
    kind: SilenceKind
    step: str
    detail: str
    hint: str = ""
    sent: bool = True  # False only if certainly no byte of the call was sent
