"""Workers and slices: their attributes and claims, and the reasons why they accept no new work."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from msgspec import Struct

from iris_cli.core import AttributeValue, Claim, Cluster, Limits, WorkerCondition, constraints, describe
from iris_cli.core.attributes import int_attribute
from iris_cli.core.decorators import gc_paused
from iris_cli.core.grouping import group_pairs
from iris_cli.core.ids import AttemptId, JobId, WorkerId
from iris_cli.core.model.task import AttemptState
from iris_cli.core.model.worker import Connection, Worker, WorkerCapacity, has_wrong_clock, is_cooling_down
from iris_cli.core.units import format_duration
from iris_cli.ops.names import find_worker
from iris_cli.ops.outcomes.causes import skew_words, without_worker
from iris_cli.ops.session import Session
from iris_cli.ops.views.view import View, ViewResult, load_view


class WorkerRow(Struct, frozen=True, kw_only=True):
    """One worker in one line.

    `cpu` is in cores, `memory` in bytes. The `*_free` values are the parts that no live attempt holds. `chips_free` is
    True if the worker has chips and no live attempt holds them. `status` is one word. `refuses` are the reasons why the
    worker accepts no new work. Only jobs that tolerate the `taints` are placed on it. `warnings` are other problems.
    """

    id: WorkerId
    worker: WorkerId  # the id under the key that other JSON documents use
    slice: str | None
    index: int | None
    device: str
    status: str
    refuses: tuple[str, ...]
    warnings: tuple[str, ...]
    taints: tuple[str, ...]
    cpu: float
    cpu_free: float
    memory: int
    memory_free: int
    chips: int
    chips_free: bool
    gpus: int
    gpus_free: int
    jobs: tuple[JobId, ...]


class SliceRow(Struct, frozen=True, kw_only=True):
    """One slice. `busy` counts workers with chips in use. `unusable` counts idle workers that accept no new work."""

    name: str
    type: str
    workers: tuple[WorkerId, ...]
    free: int
    busy: int
    unusable: int
    status: str
    jobs: tuple[JobId, ...]


class ClaimRow(Struct, frozen=True, kw_only=True):
    """The resources that one live attempt holds on a worker. `since_at` is the time of its assignment."""

    attempt: AttemptId
    state: AttemptState
    since_at: float
    cpu: float
    memory: int
    gpus: tuple[int, ...]
    chips: bool


class WorkerDetails(Struct, frozen=True, kw_only=True):
    """All details of one worker. `skew`: seconds by which the worker's clock is ahead of this machine's clock."""

    FLATTENED: ClassVar[tuple[str, ...]] = ("worker",)
    worker: WorkerRow
    condition: WorkerCondition
    reason: str
    claims: tuple[ClaimRow, ...]
    attributes: Mapping[str, AttributeValue]
    taints_by_hand: tuple[str, ...]
    connection: Connection
    boot_id: str
    incarnation: str
    containment: str
    failed_polls: int
    silent_since_at: float | None
    cooldown_until_at: float | None
    quarantined_at: float | None
    skew: float


class WorkerView(ViewResult, frozen=True, kw_only=True):
    """The result of `iris worker show`.

    `occupied` names the kinds of tasks that do not fit on the worker, and why.
    """

    FLATTENED: ClassVar = ("details",)
    details: WorkerDetails
    occupied: tuple[str, ...]


class Inventory(ViewResult, frozen=True, kw_only=True):
    """The result of `iris workers`: all workers, in the order of `worker_rows`."""

    workers: tuple[WorkerDetails, ...]
    slices: tuple[SliceRow, ...]


@gc_paused
def inventory(session: Session, *, briefly: bool = False) -> Inventory:
    """Return all workers. With `briefly`, omit claims and slices, because tables do not show them."""
    view = load_view(session)
    rows = worker_rows(view)
    return Inventory(
        **view.result_fields,
        workers=tuple(worker_details(view, row, briefly=briefly) for row in rows),
        slices=() if briefly else slice_rows(view, rows),
    )


def show(session: Session, name: str) -> WorkerView:
    """Return all details of one worker. Raises NotFoundError."""
    view = load_view(session)
    worker = find_worker(view.cluster, name)
    details = worker_details(view, worker_row(view, worker))
    return WorkerView(**view.result_fields, details=details, occupied=tuple(full_resources(view, worker)))


def worker_details(view: View, row: WorkerRow, *, briefly: bool = False) -> WorkerDetails:
    """Return the details of this row's worker. With `briefly`, omit the claims."""
    worker = view.cluster.workers[row.id]
    return WorkerDetails(
        worker=row,
        condition=worker.condition,
        reason=worker.reason,
        claims=() if briefly else tuple(_claims(view.cluster, worker)),
        attributes=dict(sorted(worker.all_attributes.items())),
        taints_by_hand=worker.taints,
        connection=worker.connection,
        boot_id=worker.boot_id,
        incarnation=worker.incarnation,
        containment=worker.containment,
        failed_polls=worker.failed_polls,
        silent_since_at=worker.silent_since,
        cooldown_until_at=worker.cooldown_until if is_cooling_down(worker, view.now, view.limits) else None,
        quarantined_at=worker.quarantined_at if worker.quarantined else None,
        skew=worker.skew,
    )


def worker_rows(view: View) -> tuple[WorkerRow, ...]:
    """Return all workers: first the workers of slices, by slice and index, then the other workers by id."""
    rows = [worker_row(view, worker) for worker in view.cluster.workers.values()]
    return tuple(sorted(rows, key=lambda row: (row.slice is None, row.slice or "", row.index or 0, row.id)))


def worker_row(view: View, worker: Worker) -> WorkerRow:
    capacity = WorkerCapacity.of(worker)
    free = capacity.free
    slice_name = worker.attributes.get(constraints.TPU_NAME_ATTRIBUTE_KEY)
    device_keys = (constraints.DEVICE_TYPE_ATTRIBUTE_KEY, constraints.DEVICE_VARIANT_ATTRIBUTE_KEY)
    jobs = dict.fromkeys(attempt_id.task.job for attempt_id in worker.claims)
    return WorkerRow(
        id=worker.id,
        worker=worker.id,
        slice=None if slice_name is None else str(slice_name),
        index=int_attribute(worker.attributes, constraints.TPU_WORKER_ID_ATTRIBUTE_KEY),
        device=" ".join(str(worker.attributes[key]) for key in device_keys if key in worker.attributes),
        status=_status(view, worker),
        refuses=tuple(refusals(view, worker)),
        warnings=tuple(_warnings(view, worker)),
        taints=tuple(
            key.removeprefix(constraints.TAINT_KEY_PREFIX)
            for key in worker.attributes
            if key.startswith(constraints.TAINT_KEY_PREFIX)
        ),
        cpu=worker.cpu,
        cpu_free=free.cpu_millis / 1000,
        memory=worker.memory,
        memory_free=free.memory,
        chips=worker.chips,
        chips_free=bool(free.chips and worker.chips),
        gpus=worker.gpus,
        gpus_free=len(capacity.gpus),
        jobs=tuple(jobs),
    )


def slice_rows(view: View, rows: Iterable[WorkerRow]) -> tuple[SliceRow, ...]:
    """Return the slices of these workers, by name."""
    members = group_pairs((row.slice, row) for row in rows if row.slice is not None)
    return tuple(_slice_row(view.cluster, name, members[name]) for name in sorted(members))


def _slice_row(cluster: Cluster, name: str, rows: list[WorkerRow]) -> SliceRow:
    busy = {row.id for row in rows if any(claim.chips for claim in cluster.workers[row.id].claims.values())}
    unusable = sum(bool(row.refuses) for row in rows if row.id not in busy)
    return SliceRow(
        name=name,
        type=_slice_type(cluster.workers[rows[0].id], len(rows)),
        workers=tuple(row.id for row in rows),
        free=len(rows) - len(busy) - unusable,
        busy=len(busy),
        unusable=unusable,
        status=_slice_status(rows, max(0, _vm_count(cluster.workers[rows[0].id]) - len(rows))),
        jobs=tuple(dict.fromkeys(job for row in rows for job in row.jobs)),
    )


def _slice_type(worker: Worker, members: int) -> str:
    accelerator = worker.attributes.get(constraints.TPU_TOPOLOGY_ATTRIBUTE_KEY) or worker.attributes.get(
        constraints.DEVICE_VARIANT_ATTRIBUTE_KEY
    )
    return describe(str(accelerator), _vm_count(worker) or members) if accelerator is not None else ""


def _vm_count(worker: Worker) -> int:
    """Return the number of VMs of the worker's slice, or 0 if unknown."""
    return int_attribute(worker.attributes, constraints.TPU_VM_COUNT_ATTRIBUTE_KEY) or 0


def _slice_status(rows: list[WorkerRow], missing: int) -> str:
    """Return `healthy`, or the numbers of workers that accept no new work by status, such as `1 lost, 2 draining`.

    `missing` VMs of the slice are no workers or were never probed: a gang can't be placed on such a slice.
    """
    counts = Counter(row.status for row in rows if row.refuses)
    if missing:
        counts["missing"] = missing
    if list(counts.values()) == [len(rows) + missing]:
        return next(iter(counts))
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "healthy"


def _status(view: View, worker: Worker) -> str:
    """Return the worker's status in one word: `healthy`, or the first problem."""
    if worker.condition is not WorkerCondition.HEALTHY:
        return worker.condition.value
    if worker.quarantined:
        return "quarantined"
    if worker.draining:
        return "draining"
    if worker.unschedulable:
        return "unusable"
    if is_cooling_down(worker, view.now, view.limits):
        return "cooling"
    is_stopping = worker.id in view.stopping_on or worker.id in view.cluster.ghosts
    return "stopping" if is_stopping else worker.condition.value


def _warnings(view: View, worker: Worker) -> Iterable[str]:
    if ghosts := _ghost_words(view.cluster, worker.id):
        yield ghosts
    if has_wrong_clock(worker):
        yield f"clock {skew_words(worker.skew)}"


def refusals(view: View, worker: Worker) -> Iterable[str]:
    """Yield a sentence for each reason why the worker accepts no new work."""
    if worker.condition is not WorkerCondition.HEALTHY:
        yield _condition_words(view, worker)
    if ghosts := _ghost_words(view.cluster, worker.id):
        yield ghosts
    if worker.quarantined:
        yield f"quarantined: {worker.quarantine_reason or 'no reason given'}"
    if worker.draining:
        yield "draining" + (f" ({worker.drain_reason})" if worker.drain_reason else "")
    if worker.unschedulable:
        yield f"unusable: {worker.reason}"
    if worker.condition is WorkerCondition.HEALTHY and is_cooling_down(worker, view.now, view.limits):
        left = format_duration(worker.cooldown_until - view.now)
        why = f": {worker.reason}" if worker.reason else ""
        yield f"cooling down, {left} left{why}"
    if worker.id in view.stopping_on:
        attempts = view.cluster.live_attempts_on(worker.id)
        stopping = (str(name) for name, attempt in attempts if attempt.state is AttemptState.STOPPING)
        yield f"still stopping {', '.join(stopping)}"


def problem_of(view: View, worker_id: WorkerId) -> str:
    """Return the problem of a worker that runs an attempt, or ''. A stopping attempt is not a problem."""
    worker = view.cluster.workers[worker_id]
    is_usable = not (worker.quarantined or worker.unschedulable)
    if worker.condition is WorkerCondition.HEALTHY and is_usable:
        return ""
    return next(iter(refusals(view, worker)), "")


def full_resources(view: View, worker: Worker) -> Iterable[str]:
    """Yield the kinds of tasks that do not fit on a healthy worker, with the jobs that use its resources."""
    free, gpus, _ = WorkerCapacity.of(worker)
    all_jobs = _holders(worker, lambda _claim: True)
    if free.cpu_millis <= 0 and worker.claims:
        yield f"new tasks: all cores in use by {all_jobs}"
    if free.memory <= 0 and worker.claims:
        yield f"new tasks: all memory in use by {all_jobs}"
    if worker.chips and not free.chips:
        yield f"TPU tasks: chips in use by {_holders(worker, lambda claim: claim.chips)}"
    if worker.gpus and not gpus:
        yield f"GPU tasks: GPUs in use by {_holders(worker, lambda claim: bool(claim.gpus))}"
    reserved_for = view.plan.result.reserved_for.get(worker.id)
    if reserved_for is not None:
        yield f"tasks that would delay {reserved_for}: reserved for it"


def _holders(worker: Worker, holds: Callable[[Claim], object]) -> str:
    return ", ".join(
        dict.fromkeys(attempt.task.job for attempt, claim in worker.claims.items() if holds(claim))
    )


def _condition_words(view: View, worker: Worker) -> str:
    """Return the condition of an unhealthy worker, with its duration, the reason, and the time of the next call."""
    if worker.condition is WorkerCondition.UNPROBED and not (worker.failed_polls or worker.reason):
        return f"not probed yet{view.next_words('will be probed in the next cycle')}"
    since = ""
    if worker.silent_since is not None:
        # A worker counts as lost only after a long silence.
        silent = ", silent" if worker.condition is WorkerCondition.LOST else ""
        since = f"{silent} for {format_duration(max(0.0, view.now - worker.silent_since))}"
    reason = f" ({without_worker(worker.reason, worker.id)})" if worker.reason else ""
    condition = worker.condition.value.replace("_", " ")
    return f"{condition}{since}{reason}{view.next_words(next_retry_words(worker, view.now, view.limits))}"


def next_retry_words(worker: Worker, now: float, limits: Limits) -> str:
    """Return the time of the next call to a silent worker in words, such as `polled again in 40s`."""
    if not is_cooling_down(worker, now, limits):
        return "polled again in the next cycle"
    return f"polled again in {format_duration(worker.cooldown_until - now)}"


def _claims(cluster: Cluster, worker: Worker) -> Iterable[ClaimRow]:
    for attempt_id, attempt in cluster.live_attempts_on(worker.id):
        claim = worker.claims[attempt_id]
        yield ClaimRow(
            attempt=attempt_id,
            state=attempt.state,
            since_at=attempt.assigned_at,
            cpu=claim.cpu_millis / 1000,
            memory=claim.memory,
            gpus=claim.gpus,
            chips=claim.chips,
        )


def _ghost_words(cluster: Cluster, worker: WorkerId) -> str:
    if worker not in cluster.ghosts:
        return ""
    from iris_cli.core.lifecycle.identity import ghost_warning

    return ghost_warning(cluster, worker)
