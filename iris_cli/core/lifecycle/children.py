"""Child jobs: submission from inside a task, inherited fields, and access rules.

A task runs user code that may be faulty, so it can see only its own job and the descendants of this job.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from iris_cli.core import Job, JobRequest, Limits, Origin, Workspace, format_memory, nearest
from iris_cli.core.constraints import Constraint, merge_constraints
from iris_cli.core.events.events import EndpointRegistered, EndpointRemoved, JobAdopted, JobSubmitted
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import AttemptId, JobId, RequestId, clip, depth_of, parse_job_id
from iris_cli.core.lifecycle import jobs
from iris_cli.core.lifecycle.request_fields import merge_requests, secret_texts
from iris_cli.core.lifecycle.submit import PossibleWorkers, accept, free_name, has_derived_name, stem_of
from iris_cli.core.messages.requests import RegisterEndpoint
from iris_cli.core.model.cluster import MAX_ENDPOINT_CHANGES, Announced, Cluster
from iris_cli.core.model.job_fields import JOB_FIELDS
from iris_cli.errors import IrisError, NotFoundError, UsageError

PACKED_SIZE_FACTOR = 4
"""Maximum size of all directories packed inside the tasks of a job, as a multiple of `limits.workspace_size`."""


class SubmissionContext(Struct, frozen=True, kw_only=True):
    """Context for accepting jobs. `defaults`: values of fields that are not given."""

    possible_workers: PossibleWorkers
    defaults: JobRequest
    limits: Limits


def check_caller(cluster: Cluster, caller: AttemptId) -> None:
    """Raise IrisError unless the attempt is the current, live attempt of its task and is not being stopped."""
    task = cluster.tasks.get(caller.task)
    if task is None or not task.attempts or task.current_id != caller or not task.attempts[-1].live:
        raise IrisError(f"{caller} is not the current attempt of its task")
    if task.attempts[-1].stop is not None or task.state.terminal:
        raise IrisError(f"{caller} is being stopped", hint="the next attempt may ask again")


def visible_job(cluster: Cluster, caller: AttemptId, job: JobId | None) -> JobId:
    """Return the id of a job that the requesting task may see (default: the task's job). Raises NotFoundError."""
    own_job = caller.task.job
    if job is None or job == own_job:
        return own_job
    prefix = f"{own_job}/"
    if not job.startswith(prefix) or job not in cluster.jobs:
        # Compare without the prefix, which would make all names similar.
        names = [each.removeprefix(prefix) for each in cluster.jobs if each.startswith(prefix)]
        found = nearest(clip(job.removeprefix(prefix), 200), names)
        raise NotFoundError(
            f"{own_job} has no child job {clip(job)}",
            hint=f"did you mean {prefix + found!r}?"
            if found
            else "a task sees its own job and its child jobs",
        )
    return job


def submit_child(
    draft: Draft, origin: Origin, wanted: JobRequest, context: SubmissionContext
) -> tuple[JobId, bool]:
    """Submit a child job, once for each attempt and request. Return its id, and whether this request created it.

    Return the existing job if a later attempt of the parent repeats the request, or if an equal request already used
    the name. Raises IrisError, and then records nothing.
    """
    cluster, parent = draft.cluster, draft.cluster.jobs[origin.attempt.task.job]
    children = cluster.children_of(parent.id)
    for child in children:
        if _is_same_request(child.origin, origin):
            return child.id, True
        if _is_same_request(child.adopted, origin):
            return child.id, False
    check_caller(cluster, origin.attempt)
    existing = _existing_child(cluster, parent.id, wanted.name, children, origin)
    if existing is not None:
        if wanted.name is None:
            draft.record(JobAdopted(job=existing.id, origin=origin))
        return existing.id, False
    _check_child_limits(parent.id, children, context.limits)
    if wanted.workspace is not None:
        _check_packed_size(parent, children, wanted.workspace, context.limits)
    job = _make_child_job(cluster, parent, wanted, context)
    repeats = tuple(each for each in dict.fromkeys(wanted.constraints or ()) if each in parent.constraints)
    recorded = Origin(origin.attempt, origin.request, origin.digest, repeats)
    draft.record(JobSubmitted(job=job, origin=recorded))
    return job.id, True


def _is_same_request(known: Origin | None, origin: Origin) -> bool:
    return known is not None and (known.attempt, known.request) == (origin.attempt, origin.request)


def _existing_child(
    cluster: Cluster, parent: JobId, name: str | None, children: Sequence[Job], origin: Origin
) -> Job | None:
    """Return the child with this name, or without a name the first child of an equal request of an earlier attempt."""
    if name is None:
        earlier = (child for child in children if _is_from_earlier_attempt(child, origin))
        return next(earlier, None)
    if "/" in name:
        raise UsageError(f"{clip(name)!r} must not contain '/'", hint=f"the job becomes {parent}/NAME")
    job = cluster.jobs.get(parse_job_id(f"{parent}/{name}"))
    if job is not None and (job.origin is None or job.origin.digest != origin.digest):
        raise UsageError(
            f"another job {job.id} already exists ({cluster.job_state(job.id)})", hint="choose another name"
        )
    return job


def _is_from_earlier_attempt(child: Job, origin: Origin) -> bool:
    """Return whether an earlier attempt of the same task requested this child without a name, but not this attempt."""
    if child.origin is None or child.origin.digest != origin.digest or not has_derived_name(child):
        return False
    last = child.adopted or child.origin
    return last.attempt.task == origin.attempt.task and last.attempt.number < origin.attempt.number


def _check_child_limits(parent: JobId, children: Sequence[Job], limits: Limits) -> None:
    if len(children) >= limits.max_children:
        raise IrisError(
            f"{parent} already has {len(children)} child jobs, the maximum",
            hint="limits.max_children in cluster.yaml sets the limit",
        )
    if depth_of(parent) + 2 > limits.max_job_depth:
        raise IrisError(
            f"{parent} is {depth_of(parent)} jobs deep, the maximum",
            hint="limits.max_job_depth in cluster.yaml sets the limit",
        )


def _check_packed_size(parent: Job, children: Sequence[Job], wanted: Workspace, limits: Limits) -> None:
    """Raise IrisError if the directories packed inside the task are too large. Equal directories count once."""
    stored = [job.workspace for job in children if job.workspace != parent.workspace]
    total = sum({each.hash: each.size for each in [*stored, wanted] if each is not None}.values())
    for size, times in ((wanted.size, 1), (total, PACKED_SIZE_FACTOR)):
        limit = times * limits.workspace_size
        if size > limit:
            raise IrisError(
                f"the workspaces of the child jobs of {parent.id} take {format_memory(size)}, more than "
                f"{format_memory(limit)}",
                hint="exclude files in .irisignore, or raise limits.workspace_size",
            )


def _make_child_job(cluster: Cluster, parent: Job, wanted: JobRequest, context: SubmissionContext) -> Job:
    """Return the child job, with the fields inherited from its parent."""
    _check_secrets_and_dependencies(cluster, parent, wanted)
    stem = f"{parent.id}/{wanted.name or stem_of(wanted.command or ('job',))}"
    inherited: dict[str, Any] = {row.name: getattr(parent, row.name) for row in JOB_FIELDS if row.inherited}
    constraints: Sequence[Constraint] = wanted.constraints or ()
    if wanted.inherit_constraints is not False:
        constraints = inherited_constraints(parent.constraints, wanted.constraints)
    child_fields = JobRequest(
        name=stem if wanted.name else free_name(cluster, stem),
        constraints=tuple(constraints),
        secrets=wanted.secrets and secret_texts(parent, wanted.secrets),
    )
    request = merge_requests(child_fields, merge_requests(wanted, JobRequest(**inherited)))
    request = merge_requests(request, context.defaults)
    return accept(cluster, request, context.possible_workers, context.limits)


def inherited_constraints(
    parent: Sequence[Constraint], child: Sequence[Constraint] | None
) -> Sequence[Constraint]:
    """Return the constraints of a child job: the parent's if `child` is None, none if `child` is (), otherwise both."""
    if child is None:
        return parent
    return merge_constraints(parent, child) if child else ()


def _check_secrets_and_dependencies(cluster: Cluster, parent: Job, wanted: JobRequest) -> None:
    """Raise UsageError for secrets that the parent lacks, and NotFoundError for dependencies that it may not see."""
    foreign = [name for name in wanted.secrets or () if name not in parent.secrets]
    if foreign:
        raise UsageError(
            f"{clip(foreign[0])} is not a secret of {parent.id}",
            hint="a child job can only use secrets of its parent",
        )
    for name in wanted.after or ():
        visible_job(cluster, AttemptId(parent.task_ids[0], 0), parse_job_id(name))


def cancel_visible(draft: Draft, caller: AttemptId, job: JobId, reason: str) -> bool:
    """Cancel a job that the task may change. Return whether the job was cancelled, now or before."""
    found = visible_job(draft.cluster, caller, job)
    if not draft.cluster.job_state(found).terminal:
        check_caller(draft.cluster, caller)
        jobs.cancel(draft, found, f"requested by {caller}" + (f": {reason}" if reason else ""))
    return draft.cluster.jobs[found].cancelled


def register_endpoint(
    draft: Draft, caller: AttemptId, request: RequestId, wanted: RegisterEndpoint, limits: Limits
) -> None:
    """Register an endpoint of a task. Raises IrisError."""
    check_caller(draft.cluster, caller)
    existing = draft.cluster.endpoints.get(caller, Announced())
    if request in existing.requests:
        return
    if wanted.name not in existing.names and len(existing.endpoints) >= limits.max_endpoints:
        raise IrisError(f"{caller} already has {len(existing.endpoints)} endpoints", hint="remove one first")
    _check_changes(caller, existing)
    draft.record(
        EndpointRegistered(
            task=caller.task,
            attempt=caller.number,
            name=wanted.name,
            port=wanted.port,
            request=request,
            metadata=wanted.metadata,
        )
    )


def remove_endpoint(draft: Draft, caller: AttemptId, request: RequestId, name: str) -> bool:
    """Remove an endpoint. Return whether this request removed it. Raises IrisError."""
    check_caller(draft.cluster, caller)
    existing = draft.cluster.endpoints.get(caller, Announced())
    if request in existing.requests:
        return True
    if name not in existing.names:
        return False
    _check_changes(caller, existing)
    draft.record(EndpointRemoved(task=caller.task, attempt=caller.number, name=name, request=request))
    return True


def _check_changes(caller: AttemptId, existing: Announced) -> None:
    if len(existing.requests) >= MAX_ENDPOINT_CHANGES:
        raise IrisError(f"{caller} has changed its endpoints {MAX_ENDPOINT_CHANGES} times, the maximum")
