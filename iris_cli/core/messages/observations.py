"""Observations of workers: answers to calls, and missing answers. `remote` creates them, `lifecycle` applies them."""

from enum import StrEnum

from msgspec import Struct

from iris_cli.core import Fact, RequestId, Token, WorkerId


class RemoteState(StrEnum):
    """State of one launch token as a worker reports it (the words of the worker protocol)."""

    ABSENT = "ABSENT"  # unknown to the worker: not started yet
    PREPARING = "PREPARING"  # set-up is running
    PREPARED = "PREPARED"  # set-up is complete and no wrapper runs; `go` may have arrived
    LAUNCHING = "LAUNCHING"  # `go` arrived, but the user's command has not started yet
    RUNNING = "RUNNING"
    EXITED = "EXITED"  # final, with an exit code
    CANCELLED = "CANCELLED"  # final: stopped by iris
    NOSTART = "NOSTART"  # final: refused by the worker, with a cause
    ORPHANED = "ORPHANED"  # the wrapper is gone, but processes of the attempt live
    LOST = "LOST"  # no process and no exit record: the result is unknown
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"  # final: no process is left, or a tombstone prevents the start
    UNKILLABLE = "UNKILLABLE"


FINAL_STATES = frozenset(
    {RemoteState.EXITED, RemoteState.CANCELLED, RemoteState.NOSTART, RemoteState.LOST, RemoteState.STOPPED}
)
"""States in which no process of the attempt is left and it can never start."""


class AttemptReport(Struct, frozen=True, kw_only=True):
    """A worker's report on one attempt: one line of its answer.

    `exit_code` is 0 to 255, and set in the state EXITED only. `cause` depends on the state:

    - NOSTART: why the attempt did not start: `setup`, `disk`, `chips`, `port`, `workspace` or `commands`
    - EXITED: `timeout`, `oom`, `signal` (reported by its shell) or ''
    - CANCELLED: `lease` if its lease expired, otherwise ''

    `started_ago` and `ended_ago` are seconds before the answer, so they are right even if the worker's wall clock is
    wrong. `started_ago` counts from the start of the command, but in these states from another time:

    - PREPARING: from the start of the set-up
    - PREPARED: from the first `go`; None without a `go`, or if its time is unknown
    - LAUNCHING: from the last time that its wrapper recorded (one every 2 s)

    `last_output_ago`: seconds since the last output of a RUNNING or ORPHANED attempt, or since its start if it has no
    output; None if not measured. `place`: the function that a quiet program executes, as found by a second call to the
    worker; '' if unknown. `waited`: seconds since the worker answered. `ran`: seconds from start to end of the command;
    None if one of the two times is unknown or the end is before the start. `log_tail`: the last output, with
    undecodable bytes replaced. `facts`: causes of the failure found by the worker.
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

    def without_times(self) -> "AttemptReport":
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
    def is_consistent(self) -> bool:
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
    """A request file that a task wrote. `size` is in bytes; `data` is None if the file is too large for a request."""

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
    """A complete answer of one worker. `clock` and `uptime` are read on the worker, in seconds.

    `lacking`: hashes of the workspaces that attempts in this call need and the worker does not have. `requests`: the
    first request files of each attempt, sorted by name. `asking`: the attempts that have more request files.
    """

    clock: float = 0.0
    uptime: float = 0.0
    attempts: tuple[AttemptReport, ...] = ()
    lacking: tuple[str, ...] = ()
    requests: tuple[OutboxFile, ...] = ()
    asking: tuple[Token, ...] = ()


class ProbeReport(AnswerHeader, frozen=True, kw_only=True):
    """The answer to a probe: the worker's properties. Memory and disk in bytes; `cpus` counts logical cores.

    `metadata` holds the values of the TPU metadata server by key (`accelerator-type`, `agent-worker-number`,
    `instance-id`, `tpu-name`, `zone`, `preemptible`); empty without a server. `tokens` are all attempts on the worker
    that were not stopped, also attempts that are not in the log.
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
    """The answer to a call that deletes files. `tokens`: attempts of which only the exit record is left."""

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
    HELD = "held"  # a process has the file or a chip device open
    STALE = "stale"  # no process has the file or a chip open; the next start on these chips deletes the file
    FOREIGN = "foreign"  # not a plain file, or owned by another user: left unchanged


class ChipHolder(Struct, frozen=True, kw_only=True):
    """A process that holds chips. `boot_id`, `pid` and `start` (clock ticks since boot) identify it uniquely.

    `token` is the attempt of the process; None if iris didn't start the process, or the attempt can't be identified.
    `devices` is empty for a process that survived the stop but released its chips. `command` is unchecked text from the
    worker, which may contain control characters.
    """

    boot_id: str
    pid: int
    start: int
    devices: tuple[str, ...] = ()
    command: str = ""
    token: Token | None = None


class UnwedgeReport(AnswerHeader, frozen=True, kw_only=True):
    """The answer to `unwedge`: processes that hold chips, attempts, and the lock file of a worker.

    `attempts` are the attempts that this call had to stop, and live attempts that are unknown to the caller. `unseen`
    is the number of other users' processes that could not be inspected.
    """

    holders: tuple[ChipHolder, ...] = ()
    attempts: tuple[AttemptReport, ...] = ()
    lock: LockFile = LockFile.NONE
    unseen: int = 0


class SilenceKind(StrEnum):
    """Why a call had no usable answer. Only UNREACHABLE and TIMEOUT count as silence of the worker."""

    UNREACHABLE = "unreachable"  # refused, no route, name not found, connect timed out
    TIMEOUT = "timeout"  # connected, but no complete answer before the deadline
    AUTH = "auth"  # the host answered and rejected the SSH key
    HOST_KEY = "host_key"  # the worker's host key differs from the recorded host key
    UNKNOWN_HOST = "unknown_host"  # no host key is recorded, and this call must not accept a new key
    PROTOCOL = "protocol"  # bytes arrived, but not a complete, well-formed frame
    LOCAL = "local"  # an error of this machine: key file missing, ~/.ssh/config unreadable


SILENT = frozenset({SilenceKind.UNREACHABLE, SilenceKind.TIMEOUT})  # the worker did not answer at all


class Silence(Struct, frozen=True, kw_only=True):
    """A call without a usable answer: its effect on the worker is unknown. `step` is the failed part of the call."""

    worker: WorkerId
    kind: SilenceKind
    step: str
    detail: str
    hint: str = ""
    sent: bool = True  # False only if it is certain that no byte was sent

    @property
    def problem(self) -> str:
        return f"{self.step}: {self.detail}"

    def words(self, peer: str) -> str:
        """Return `no answer from PEER (connect: no route)`; `PEER: authentication: ...` if the host answered."""
        return f"no answer from {peer} ({self.problem})" if self.kind in SILENT else f"{peer}: {self.problem}"

    @property
    def note(self) -> str:
        """The problem of a call whose peer is named elsewhere."""
        return f"{'no answer' if self.kind in SILENT else self.step}: {self.detail}"
