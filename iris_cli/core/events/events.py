"""Every event of the log, in one place (those of slices stand beside it). Past tense, small, nothing derivable.

The annotations are the schema of the log: strings, numbers, booleans, None, the id types, enums, tuples,
string-keyed mappings, attribute values and the values of the core. A field at its default is not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, field

from iris_cli.core.constraints import AttributeValue
from iris_cli.core.events.event import AttemptEvent as AttemptEvent
from iris_cli.core.events.event import Event as Event
from iris_cli.core.events.slice_events import ScaleGroupBackedOff as ScaleGroupBackedOff
from iris_cli.core.events.slice_events import SliceCreated as SliceCreated
from iris_cli.core.events.slice_events import SliceDeleted as SliceDeleted
from iris_cli.core.events.slice_events import SliceDeletionRequested as SliceDeletionRequested
from iris_cli.core.events.slice_events import SliceJoined as SliceJoined
from iris_cli.core.events.slice_events import SliceRefused as SliceRefused
from iris_cli.core.events.slice_events import SliceRequested as SliceRequested
from iris_cli.core.events.slice_events import SlicesAdopted as SlicesAdopted
from iris_cli.core.events.slice_events import SliceSetUp as SliceSetUp
from iris_cli.core.events.slice_events import SliceStarted as SliceStarted
from iris_cli.core.ids import AttemptId, JobId, RequestId, TaskId, Token, WorkerId
from iris_cli.core.model.job import Job, Origin, Priority
from iris_cli.core.model.task import End, EndReason, TaskState
from iris_cli.core.model.worker import Connection, WorkerCondition

# The cluster and its workers


class ClusterCreated(Event, frozen=True, kw_only=True):
    name: str


class LogCompacted(Event, frozen=True, kw_only=True):
    """The lines up to seq `through` went to the archive, and this one heads the log. `name` is the cluster's."""

    name: str
    through: int


class WorkerRegistered(Event, frozen=True, kw_only=True):
    """A host of the configuration was seen for the first time. It takes nothing before a probe."""

    worker: WorkerId
    connection: Connection


class WorkerUpdated(Event, frozen=True, kw_only=True):
    """A probe told what the worker is. `refusal`: why it can't be used, if so.

    `declared` is the fingerprint of the configuration entry whose words lie over the probe's; `vm` is what the
    metadata server calls the machine, "" where there is none. `containment` is what keeps the processes of a task
    together there: `cgroup` or `session`.
    """

    worker: WorkerId
    connection: Connection
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    cpu: float = 0.0
    memory: int = 0
    chips: int = 0
    gpus: int = 0
    boot_id: str = ""
    incarnation: str = ""
    declared: str = ""
    vm: str = ""
    containment: str = ""
    refusal: str = ""


class WorkerConditionChanged(Event, frozen=True, kw_only=True):
    """Polls began to fail, still fail, or succeed again; this is the whole state of the back-off."""

    worker: WorkerId
    condition: WorkerCondition
    reason: str = ""
    failed_polls: int = 0
    cooldown_until: float = 0.0


class WorkerSilenceCounted(Event, frozen=True, kw_only=True):
    """The worker did not answer in a cycle in which others did. `anew`: what was counted so far is void."""

    worker: WorkerId
    anew: bool = False


class WorkerSkewChanged(Event, frozen=True, kw_only=True):
    """The clock of the worker is `skew` seconds ahead of ours, as far as a round trip can tell; behind if negative."""

    worker: WorkerId
    skew: float


class WorkerQuarantined(Event, frozen=True, kw_only=True):
    """The worker refused too often, or a process there can't be killed; `lifted`: a probe went well after its time."""

    worker: WorkerId
    reason: str
    lifted: bool = False


class WorkerTainted(Event, frozen=True, kw_only=True):
    """A taint was set by hand, or removed."""

    worker: WorkerId
    taint: str
    removed: bool = False


class WorkerDrained(Event, frozen=True, kw_only=True):
    """The worker takes nothing new; what runs there runs on."""

    worker: WorkerId
    reason: str = ""


class WorkerUncordoned(Event, frozen=True, kw_only=True):
    """Drain, quarantine and cool-down are lifted."""

    worker: WorkerId


class WorkerUnwedged(Event, frozen=True, kw_only=True):
    """The operator ordered to stop these `processes` (in words, number first) and `attempts` on a worker."""

    worker: WorkerId
    processes: tuple[str, ...] = ()
    attempts: tuple[Token, ...] = ()


class WorkerForgotten(Event, frozen=True, kw_only=True):
    """The worker is gone from the books. `dead`: the operator's word that nothing runs there any more."""

    worker: WorkerId
    dead: bool = False
    reason: str = ""


# Jobs


class JobSubmitted(Event, frozen=True, kw_only=True):
    """`origin`: the attempt and the request of it that this was, for a child job submitted from inside a task."""

    job: Job
    origin: Origin | None = None


class JobAdopted(Event, frozen=True, kw_only=True):
    """A later attempt of its parent submitted the same job again, without a name: this is the one it means."""

    job: JobId
    origin: Origin


class JobCancelled(Event, frozen=True, kw_only=True):
    job: JobId
    reason: str = ""


class JobChanged(Event, frozen=True, kw_only=True):
    """The operator held, released or reordered an open job. None: as it was."""

    job: JobId
    held: bool | None = None
    priority: Priority | None = None
    scheduling_timeout: float | None = None


class JobEnded(Event, frozen=True, kw_only=True):
    job: JobId
    end: End


class GangRoundEnded(Event, frozen=True, kw_only=True):
    """The verdict on a round: the task to blame (None: all ranks share the fate), why, and whether it is charged."""

    job: JobId
    round: int
    reason: EndReason
    trigger: TaskId | None = None
    refused: bool = False  # a worker refused: counts against max_dispatch_failures


# Tasks and attempts


class TaskAssigned(AttemptEvent, frozen=True, kw_only=True):
    """A task was placed: in the log before anything is sent. `chosen`: whom the cycle passed over, if anybody."""

    worker: WorkerId
    token: Token
    gpus: tuple[int, ...] = ()
    chosen: str = ""
    ports: tuple[int, ...] = ()


class DispatchTakenOver(AttemptEvent, frozen=True, kw_only=True):
    """The launch got no answer: anybody may launch it again, and only the worker can say that it did not start."""


class TaskDispatched(AttemptEvent, frozen=True, kw_only=True):
    """The worker acknowledged the attempt."""


class TaskDispatchFailed(AttemptEvent, frozen=True, kw_only=True):
    """The attempt never starts; its task is pending again. `refused`: the worker said no (disk full, chips held)."""

    error: str
    refused: bool = False


class TaskRunning(AttemptEvent, frozen=True, kw_only=True):
    """The user's command has started, `started_at` by the operator's clock."""

    started_at: float


class AttemptHeldUp(AttemptEvent, frozen=True, kw_only=True):
    """The worker was told to start it, and did not: a refusal, if it never starts. Its stop is another event."""

    error: str


class AttemptOrphaned(AttemptEvent, frozen=True, kw_only=True):
    """The wrapper of the attempt is gone, its processes live: nobody there limits or records them any more."""


class TaskQuiet(AttemptEvent, frozen=True, kw_only=True):
    """The running task has written nothing since `since`, for its `silent_after` or longer; None: it writes again."""

    since: float | None


class AttemptUnkillable(AttemptEvent, frozen=True, kw_only=True):
    """A process of the attempt survived SIGKILL. It holds what it holds until a reboot, or `forget --dead`."""


class AttemptPresumedGone(AttemptEvent, frozen=True, kw_only=True):
    """Taken for dead without proof, by `replace_lost` or by the operator's word. Its end is another event.

    It may still run: should its worker answer again, it is stopped there before anything else happens.
    `by_lease`: its lease ended, and it with that, unless what was to see to it there was killed as well.
    """

    by_lease: bool = False


class AttemptProvenGone(AttemptEvent, frozen=True, kw_only=True):
    """Proof, at last, that nothing is left of an attempt that was presumed gone."""


class AttemptEnded(AttemptEvent, frozen=True, kw_only=True):
    """Proof that the attempt is over; releases what it held. What it means for the task is another event."""

    end: End


class AttemptStopRequested(AttemptEvent, frozen=True, kw_only=True):
    """The attempt is to be stopped. Frees nothing."""

    reason: EndReason
    trigger: TaskId | None = None


class AttemptStopped(AttemptEvent, frozen=True, kw_only=True):
    """Proof that nothing of the attempt is left or can ever start; releases what it held."""

    exit_code: int | None = None
    log_tail: str = ""
    ran: float | None = None  # seconds, by the worker's clock


class EndpointRegistered(AttemptEvent, frozen=True, kw_only=True):
    """The task made a port of its own known under a name, by that request; until its attempt ends."""

    name: str
    port: int
    request: RequestId
    metadata: Mapping[str, str] = field(default_factory=dict)


class EndpointRemoved(AttemptEvent, frozen=True, kw_only=True):
    """The task took one back. What the end of the attempt takes back is no event of its own."""

    name: str
    request: RequestId


class AttemptsReaped(Event, frozen=True, kw_only=True):
    """The files of `attempts` are gone from the worker; those of `left` may still be there, for a later call."""

    worker: WorkerId
    attempts: tuple[AttemptId, ...] = ()
    left: tuple[AttemptId, ...] = ()


class TaskRequeued(Event, frozen=True, kw_only=True):
    """The task is pending again. `reason` says what ended its attempt; single tasks are charged by it."""

    task: TaskId
    reason: EndReason


class TaskEnded(Event, frozen=True, kw_only=True):
    """The task is over for good."""

    task: TaskId
    state: TaskState
    end: End


# fmt: off
AnyEvent: TypeAlias = (
    ClusterCreated | LogCompacted | WorkerRegistered | WorkerUpdated | WorkerConditionChanged
    | WorkerSilenceCounted | WorkerSkewChanged | WorkerQuarantined | WorkerTainted | WorkerDrained
    | WorkerUncordoned | WorkerUnwedged | WorkerForgotten | JobSubmitted | JobAdopted | JobCancelled | JobChanged
    | JobEnded | GangRoundEnded | TaskAssigned | DispatchTakenOver | TaskDispatched | TaskDispatchFailed
    | TaskRunning | AttemptHeldUp | AttemptOrphaned | TaskQuiet | AttemptUnkillable | AttemptPresumedGone
    | AttemptProvenGone | AttemptEnded | AttemptStopRequested | AttemptStopped | EndpointRegistered
    | EndpointRemoved | AttemptsReaped | TaskRequeued | TaskEnded | SliceRequested | SliceCreated
    | SliceRefused | SliceStarted | SliceSetUp | SliceJoined | SliceDeletionRequested | SliceDeleted
    | SlicesAdopted | ScaleGroupBackedOff
)
# fmt: on
"""All events as one type, the schema of the log: a tagged union in which the name of each class is its `type`."""


class Transaction(Struct, frozen=True, kw_only=True):
    """One line of the log: events that happened together or not at all. `at` is the writer's wall clock."""

    seq: int
    at: float
    actor: str
    events: tuple[Event, ...]
