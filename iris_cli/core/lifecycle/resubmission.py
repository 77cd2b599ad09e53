"""Resubmission of an ended job: its request, its new name, and the tasks that did not succeed."""

from itertools import count
from typing import Any

from iris_cli.core import TPU_NAME_ATTRIBUTE_KEY, Cluster, JobId, TaskState, clip, format_indexes
from iris_cli.core.lifecycle.request_fields import merge_requests, secret_texts
from iris_cli.core.lifecycle.submit import has_derived_name, stem_of
from iris_cli.core.model.job import Job, JobRequest, JobState
from iris_cli.core.model.job_fields import JOB_FIELDS
from iris_cli.errors import UsageError

LAUNCH_AGAIN = "iris launch --again "
RUN_AGAIN = "iris run [OPTIONS] -- COMMAND ..."
_MAX_STEM = 55  # characters: leaves room for the number


def resubmission_request(cluster: Cluster, job: Job, given: JobRequest) -> JobRequest:
    """Return the request to resubmit an ended job with a new name. `given` overrides its fields. Raises UsageError.

    The request has no `after`, because the jobs in `after` have ended. A child job becomes a root job.
    """
    state = cluster.job_state(job.id)
    if not state.terminal:
        raise UsageError(
            f"{clip(job.id)} has not ended ({state})",
            hint=f"iris {'retry' if state is JobState.RUNNING and not job.client else 'why'} {clip(job.id)}",
        )
    if job.client:
        raise UsageError(f"{clip(job.id)} was an interactive job", hint=RUN_AGAIN)
    name, array = given.name or next_name(cluster, job), _failed_indexes(cluster, job, given)
    new_fields = JobRequest(name=name, array=array)
    return merge_requests(merge_requests(new_fields, given), JobRequest(**_copied_fields(job, given)))


def next_name(cluster: Cluster, job: Job) -> JobId:
    """Return a free name for a resubmission: the name of the original job with a number, train-2, then train-3."""
    while job.again is not None:
        job = cluster.jobs[job.again]
    name = job.id.rpartition("/")[2]
    stem = stem_of(job.command) if has_derived_name(job) else name[:_MAX_STEM].rstrip("-._")
    stem = "job" if stem in ("task", "attempt") else stem  # task-2 would be the id of a task
    return next(name for each in count(2) if (name := JobId(f"{stem}-{each}")) not in cluster.jobs)


def resubmit_command(cluster: Cluster, job: Job) -> str:
    """Return the command that resubmits an ended job, or only the unsuccessful tasks of an array."""
    if job.client:
        return RUN_AGAIN
    has_succeeded_tasks = bool(job.indexes) and any(
        task.state is TaskState.SUCCEEDED for task in cluster.tasks_of(job.id)
    )
    return f"{LAUNCH_AGAIN}{job.id}{' --failed' if has_succeeded_tasks else ''}"


def _failed_indexes(cluster: Cluster, job: Job, given: JobRequest) -> str | None:
    """Return the indexes of the tasks that did not succeed; None unless `given` requests them. Raises UsageError."""
    if not given.failed:
        return None
    if given.array is not None or given.each_line is not None:
        raise UsageError(
            "--failed already selects the tasks", hint="drop --failed, or --array and --each-line"
        )
    if not job.indexes:
        raise UsageError(f"{clip(job.id)} is not an array", hint=f"iris launch --again {clip(job.id)}")
    unsuccessful = [
        index
        for index, task in zip(job.indexes, cluster.tasks_of(job.id), strict=True)
        if task.state is not TaskState.SUCCEEDED
    ]
    if not unsuccessful:
        raise UsageError(
            f"all tasks of {clip(job.id)} have succeeded", hint=f"iris launch --again {clip(job.id)}"
        )
    return _array_text(unsuccessful, job.max_running)


def _array_text(indexes: list[int] | tuple[int, ...], limit: int) -> str:
    return format_indexes(indexes) + (f"%{limit}" if limit else "")


def _copied_fields(job: Job, given: JobRequest) -> dict[str, Any]:
    """Return the fields of a request for the same job, except those that `given` replaces."""
    names = {row.name for row in JOB_FIELDS} & set(Job.__struct_fields__) - _NOT_COPIED
    fields = {name: getattr(job, name) for name in names}
    resources, signal = job.resources, job.signal
    fields |= {
        "cpu": resources.cpu,
        "memory" if job.memory_limit else "memory_default": resources.memory,
        "image": job.image or None,
        "tolerate": job.tolerations,
        "secrets": secret_texts(job, job.secrets),
        "signal": f"{signal.name}@{signal.lead}" if signal is not None else None,
    }
    if given.workdir is not None or given.workspace is not None:
        del fields["workspace"]
    device = resources.device
    if given.tpu is None and given.gpu is None and device is not None and device.kind != "cpu":
        fields[device.kind] = device.variant if device.kind == "tpu" else f"{device.variant}:{device.count}"
    return fields | _shape(job, given)


_NOT_COPIED = frozenset(
    ("again", "after", "replicas", "slices", "array", "each_line", "secrets", "signal", "client")
)
"""Fields that the new job doesn't copy, or that a request holds in another form."""


def _shape(job: Job, given: JobRequest) -> dict[str, Any]:
    """Return the array, or the replicas, slices and group, unless `given` determines them."""
    if given.array is not None or given.each_line is not None:
        lines = job.each_line if given.each_line is None else None
        return {"lines": lines, "keep_going": job.keep_going if job.indexes else None}
    if job.indexes:
        return {"array": _array_text(job.indexes, job.max_running), "lines": job.each_line}
    gang, device, slices = job.coscheduling, job.resources.device, job.slices
    replicas = job.replicas if job.replicas > 1 else None
    group_by = gang.group_by if gang is not None else None
    if gang is not None and device is not None and device.kind == "tpu":
        if given.tpu is not None or given.gpu is not None:
            replicas, group_by = None, None if group_by == TPU_NAME_ATTRIBUTE_KEY else group_by
        elif given.slices is not None:
            replicas = job.replicas // job.slices * given.slices
        if given.replicas is not None:
            slices = 1
    return {"replicas": replicas, "slices": slices if slices > 1 else None, "group_by": group_by}
