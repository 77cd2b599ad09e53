"""More of `samples`: child jobs, a gang in several regions, an array that keeps going, durations."""

from __future__ import annotations

from iris_cli.core.events.events import (
    AttemptEnded,
    AttemptStopped,
    AttemptStopRequested,
    ClusterCreated,
    EndpointRegistered,
    EndpointRemoved,
    Event,
    JobAdopted,
    JobCancelled,
    JobChanged,
    JobEnded,
    JobSubmitted,
    TaskAssigned,
    TaskEnded,
    TaskQuiet,
    TaskRequeued,
    TaskRunning,
    WorkerRegistered,
    WorkerUpdated,
)
from iris_cli.core.ids import AttemptId, JobId, RequestId, Token
from iris_cli.core.model.job import CoschedulingConfig, Job, Origin, Priority
from iris_cli.core.model.task import End, EndReason, Fact, FactKind, TaskState
from iris_cli.core.model.worker import Connection
from iris_cli.core.resources import Device, Resources
from tests.journal.samples import HOST, LONE, NOON, SPOT, TRAIN

_FIRST = AttemptId(LONE, 0)

CHILDREN: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (WorkerUpdated(worker=SPOT, connection=HOST, cpu=4.0, memory=1 << 33, boot_id="b0075"),),
    (
        JobSubmitted(job=Job(id=LONE.job, command=("python", "sweep.py"), max_retries_failure=1)),
        TaskAssigned(task=LONE, attempt=0, worker=SPOT, token=Token("c" * 32)),
    ),
    (
        JobSubmitted(
            job=Job(id=JobId("solo/eval-1"), command=("true",)),
            origin=Origin(_FIRST, RequestId("0001.x"), digest="5a1ad"),
        ),
        EndpointRegistered(
            task=LONE, attempt=0, name="http", port=8080, request=RequestId("0002"), metadata={"path": "/"}
        ),
        EndpointRegistered(task=LONE, attempt=0, name="debug", port=1, request=RequestId("0003")),
    ),
    (EndpointRemoved(task=LONE, attempt=0, name="debug", request=RequestId("0004")),),
    (
        TaskRunning(task=LONE, attempt=0, started_at=NOON),
        AttemptEnded(task=LONE, attempt=0, end=End(reason=EndReason.SIGNAL, at=NOON, exit_code=139)),
        TaskRequeued(task=LONE, reason=EndReason.SIGNAL),
        TaskAssigned(task=LONE, attempt=1, worker=SPOT, token=Token("d" * 32)),
    ),
    (
        JobAdopted(
            job=JobId("solo/eval-1"), origin=Origin(AttemptId(LONE, 1), RequestId("0001.y"), digest="5a1ad")
        ),
    ),
)
"""What tasks do from inside: a child job, submitted again by the next attempt, and endpoints."""

SPREAD: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (
        JobSubmitted(
            job=Job(
                id=TRAIN,
                command=("true",),
                replicas=4,
                slices=2,
                spread=True,
                resources=Resources(device=Device("tpu", "v4-16")),
                coscheduling=CoschedulingConfig("tpu-name"),
            )
        ),
    ),
)
"""A gang whose slices may be in several regions."""

KEPT_GOING: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (JobSubmitted(job=Job(id=TRAIN, command=("true",), replicas=4, array="0-3", keep_going=True)),),
)
"""An array whose tasks go on after one of them failed."""

DURATIONS: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (WorkerUpdated(worker=SPOT, connection=HOST, cpu=4.0, memory=1 << 33, boot_id="b0075"),),
    (
        JobSubmitted(job=Job(id=LONE.job, command=("true",), max_retries_failure=1)),
        TaskAssigned(task=LONE, attempt=0, worker=SPOT, token=Token("c" * 32)),
    ),
    (
        TaskRunning(task=LONE, attempt=0, started_at=NOON),
        AttemptEnded(
            task=LONE, attempt=0, end=End(reason=EndReason.USER_ERROR, at=NOON, exit_code=1, ran=90.25)
        ),
        TaskRequeued(task=LONE, reason=EndReason.USER_ERROR),
        TaskAssigned(task=LONE, attempt=1, worker=SPOT, token=Token("d" * 32)),
    ),
    (TaskRunning(task=LONE, attempt=1, started_at=NOON),),
    (
        JobCancelled(job=LONE.job, reason="enough"),
        AttemptStopRequested(task=LONE, attempt=1, reason=EndReason.CANCELLED),
        TaskEnded(task=LONE, state=TaskState.KILLED, end=End(reason=EndReason.CANCELLED, at=NOON)),
        JobEnded(job=LONE.job, end=End(reason=EndReason.CANCELLED, at=NOON)),
    ),
    (AttemptStopped(task=LONE, attempt=1, exit_code=143, ran=7200.0),),
)
"""An attempt that ended and one that was stopped, with how long they ran by the clock of their worker."""

IN_A_CONTAINER: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (JobSubmitted(job=Job(id=TRAIN, command=("true",), image="registry.example/train:1")),),
)
"""A job whose program runs in a container."""

KILLED_BY_THE_KERNEL = End(
    reason=EndReason.OOM,
    at=NOON,
    exit_code=137,
    facts=(
        Fact(kind=FactKind.MEMORY, proven=True, text="Out of memory: Killed process 4711 (python)"),
        Fact(kind=FactKind.DISK, text="/ is full"),
    ),
)

QUIET: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (WorkerUpdated(worker=SPOT, connection=HOST, cpu=4.0, memory=1 << 33, boot_id="b0075"),),
    (
        JobSubmitted(job=Job(id=LONE.job, command=("python", "train.py"), silent_after=600.0)),
        TaskAssigned(task=LONE, attempt=0, worker=SPOT, token=Token("e" * 32)),
        TaskRunning(task=LONE, attempt=0, started_at=NOON),
    ),
    (TaskQuiet(task=LONE, attempt=0, since=NOON),),
    (TaskQuiet(task=LONE, attempt=0, since=None),),
    (TaskQuiet(task=LONE, attempt=0, since=NOON + 900.0),),
)
"""A task that was quiet, wrote something, and is quiet again."""

STUCK: tuple[tuple[Event, ...], ...] = (
    *QUIET[:4],
    (TaskQuiet(task=LONE, attempt=0, since=NOON, place="load (data.py:3)"),),
)
"""A task whose place was known when it went quiet."""

TRIED_AGAIN: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (JobSubmitted(job=Job(id=LONE.job, command=("python", "train.py"))), JobCancelled(job=LONE.job)),
    (
        TaskEnded(task=LONE, state=TaskState.KILLED, end=End(reason=EndReason.CANCELLED, at=NOON)),
        JobEnded(job=LONE.job, end=End(reason=EndReason.CANCELLED, at=NOON)),
    ),
    (JobSubmitted(job=Job(id=JobId("solo-2"), command=("python", "train.py"), again=LONE.job)),),
)
"""A job that was cancelled, and submitted again."""

HELD: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (JobSubmitted(job=Job(id=LONE.job, command=("python", "train.py"), scheduling_timeout=600.0)),),
    (JobChanged(job=LONE.job, held=True),),
    (JobChanged(job=LONE.job, priority=Priority.LOW, scheduling_timeout=0.0),),
    (JobChanged(job=LONE.job, held=False),),
    (JobChanged(job=LONE.job, held=True, priority=Priority.HIGH),),
)
"""A job that was held, reordered, released, and is held again."""

ON_A_TERMINAL: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (JobSubmitted(job=Job(id=LONE.job, command=("bash",), lease=120.0, client="0badc0ffee15dead")),),
)
"""A job whose program runs on the terminal of a client."""

LIMITED: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (
        JobSubmitted(
            job=Job(id=TRAIN, command=("true",), resources=Resources(memory=1 << 29), memory_limit=True)
        ),
    ),
)
"""A job whose tasks are held to the memory that they ask for."""

EXPLAINED: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (WorkerUpdated(worker=SPOT, connection=HOST, cpu=4.0, memory=1 << 33, boot_id="b0075"),),
    (
        JobSubmitted(job=Job(id=LONE.job, command=("python", "train.py"))),
        TaskAssigned(task=LONE, attempt=0, worker=SPOT, token=Token("f" * 32)),
        TaskRunning(task=LONE, attempt=0, started_at=NOON),
    ),
    (
        AttemptEnded(task=LONE, attempt=0, end=KILLED_BY_THE_KERNEL),
        TaskEnded(task=LONE, state=TaskState.FAILED, end=KILLED_BY_THE_KERNEL.without_details()),
        JobEnded(job=LONE.job, end=KILLED_BY_THE_KERNEL.with_cause(KILLED_BY_THE_KERNEL.reason, NOON, LONE)),
    ),
)
"""A task whose worker measured why it ended."""

BY_SRUN: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (
        WorkerRegistered(
            worker=SPOT,
            connection=Connection(
                host="10.0.0.1",
                user="me",
                known_hosts="accept-new",
                remote_dir="/tmp/iris-1000/4711",
                allocation="4711",
                node="n3",
                login="login-1",
            ),
        ),
    ),
)
"""A node of a Slurm job, reached by `srun` on a login host."""
