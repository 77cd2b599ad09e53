"""Data of `iris status JOB`: one job with its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from iris_cli.core import AttemptId, Cluster, Constraint, JobId, describe, group_pairs, lookup, parent_of
from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.lifecycle.display import job_display, task_displays
from iris_cli.core.messages.requests import EndpointPart
from iris_cli.core.model.job import Job, JobState, Workspace
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.core.units import format_cores, format_memory
from iris_cli.ops.names import find_job
from iris_cli.ops.session import Session
from iris_cli.ops.views.status import JobRow, job_row, outline_of
from iris_cli.ops.views.task_rows import TaskRow, task_row, waiting_words
from iris_cli.ops.views.view import CycleAge, View, ViewResult, load_view

if TYPE_CHECKING:
    from iris_cli.core.scheduling import ExpectedStart
    from iris_cli.ops.views.failure import FailureCard


class JobStatus(ViewResult, frozen=True, kw_only=True):
    """One job as of `at`. `next` is the command to type next; '' in a view of the past.

    `expected_start` is an estimate for a pending job, or None. `origin` is the attempt that submitted the job from
    inside a task, or None. `inherited` maps each inherited constraint to the job that named it. `array` lists the
    indexes of the tasks in order (`1,3,5`); '' if the job is not an array.
    """

    FLATTENED: ClassVar = ("job",)
    past: bool
    cycle: CycleAge | None
    job: JobRow
    command: tuple[str, ...]
    needs: str
    constraints: tuple[Constraint, ...]
    origin: AttemptId | None
    inherited: Mapping[str, JobId]
    workspace: Workspace | None
    array: str
    after: tuple[JobId, ...]
    children: tuple[JobId, ...]
    child_states: Mapping[JobState, Sequence[JobId]]
    child_displays: Mapping[str, Sequence[JobId]]
    endpoints: tuple[EndpointPart, ...]
    rounds: int
    failure: FailureCard | None
    expected_start: ExpectedStart | None
    tasks: tuple[TaskRow, ...]
    next: str


def job_status(session: Session, job_id: str, *, at: str | None = None) -> JobStatus:
    """Return one job now, or as of the time `at`. Raises NotFoundError, UsageError."""
    view = load_view(session, at)
    job = view.cluster.jobs[find_job(view.cluster, job_id)]
    pending_reasons = waiting_words(view, job)
    row = job_row(view, outline_of(view.cluster, job))
    displays = task_displays(view.cluster, job.id)
    failure, follow_up = _failure(view, row, job)
    children = view.cluster.children_of(job.id)
    first_pending = next(iter(pending_reasons), None)
    return JobStatus(
        **view.result_fields,
        past=view.cycle is None,
        cycle=view.cycle,
        job=row,
        command=job.command,
        needs=needs_words(job),
        constraints=job.constraints,
        origin=job.origin.attempt if job.origin else None,
        inherited=inherited_from(view.cluster, job),
        workspace=job.workspace,
        array=job.array,
        after=job.after,
        children=tuple(child.id for child in children),
        child_states=group_pairs((view.cluster.job_state(child.id), child.id) for child in children),
        child_displays=group_pairs((job_display(view.cluster, child.id), child.id) for child in children),
        endpoints=tuple(endpoint_rows(view.cluster, job.id)),
        rounds=job.rounds,
        failure=failure,
        expected_start=view.expected_start(job, first_pending) if first_pending is not None else None,
        tasks=tuple(
            task_row(view, task, display, pending_reasons.get(task.id, ""))
            for task, display in zip(view.cluster.tasks_of(job.id), displays, strict=True)
        ),
        next=""
        if view.cycle is None
        else follow_up or next_command(view.cluster, job, quiet=bool(row.quiet)),
    )


def inherited_from(cluster: Cluster, job: Job) -> dict[str, JobId]:
    """Map each inherited constraint, as the user typed it, to the ancestor job that named it."""
    sources = ((each, _source(cluster, job, each)) for each in job.constraints)
    return {format_constraint(each): source for each, source in sources if source != job.id}


def _source(cluster: Cluster, job: Job, constraint: Constraint) -> JobId:
    """Return the job that named the constraint: `job`, or the nearest ancestor that did not inherit it."""
    while job.origin is not None and constraint not in job.origin.repeats:
        parent = cluster.jobs[job.origin.attempt.task.job]
        if constraint not in parent.constraints:
            break
        job = parent
    return job.id


def endpoint_rows(cluster: Cluster, job: JobId) -> Iterator[EndpointPart]:
    """Yield the endpoints that a job's tasks registered, by task and name."""
    for attempt_id, endpoint in cluster.endpoints_of(job):
        yield EndpointPart(
            task=str(attempt_id.task),
            name=endpoint.name,
            address=cluster.workers[cluster.attempt(attempt_id).worker].connection.host,
            port=endpoint.port,
            metadata=dict(endpoint.metadata),
        )


def needs_words(job: Job) -> str:
    """Return the resources of one task, such as `1 of the 4 VMs of a v4-32 (4 of its 16 chips), 1 core, ...`."""
    resources = job.resources
    device = resources.device
    parts = [
        format_cores(resources.cpu),
        f"{format_memory(resources.memory)} of memory",
    ]
    if device is not None and device.kind == "tpu" and device.variant != "auto":
        vms = job.replicas // job.slices if job.is_gang else None
        if vms is not None and vms > 1:
            known = lookup(device.variant)
            chips = f" ({known.chips // vms} of its {known.chips} chips)" if known else ""
            parts.insert(0, f"1 of the {vms} VMs of a {device.variant}{chips}")
        else:
            parts.insert(0, describe(device.variant, vms))
    elif device is not None:
        parts.insert(0, str(device))
    return ", ".join(parts)


def next_command(cluster: Cluster, job: Job, *, quiet: bool = False) -> str:
    """Return the most helpful command for a job without a failure card. `quiet`: True if a task is quiet."""
    state = cluster.job_state(job.id)
    if job.tried_again:
        return f"iris status {job.tried_again[-1]}"
    if has_unhealthy_worker(cluster, job):
        return "iris doctor"  # names the problem of each worker, and the command that fixes it
    if quiet:
        return f"iris stacks {job.id}"
    if state is JobState.UNSCHEDULABLE:
        states = {each: cluster.job_state(each) for each in job.after if each in cluster.jobs}
        failed = (each for each in states if states[each].terminal and states[each] is not JobState.SUCCEEDED)
        failed_job = next(failed, None)
        return f"iris status {failed_job}" if failed_job is not None else "iris workers"
    if state is JobState.PENDING and is_being_set_up(cluster, job):
        return f"iris logs {job.id}"  # the output of the set-up
    if state is JobState.PENDING:
        return f"iris {'why' if job.held_at is None else 'release'} {job.id}"
    if state is JobState.KILLED:
        parent = parent_of(job.id)
        ended_with_parent = (
            parent is not None and parent in cluster.jobs and cluster.jobs[parent].end is not None
        )
        return f"iris status {parent}" if ended_with_parent else f"iris history {job.id}"
    if job.client:  # the output of an interactive job was on the terminal
        return f"iris history {job.id}"
    return f"iris logs {job.id}" + (" --follow" if state is JobState.RUNNING else "")


def is_being_set_up(cluster: Cluster, job: Job) -> bool:
    """Return whether a worker sets up an attempt of the job, none of whose tasks is running."""
    return job.has_set_up and any(
        attempt.acknowledged and attempt.started_at is None for _, attempt in cluster.live_attempts_of(job.id)
    )


def has_unhealthy_worker(cluster: Cluster, job: Job) -> bool:
    """Return whether a worker with a live attempt of the job is not healthy, is quarantined or is unusable."""
    workers = (cluster.workers[attempt.worker] for _, attempt in cluster.live_attempts_of(job.id))
    return any(
        each.condition is not WorkerCondition.HEALTHY or each.quarantined or each.unschedulable
        for each in workers
    )


def _failure(view: View, row: JobRow, job: Job) -> tuple[FailureCard | None, str]:
    """Return the failure card (or None), and the next command because of a failure (or '')."""
    if row.state is not JobState.FAILED and not row.retry:
        return None, ""
    from iris_cli.ops.views.failure import drain_command, failure_card  # most commands show no failure

    failure = failure_card(view, job) if row.state is JobState.FAILED else None
    if failure is not None:
        return failure, failure.next
    return None, drain_command(view, job) if row.retry else ""
