"""The events of the log, except slice events. Event names are in the past tense; events hold no derivable data.

The annotations are the schema of the log: strings, numbers, booleans, None, the id types, enums, tuples, string-keyed
mappings, attribute values and the values of the core. A field with its default value is not written.
"""

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, field

from iris_cli.core import AttributeValue, Connection, End, EndReason, TaskState, WorkerCondition
from iris_cli.core.events import AttemptEvent as AttemptEvent
from iris_cli.core.events import Event as Event
from iris_cli.core.events.slice_events import ScaleGroupBackedOff as ScaleGroupBackedOff
from iris_cli.core.events.slice_events import SliceCreated as SliceCreated
from iris_cli.core.events.slice_events import SliceDeleted as SliceDeleted
from iris_cli.core.events.slice_events import SliceDeletionRequested as SliceDeletionRequested
from iris_cli.core.events.slice_events import SliceJoined as SliceJoined
from iris_cli.core.events.slice_events import SliceRefused as SliceRefused
from iris_cli.core.events.slice_events import SliceReported as SliceReported
from iris_cli.core.events.slice_events import SliceRequested as SliceRequested
from iris_cli.core.events.slice_events import SlicesAdopted as SlicesAdopted
from iris_cli.core.events.slice_events import SliceSetUp as SliceSetUp
from iris_cli.core.events.slice_events import SliceStarted as SliceStarted
from iris_cli.core.ids import AttemptId, JobId, RequestId, TaskId, Token, WorkerId
from iris_cli.core.model.job import Job, Origin, Priority

# The cluster and its workers


class ClusterCreated(Event, frozen=True, kw_only=True):
    name: str


class LogCompacted(Event, frozen=True, kw_only=True):
    """The lines up to seq `through` were archived; this is the first line of the log. `name`: the cluster's name."""

    name: str
    through: int


class WorkerRegistered(Event, frozen=True, kw_only=True):
    """A host of the configuration was added as a worker. It gets no tasks before its first probe."""

    worker: WorkerId
    connection: Connection


class WorkerUpdated(Event, frozen=True, kw_only=True):
    """A probe reported the worker's properties. `refusal`: why the worker can't be used; "" if it can."""

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
    """Polls began to fail, failed again, or succeeded again. The event holds the whole state of the back-off."""

    worker: WorkerId
    condition: WorkerCondition
    reason: str = ""
    failed_polls: int = 0
    cooldown_until: float = 0.0


class WorkerSilenceCounted(Event, frozen=True, kw_only=True):
    """The worker did not answer in a cycle in which other workers did. `anew`: the count was reset to zero first."""

    worker: WorkerId
    anew: bool = False


class WorkerSkewChanged(Event, frozen=True, kw_only=True):
    """The worker's clock is `skew` seconds ahead (negative: behind). The error is at most one network round trip."""

    worker: WorkerId
    skew: float


class WorkerQuarantined(Event, frozen=True, kw_only=True):
    """The worker refused too often, or has an unkillable process. `lifted`: a probe ended the quarantine."""

    worker: WorkerId
    reason: str
    lifted: bool = False


class WorkerTainted(Event, frozen=True, kw_only=True):
    """The operator set or removed a taint."""

    worker: WorkerId
    taint: str
    removed: bool = False


class WorkerDrained(Event, frozen=True, kw_only=True):
    """The worker accepts no new tasks; running tasks continue."""

    worker: WorkerId
    reason: str = ""


class WorkerUncordoned(Event, frozen=True, kw_only=True):
    """The operator ended drain, quarantine and cool-down."""

    worker: WorkerId


class WorkerUnwedged(Event, frozen=True, kw_only=True):
    """The operator ordered iris to stop these `processes` (pid and description) and `attempts` on a worker."""

    worker: WorkerId
    processes: tuple[str, ...] = ()
    attempts: tuple[Token, ...] = ()


class WorkerForgotten(Event, frozen=True, kw_only=True):
    """The worker was removed from the tables. `dead`: the operator asserted that no process runs on it any more."""

    worker: WorkerId
    dead: bool = False
    reason: str = ""


# Jobs


class JobSubmitted(Event, frozen=True, kw_only=True):
    """A job was accepted. `origin`: attempt and request of a child job submitted from inside a task."""

    job: Job
    origin: Origin | None = None


class JobAdopted(Event, frozen=True, kw_only=True):
    """A later attempt of the parent submitted an unnamed job again, and got the existing job."""

    job: JobId
    origin: Origin


class JobCancelled(Event, frozen=True, kw_only=True):
    job: JobId
    reason: str = ""


class JobChanged(Event, frozen=True, kw_only=True):
    """The operator held, released or changed an open job. None: the field is unchanged."""

    job: JobId
    held: bool | None = None
    priority: Priority | None = None
    scheduling_timeout: float | None = None


class JobEnded(Event, frozen=True, kw_only=True):
    job: JobId
    end: End


class GangRoundEnded(Event, frozen=True, kw_only=True):
    """The verdict on a round. `trigger` is the task that caused the end; None if no single task did."""

    job: JobId
    round: int
    reason: EndReason
    trigger: TaskId | None = None
    refused: bool = False  # a worker refused: counts against max_dispatch_failures


# Tasks and attempts


class TaskAssigned(AttemptEvent, frozen=True, kw_only=True):
    """A task was placed, but not dispatched. `chosen`: why the scheduler chose a worker that it does not prefer."""

    worker: WorkerId
    token: Token
    gpus: tuple[int, ...] = ()
    chosen: str = ""
    ports: tuple[int, ...] = ()


class DispatchTakenOver(AttemptEvent, frozen=True, kw_only=True):
    """The dispatch got no answer. Any invocation may repeat it. Only the worker can report a failed start."""


class TaskDispatched(AttemptEvent, frozen=True, kw_only=True):
    """The worker acknowledged the attempt."""


class TaskDispatchFailed(AttemptEvent, frozen=True, kw_only=True):
    """The attempt will never start; its task is pending again. `refused`: the worker refused to start it."""

    error: str
    refused: bool = False


class TaskRunning(AttemptEvent, frozen=True, kw_only=True):
    """The user's command started. `started_at` is by the operator's clock."""

    started_at: float


class AttemptHeldUp(AttemptEvent, frozen=True, kw_only=True):
    """The worker got `go` but did not start the command in time. A command that never starts counts as a refusal."""

    error: str


class AttemptOrphaned(AttemptEvent, frozen=True, kw_only=True):
    """The attempt's wrapper is gone but processes of the attempt live. No time limit applies, no exit is recorded."""


class TaskQuiet(AttemptEvent, frozen=True, kw_only=True):
    """The running task has had no output since the time `since`, for `silent_after` or longer.

    `since` is None if the task has output again. `place` is the function that the quiet program executed, such as
    `all_reduce (train.py:4)`; '' if unknown.
    """

    since: float | None
    place: str = ""


class AttemptUnkillable(AttemptEvent, frozen=True, kw_only=True):
    """A process of the attempt survived SIGKILL. Its resources are held until a reboot or `forget --dead`."""


class AttemptPresumedGone(AttemptEvent, frozen=True, kw_only=True):
    """The attempt was presumed gone without proof, by `replace_lost` or by the operator. Another event records its end.

    The attempt may still run. If its worker answers again, iris stops the attempt first. `by_lease`: its lease expired.
    The attempt then still runs only if its wrapper and its watchdog were both killed.
    """

    by_lease: bool = False


class AttemptProvenGone(AttemptEvent, frozen=True, kw_only=True):
    """There is proof that no process is left of an attempt that was presumed gone."""


class AttemptEnded(AttemptEvent, frozen=True, kw_only=True):
    """There is proof that the attempt ended. Its resources are free. Another event records the effect on the task."""

    end: End


class AttemptStopRequested(AttemptEvent, frozen=True, kw_only=True):
    """iris decided to stop the attempt. Its resources are not free yet."""

    reason: EndReason
    trigger: TaskId | None = None


class AttemptStopped(AttemptEvent, frozen=True, kw_only=True):
    """There is proof that no process of the attempt is left or can ever start. Its resources are free."""

    exit_code: int | None = None
    log_tail: str = ""
    ran: float | None = None  # seconds, by the worker's clock


class EndpointRegistered(AttemptEvent, frozen=True, kw_only=True):
    """The task registered a port under a name, with this request. The endpoint exists until the attempt ends."""

    name: str
    port: int
    request: RequestId
    metadata: Mapping[str, str] = field(default_factory=dict)


class EndpointRemoved(AttemptEvent, frozen=True, kw_only=True):
    """The task removed an endpoint. The end of an attempt removes its endpoints without this event."""

    name: str
    request: RequestId


class AttemptsReaped(Event, frozen=True, kw_only=True):
    """The files of `attempts` were deleted on the worker. The files of `left` may remain until a later call."""

    worker: WorkerId
    attempts: tuple[AttemptId, ...] = ()
    left: tuple[AttemptId, ...] = ()


class TaskRequeued(Event, frozen=True, kw_only=True):
    """The task is pending again. `reason`: why its attempt ended; a task outside a gang is charged for it."""

    task: TaskId
    reason: EndReason


class TaskEnded(Event, frozen=True, kw_only=True):
    """The task has ended and is not retried."""

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
    | SliceRefused | SliceStarted | SliceReported | SliceSetUp | SliceJoined | SliceDeletionRequested
    | SliceDeleted | SlicesAdopted | ScaleGroupBackedOff
)
# fmt: on
"""All events as one type, the schema of the log: a tagged union in which the name of each class is its `type`."""


class Transaction(Struct, frozen=True, kw_only=True):
    """One line of the log: events that are committed together. `at` is the writer's wall clock."""

    seq: int
    at: float
    actor: str
    events: tuple[Event, ...]
