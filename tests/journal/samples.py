"""A log in which every type of event stands, with every field that an operator's day can fill."""

from __future__ import annotations

from pathlib import Path

from iris_cli.core.constraints import AttributeValue, Constraint, ConstraintMode, ConstraintOp
from iris_cli.core.events.events import (
    AttemptEnded,
    AttemptHeldUp,
    AttemptOrphaned,
    AttemptPresumedGone,
    AttemptProvenGone,
    AttemptsReaped,
    AttemptStopped,
    AttemptStopRequested,
    AttemptUnkillable,
    ClusterCreated,
    DispatchTakenOver,
    Event,
    GangRoundEnded,
    JobCancelled,
    JobEnded,
    JobSubmitted,
    LogCompacted,
    TaskAssigned,
    TaskDispatched,
    TaskDispatchFailed,
    TaskEnded,
    TaskRequeued,
    TaskRunning,
    WorkerConditionChanged,
    WorkerDrained,
    WorkerForgotten,
    WorkerQuarantined,
    WorkerRegistered,
    WorkerSilenceCounted,
    WorkerSkewChanged,
    WorkerTainted,
    WorkerUncordoned,
    WorkerUnwedged,
    WorkerUpdated,
)
from iris_cli.core.ids import AttemptId, JobId, TaskId, Token, WorkerId
from iris_cli.core.model import job as of_job
from iris_cli.core.model.job import EarlySignal
from iris_cli.core.model.task import End, EndReason, TaskState
from iris_cli.core.model.worker import Connection, WorkerCondition
from iris_cli.core.resources import Device, Resources
from iris_cli.files import DISK
from iris_cli.journal.log.head import write_head
from iris_cli.journal.log.position import START
from iris_cli.journal.log.record import encode_line, end_of_line
from iris_cli.journal.state_dir import StateDir

NOON = 1_795_262_400.0  # 2026-11-21T12:00:00Z
A0, A1, CPU = WorkerId("v4a-0"), WorkerId("v4a-1"), WorkerId("cpu-0")
TRAIN, SOLO, CHILD = JobId("train"), JobId("solo"), JobId("train/eval")
RANK0, RANK1, LONE = TaskId(TRAIN, 0), TaskId(TRAIN, 1), TaskId(SOLO, 0)
HOST = Connection(
    host="10.0.0.1",
    user="me",
    port=2222,
    key="~/.ssh/id_ed25519",
    proxy_jump="bastion",
    known_hosts="accept-new",
    remote_dir="/mnt/ssd/iris",
)

_CONSTRAINTS = (
    Constraint.of("region", ConstraintOp.EQ, "us-central2"),
    Constraint.of("pool", ConstraintOp.NE, "1"),
    Constraint.of("disk", ConstraintOp.EXISTS),
    Constraint.of("broken", ConstraintOp.NOT_EXISTS),
    Constraint.of("tpu-worker-id", ConstraintOp.GE, 1),
    Constraint.of("load", ConstraintOp.LT, 0.5),
    Constraint.of("zone", ConstraintOp.IN, values=("us-central2-b", 7, 7.0), mode=ConstraintMode.PREFERRED),
)
_TRAIN = of_job.Job(
    id=TRAIN,
    command=("python", "train.py", "--name", 'Grüße "here" \\ \x1b'),
    resources=Resources(cpu=0.5, memory=1 << 34, device=Device("tpu", "v4-16")),
    replicas=2,
    slices=1,
    constraints=_CONSTRAINTS,
    tolerations=("experimental",),
    coscheduling=of_job.CoschedulingConfig("tpu-name"),
    env={"XLA_FLAGS": "--xla", "EMPTY": ""},
    secrets=("WANDB_API_KEY",),
    setup="uv sync",
    env_preset=of_job.EnvPreset.JAX,
    priority=of_job.Priority.HIGH,
    max_retries_failure=1,
    max_retries_preemption=7,
    max_dispatch_failures=3,
    scheduling_timeout=3600.0,
    timeout=86400.5,
    setup_timeout=60.0,
    grace=5.0,
    labels={"team": "vision"},
)
_SOLO = of_job.Job(
    id=SOLO, command=("true",), max_task_failures=1, resources=Resources(device=Device("gpu", "h100", 2))
)
_CHILD = of_job.Job(id=CHILD, command=("true",), after=(SOLO,))

STORY: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (
        WorkerRegistered(worker=A0, connection=HOST),
        WorkerRegistered(worker=A1, connection=Connection(host="10.0.0.2")),
        WorkerRegistered(worker=CPU, connection=Connection(host="cpu0.example.org")),
    ),
    tuple(
        WorkerUpdated(
            worker=worker,
            connection=HOST,
            attributes={
                "tpu-name": AttributeValue("v4a"),
                "tpu-worker-id": AttributeValue(index),
                "load": AttributeValue(0.25),
                "rack": AttributeValue("1"),
            },
            cpu=240.0,
            memory=1 << 38,
            chips=4,
            gpus=2,
            boot_id="b0075",
            incarnation="1ncarnat10n",
            declared="f1ngerpr1nt",
        )
        for index, worker in enumerate((A0, A1))
    ),
    (
        WorkerUpdated(worker=CPU, connection=HOST, refusal="the worker id is missing"),
        WorkerConditionChanged(worker=A0, condition=WorkerCondition.HEALTHY),
        WorkerConditionChanged(worker=A1, condition=WorkerCondition.HEALTHY),
        WorkerConditionChanged(
            worker=CPU,
            condition=WorkerCondition.SUSPECT,
            reason="connect: timed out",
            failed_polls=2,
            cooldown_until=NOON + 20,
        ),
    ),
    (WorkerTainted(worker=CPU, taint="experimental"), WorkerQuarantined(worker=CPU, reason="3 refusals")),
    (WorkerTainted(worker=CPU, taint="experimental", removed=True),),
    (
        WorkerQuarantined(worker=CPU, reason="clean probe", lifted=True),
        WorkerDrained(worker=CPU, reason="new disk"),
    ),
    (WorkerUncordoned(worker=CPU),),
    (JobSubmitted(job=_TRAIN), JobSubmitted(job=_SOLO), JobSubmitted(job=_CHILD)),
    (
        TaskAssigned(task=RANK0, attempt=0, worker=A0, token=Token("8f0c" * 8)),
        TaskAssigned(task=RANK1, attempt=0, worker=A1, token=Token("0123456789abcdef" * 2)),
    ),
    (
        DispatchTakenOver(task=RANK0, attempt=0),
        TaskDispatched(task=RANK0, attempt=0),
        TaskDispatched(task=RANK1, attempt=0),
    ),
    (
        TaskRunning(task=RANK0, attempt=0, started_at=NOON + 9.5),
        TaskRunning(task=RANK1, attempt=0, started_at=NOON + 9),
    ),
    (
        AttemptEnded(
            task=RANK0,
            attempt=0,
            end=End(
                reason=EndReason.USER_ERROR, at=NOON + 60, exit_code=1, error="exit 1", log_tail="Traceback\n"
            ),
        ),
        AttemptStopRequested(task=RANK1, attempt=0, reason=EndReason.SIBLING, trigger=RANK0),
    ),
    (
        AttemptStopped(task=RANK1, attempt=0, exit_code=143, log_tail="terminated\n"),
        GangRoundEnded(job=TRAIN, round=0, reason=EndReason.USER_ERROR, trigger=RANK0),
        TaskRequeued(task=RANK0, reason=EndReason.USER_ERROR),
        TaskRequeued(task=RANK1, reason=EndReason.SIBLING),
    ),
    (TaskAssigned(task=LONE, attempt=0, worker=A0, token=Token("5" * 32), gpus=(0, 1)),),
    (TaskDispatchFailed(task=LONE, attempt=0, error="disk: full", refused=True),),
    (
        TaskAssigned(task=RANK0, attempt=1, worker=A0, token=Token("6" * 32)),
        TaskAssigned(task=RANK1, attempt=1, worker=A1, token=Token("7" * 32)),
    ),
    (
        TaskDispatchFailed(task=RANK0, attempt=1, error="chips held", refused=True),
        TaskDispatchFailed(task=RANK1, attempt=1, error="not sent"),
        GangRoundEnded(job=TRAIN, round=1, reason=EndReason.DISPATCH_FAILED, refused=True),
    ),
    (
        JobCancelled(job=TRAIN, reason="wrong data"),
        TaskEnded(task=RANK0, state=TaskState.KILLED, end=End(reason=EndReason.CANCELLED, at=NOON + 90)),
        TaskEnded(
            task=RANK1,
            state=TaskState.KILLED,
            end=End(
                reason=EndReason.SIBLING,
                at=NOON + 90,
                trigger=RANK0,
                error="Coscheduled sibling train/task-0 failed",
            ),
        ),
        JobEnded(job=TRAIN, end=End(reason=EndReason.CANCELLED, at=NOON + 90)),
    ),
    (WorkerForgotten(worker=CPU, dead=True, reason="sold"),),
)

SPOT, LEASED, PAIR = WorkerId("spot-0"), TaskId(JobId("leased"), 0), TaskId(SOLO, 1)

LOSSES: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (WorkerUpdated(worker=SPOT, connection=HOST, cpu=4.0, memory=1 << 33, boot_id="b0075", vm="4711"),),
    (WorkerSkewChanged(worker=SPOT, skew=-42.0),),
    (
        JobSubmitted(
            job=of_job.Job(
                id=LEASED.job, command=("true",), lease=900.0, replace_lost=of_job.ReplaceLost.ALWAYS
            )
        ),
        TaskAssigned(task=LEASED, attempt=0, worker=SPOT, token=Token("8" * 32)),
    ),
    (TaskRunning(task=LEASED, attempt=0, started_at=NOON), AttemptOrphaned(task=LEASED, attempt=0)),
    (
        WorkerSilenceCounted(worker=SPOT),
        WorkerSilenceCounted(worker=SPOT, anew=True),
        AttemptStopRequested(task=LEASED, attempt=0, reason=EndReason.WORKER_FAILED),
    ),
    (AttemptUnkillable(task=LEASED, attempt=0),),
    (
        AttemptPresumedGone(task=LEASED, attempt=0),
        AttemptStopped(task=LEASED, attempt=0),
        AttemptProvenGone(task=LEASED, attempt=0),
    ),
)
"""The events that came with lost workers."""

REAPING: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (WorkerUpdated(worker=SPOT, connection=HOST, cpu=4.0, memory=1 << 33, boot_id="b0075"),),
    (
        JobSubmitted(job=of_job.Job(id=LONE.job, command=("true",), replicas=2)),
        TaskAssigned(task=LONE, attempt=0, worker=SPOT, token=Token("9" * 32)),
        TaskAssigned(task=PAIR, attempt=0, worker=SPOT, token=Token("a" * 32)),
    ),
    (
        AttemptEnded(task=LONE, attempt=0, end=End(reason=EndReason.OK, at=NOON)),
        AttemptEnded(task=PAIR, attempt=0, end=End(reason=EndReason.OK, at=NOON)),
    ),
    (AttemptsReaped(worker=SPOT, attempts=(AttemptId(LONE, 0),), left=(AttemptId(PAIR, 0),)),),
)
"""The event that came with the removal of old output."""

HELD_UP: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (WorkerUpdated(worker=SPOT, connection=HOST, cpu=4.0, memory=1 << 33, boot_id="b0075"),),
    (
        JobSubmitted(job=of_job.Job(id=LONE.job, command=("true",), replicas=2, lease=60.0)),
        TaskAssigned(task=LONE, attempt=0, worker=SPOT, token=Token("9" * 32)),
        TaskAssigned(task=PAIR, attempt=0, worker=SPOT, token=Token("a" * 32)),
    ),
    (
        AttemptHeldUp(task=LONE, attempt=0, error="spot-0 was told to start it, and did not"),
        AttemptStopRequested(task=LONE, attempt=0, reason=EndReason.DISPATCH_FAILED),
    ),
    (
        TaskDispatched(task=PAIR, attempt=0),
        TaskRunning(task=PAIR, attempt=0, started_at=NOON),
        AttemptStopped(task=LONE, attempt=0),
    ),
    (
        AttemptPresumedGone(task=PAIR, attempt=0, by_lease=True),
        AttemptEnded(task=PAIR, attempt=0, end=End(reason=EndReason.WORKER_FAILED, at=NOON)),
    ),
    (WorkerUnwedged(worker=SPOT, processes=("4711: python",), attempts=(Token("f" * 32),)),),
)
"""The events that came with starts that hang, leftovers of leases, and a word about what was cleared."""


COMPACTED: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (LogCompacted(name="museum", through=2),),
    (WorkerDrained(worker=SPOT, reason="new disk"),),
    (LogCompacted(name="museum", through=4),),
    (WorkerUncordoned(worker=SPOT),),
)
"""A log of which two parts are in the archive, beside it."""

CHOSEN: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (
        WorkerUpdated(
            worker=SPOT, connection=HOST, cpu=4.0, memory=1 << 33, boot_id="b0075", containment="cgroup"
        ),
    ),
    (
        JobSubmitted(
            job=of_job.Job(
                id=TRAIN,
                command=("true",),
                replicas=4,
                slices=2,
                resources=Resources(device=Device("tpu", "v4-16")),
                coscheduling=of_job.CoschedulingConfig("tpu-name"),
            )
        ),
        JobSubmitted(job=_SOLO),
    ),
    (TaskAssigned(task=LONE, attempt=0, worker=SPOT, token=Token("b" * 32), chosen="v4b: v4a busy"),),
)
"""Fields that were added to events and jobs: why this worker, what contains its processes, a gang on two slices."""

SHIPPED: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (
        JobSubmitted(
            job=of_job.Job(
                id=TRAIN,
                command=("python", "train.py"),
                workspace=of_job.Workspace(hash="0f1e2d3c" * 8, size=123_456_789, files=42, name="vision"),
            )
        ),
    ),
)
"""A job with a directory that goes with it."""

ARRAYS: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (WorkerRegistered(worker=SPOT, connection=HOST),),
    (
        JobSubmitted(
            job=of_job.Job(
                id=JobId("train"),
                command=("./convert",),
                replicas=3,
                timeout=3600.0,
                secrets=("TOKEN",),
                secret_files={"TOKEN": "/home/me/token"},
                ports=("http", "metrics"),
                signal=EarlySignal("USR1", 120.0),
                array="0-1,7",
                max_running=2,
                each_line=of_job.Lines(hash="89abcdef" * 8, count=10_000, size=123_456),
            )
        ),
    ),
    (
        TaskAssigned(
            task=TaskId(JobId("train"), 0),
            attempt=0,
            worker=SPOT,
            token=Token("b" * 32),
            ports=(30_000, 30_001),
        ),
    ),
)
"""An array of tasks, with all that can be said of one."""


def state_in(path: Path, *, now: float = NOON, cluster_name: str | None = None) -> StateDir:
    """A state directory that need not exist yet, at a time that stands still."""
    return StateDir(path, now=lambda: now, actor="me@laptop", cluster_name=cluster_name)


def filled(path: Path, transactions: int = 60) -> StateDir:
    """A state directory with a log of so many transactions, the first of which makes the cluster."""
    state = state_in(path)
    state.create("lab")
    with state.locked("iris drain") as writer:
        for index in range(1, transactions):
            writer.append(
                [WorkerDrained(worker=WorkerId(f"w{index}"), reason="x" * (index % 7))], at=NOON + index
            )
    return state


def written(path: Path, transactions: int) -> StateDir:
    """As `filled`, at once, with events of every type: a log to be read, though nobody could replay it."""
    lines: list[bytes] = []
    end = START
    for index in range(transactions):
        events = STORY[0] if index == 0 else STORY[1:][index % (len(STORY) - 1)]
        lines.append(encode_line(end, events, at=NOON + index, actor=f"me@laptop iris {index}"))
        end = end_of_line(end, lines[-1], NOON + index)
    path.mkdir(mode=0o700)
    (path / "events.jsonl").touch(0o600)
    (path / "events.jsonl").write_bytes(b"".join(lines))
    write_head(DISK, path, end)
    return state_in(path)
