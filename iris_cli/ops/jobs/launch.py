"""Submission of jobs."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from iris_cli.core import Cluster, Constraint, ConstraintOp, Job, JobId, JobRequest, WorkerId, clip
from iris_cli.core import attributes as keys
from iris_cli.core.attributes import AttributeValue, int_attribute
from iris_cli.core.constraint_syntax import typo_warnings
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import feasibility, request_fields, resubmission
from iris_cli.core.lifecycle.submit import submit
from iris_cli.core.model.task import AttemptState, TaskState
from iris_cli.core.model.worker import Worker, WorkerCondition
from iris_cli.core.resources import AUTO
from iris_cli.errors import LockedError, UsageError, WorkspaceGoneError
from iris_cli.ops.cycle.environment import encode_lines, hash_lines
from iris_cli.ops.names import find_job
from iris_cli.ops.session import Session
from iris_cli.ops.views.offered import offers

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Plan

_SET_UP_WAIT = 10.0  # seconds; enough to unpack a directory, but not to install a framework
_FIRST_PAUSE = 0.1  # seconds
_FORCE = "--force submits the job anyway"


def launch(session: Session, request: JobRequest) -> JobId:
    """Submit the job, and return its id. Run no cycle.

    The job's directory is packed BEFORE the lock is taken. The lines of the `--each-line` file are stored in a separate
    file, and the log contains the hash of that file.
    """
    request = hash_lines(request)
    if _has_files(request):
        # Raise errors before the packing, which may be slow.
        _submit(session, Draft(session.view(), session.clock.now()), request)
        from iris_cli.ops.workspace.pack import pack_request

        request = pack_request(session, request)
    with session.transaction() as draft:
        job, warnings = _submit(session, draft, request)
        # This invocation holds the lock, so no other invocation can delete the workspace after this check.
        if request.workspace is not None and not session.state.workspaces.has(request.workspace.hash):
            raise WorkspaceGoneError(
                f"the packed workspace {request.workspace.hash[:12]} was removed", hint="launch the job again"
            )
        if request.each_line is not None:
            session.state.lines.put([encode_lines(request.each_line)])
    _warn(session, warnings)
    return job


def wait_for_set_up(session: Session, job: JobId) -> None:
    """Run cycles for a few seconds while workers set up the job's tasks, so that the tasks start soon."""
    from iris_cli.ops.cycle.cycle import run

    until, pause = session.clock.monotonic() + _SET_UP_WAIT, _FIRST_PAUSE
    remaining = total = len(workers_in_set_up(session.cluster, job))
    with session.progress(lambda: ("setting up", total - remaining, total, "worker")):
        while remaining and session.clock.monotonic() + pause < until:
            session.clock.sleep(pause)
            pause *= 2  # poll slow workers less often
            try:
                run(session, schedule=False, job=job)
            except LockedError:  # another invocation runs a cycle
                return
            remaining = len(workers_in_set_up(session.cluster, job))


def workers_in_set_up(cluster: Cluster, job: JobId) -> list[WorkerId]:
    """Return the workers that unpack files or run the set-up command for tasks of this job."""
    record = cluster.jobs[job]
    if not record.has_set_up:
        return []
    unreachable = _unreachable_workers(cluster, job)
    if unreachable and record.is_gang:
        return []  # no rank of a gang starts before all ranks are set up
    last = [task.attempts[-1] for task in cluster.tasks_of(job) if task.attempts]
    assigned = [attempt.worker for attempt in last if attempt.state is AttemptState.ASSIGNED]
    return [worker for worker in assigned if worker not in unreachable]


def unreachable_workers(session: Session, job: JobId, *, has_next_cycle: bool) -> dict[WorkerId, str]:
    """Return the unreachable workers of tasks that have not started, each with the reason and the next call's time."""
    unreachable = _unreachable_workers(session.cluster, job)
    if not unreachable:
        return {}
    from iris_cli.ops.views.inventory import next_retry_words

    now, limits = session.clock.now(), session.limits
    return {
        name: f"{each.reason}; {next_retry_words(each, now, limits) if has_next_cycle else 'no cycles are running'}"
        for name, each in unreachable.items()
    }


def _unreachable_workers(cluster: Cluster, job: JobId) -> dict[WorkerId, Worker]:
    not_started = (TaskState.PENDING, TaskState.ASSIGNED)
    tasks = [task for task in cluster.tasks_of(job) if task.attempts and task.state in not_started]
    workers = [cluster.workers.get(task.attempts[-1].worker) for task in tasks]
    return {
        worker.id: worker
        for worker in workers
        if worker is not None and worker.condition is not WorkerCondition.HEALTHY
    }


def _has_files(request: JobRequest) -> bool:
    """Return True if files are packed for the job."""
    return request.workdir is not None or request.job_script is not None


def dry_run(session: Session, request: JobRequest | None = None) -> "tuple[Plan, Cluster, JobId | None]":
    """Return the plan of a cycle now, the resulting cluster, and the job of `request`. Nothing is written or sent."""
    from iris_cli.ops.cycle.cycle import assign  # loads the scheduler, which a launch may not need

    draft = Draft(session.view(), session.clock.now())
    job, warnings = _submit(session, draft, hash_lines(request)) if request is not None else (None, [])
    plan, _ = assign(session, draft, planned=job)
    _warn(session, warnings)
    return plan, draft.cluster, job


def _submit(session: Session, draft: Draft, request: JobRequest) -> tuple[JobId, list[str]]:
    """Submit the job in the draft. Return its id, and warnings about likely mistakes in the request."""
    offered = offers(session, draft.cluster)
    possible_workers = [each.attributes for each in offered]
    if request.again is not None:
        request = _with_fields_of_job(session, draft.cluster, request)
    complete_request = request_fields.merge_requests(request, session.config.defaults.job)
    job = draft.cluster.jobs[submit(draft, complete_request, possible_workers, session.limits)]
    if not complete_request.force:
        _check_can_start(complete_request, job)
        feasibility.check_possible(job, offered)
    group_by = [Constraint(job.coscheduling.group_by, ConstraintOp.EXISTS)] if job.coscheduling else []
    warnings = typo_warnings([*job.constraints, *group_by], possible_workers)
    return job.id, [*warnings, *slice_warnings(job, possible_workers), *unshipped_files(complete_request)]


def _with_fields_of_job(session: Session, cluster: Cluster, request: JobRequest) -> JobRequest:
    """Return the request with the missing fields taken from the ended job `request.again`.

    Raises NotFoundError if that job does not exist. Raises UsageError if its stored files are missing.
    """
    job = cluster.jobs[find_job(cluster, request.again or "")]
    complete, state = resubmission.resubmission_request(cluster, job, request), session.state
    if complete.workdir is None and complete.workspace and not state.workspaces.has(complete.workspace.hash):
        raise UsageError(
            f"the workspace of {clip(job.id)} is no longer in the state directory",
            hint="--workdir . ships this directory",
        )
    if complete.each_line is None and complete.lines and not state.lines.has(complete.lines.hash):
        raise UsageError(
            f"the --each-line file of {clip(job.id)} is no longer in the state directory",
            hint="add --each-line FILE",
        )
    return complete


def slice_warnings(job: Job, possible_workers: Sequence[Mapping[str, AttributeValue]]) -> list[str]:
    """Return a warning for a single TPU task if all matching workers are VMs of slices with several VMs.

    `possible_workers`: the attributes of workers that exist or that scale groups could create. Workers that scale
    groups could create count only if no existing worker matches.
    """
    device = job.resources.device
    if job.is_gang or device is None or device.kind != "tpu":
        return []
    wanted = {keys.DEVICE_TYPE_ATTRIBUTE_KEY: AttributeValue(device.kind)}
    if device.variant != AUTO:
        wanted[keys.DEVICE_VARIANT_ATTRIBUTE_KEY] = AttributeValue(device.variant)
    matching = [
        each
        for each in possible_workers
        if all(each.get(key) == value for key, value in wanted.items())
        and all(constraint.matches(each) for constraint in job.constraints if constraint.required)
    ]
    existing = [
        each
        for each in matching
        if keys.TPU_NAME_ATTRIBUTE_KEY in each or keys.SCALE_GROUP_ATTRIBUTE_KEY not in each
    ]
    known_vms = Counter(
        each[keys.TPU_NAME_ATTRIBUTE_KEY] for each in possible_workers if keys.TPU_NAME_ATTRIBUTE_KEY in each
    )
    sizes = {_slice_size(each, known_vms): each for each in reversed(existing or matching)}
    if not sizes or min(sizes) == 1:
        return []
    size, worker = sizes.popitem()
    variant = worker.get(keys.DEVICE_VARIANT_ATTRIBUTE_KEY)
    use_variant = device.variant == AUTO and variant is not None
    option = f"--tpu {variant}" if use_variant else f"--replicas {size}"
    return [
        f"one task uses one VM of a slice of {size}, and JAX waits for the others; "
        f"{option} starts a task on each VM"
    ]


def _slice_size(attributes: Mapping[str, AttributeValue], known_vms: Mapping[AttributeValue, int]) -> int:
    """Return the number of VMs of a worker's slice: the reported number, or that of known VMs if it is larger."""
    name = attributes.get(keys.TPU_NAME_ATTRIBUTE_KEY)
    known = 1 if name is None else known_vms[name]
    reported = int_attribute(attributes, keys.TPU_VM_COUNT_ATTRIBUTE_KEY)
    return known if reported is None else max(known, reported)


def _check_can_start(request: JobRequest, job: Job) -> None:
    """Raise UsageError if a secret or the program is missing. The job would stay pending, or fail on every worker."""
    if job.secrets:
        from iris_cli.ops.secret_values import NOT_SET, missing_secrets

        missing = missing_secrets(job)
        if missing:
            problems = "; ".join(f"secret {name}: {problem}" for name, problem in missing.items())
            unset = [f"export {name}=...; " for name, problem in missing.items() if problem == NOT_SET]
            raise UsageError(f"not submitted: {problems}", hint=f"{''.join(unset[:1])}{_FORCE}")
    program = job.command[0]
    if (
        "/" in program
        and not program.startswith("/")
        and not (_has_files(request) or request.workspace or request.setup)
    ):
        raise UsageError(
            f"{clip(program)} is not shipped: a task starts in an empty directory",
            hint=f"--workdir . ships this directory; {_FORCE}",
        )


def unshipped_files(request: JobRequest) -> list[str]:
    """Return a warning for each local file that the command names and that is not shipped."""
    is_single_script = request.job_script is not None and request.workdir is None
    if not is_single_script and (request.workdir is not None or request.workspace is not None):
        return []
    shipped_words = 1 if is_single_script else 0  # the first word is the script
    return [
        f"{clip(word)} is not shipped: a task starts in an empty directory; --workdir . ships this directory"
        for word in dict.fromkeys((request.command or ())[shipped_words:])
        if not word.startswith("/") and os.path.isfile(word)  # absolute paths refer to the workers
    ]


def _warn(session: Session, warnings: list[str]) -> None:
    for warning in warnings:
        session.tell(f"warning: {warning}")
