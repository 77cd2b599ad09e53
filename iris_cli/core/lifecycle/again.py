"""Resubmission of an ended job: its request, its new name, and the tasks that did not succeed."""

from __future__ import annotations

from itertools import count
from typing import Any

from iris_cli.core import TPU_NAME_ATTRIBUTE_KEY, Cluster, JobId, TaskState, clip, format_indexes
from iris_cli.core.lifecycle.asked import over
from iris_cli.core.lifecycle.submit import stem_of
from iris_cli.core.model.job import Job, JobRequest, JobState
from iris_cli.core.model.job_fields import JOB_FIELDS
from iris_cli.errors import UsageError

AGAIN = "iris launch --again "
_LONGEST_STEM = 55  # characters: leaves room for the number


def submitted_again(cluster: Cluster, job: Job, said: JobRequest) -> JobRequest:
    """Return the request to resubmit an ended job with a new name; `said` overrides its fields. Raises UsageError.

    Without `after`: those dependencies are settled. A child job becomes a root job.
    """
    state = cluster.job_state(job.id)
    if not state.terminal:
        raise UsageError(
            f"{clip(job.id)} has not ended ({state})",
            hint=f"iris {'retry' if state is JobState.RUNNING else 'why'} {clip(job.id)}",
        )
    if job.client:
        raise UsageError(f"{clip(job.id)} was an interactive job", hint="iris run [OPTIONS] -- COMMAND ...")
    asked = JobRequest(name=said.name or free_name(cluster, job), array=_failed(cluster, job, said))
    return over(over(asked, said), JobRequest(**_fields(job, said)))


def free_name(cluster: Cluster, job: Job) -> JobId:
    """Return the stem of the chain's first job with the lowest free number, from 2: train, train-2, train-3."""
    while job.again is not None:
        job = cluster.jobs[job.again]
    name = job.id.rpartition("/")[2]
    stem, _, number = name.rpartition("-")
    if not (number.isdecimal() and stem == stem_of(job.command)):  # otherwise iris added the number
        stem = name[:_LONGEST_STEM].rstrip("-._")
    stem = "job" if stem in ("task", "attempt") else stem  # task-2 would be the id of a task
    return next(name for each in count(2) if (name := JobId(f"{stem}-{each}")) not in cluster.jobs)


def again_command(cluster: Cluster, job: Job) -> str:
    """Return the command that resubmits an ended job; for a partly successful array, only the other tasks."""
    some = bool(job.indexes) and any(task.state is TaskState.SUCCEEDED for task in cluster.tasks_of(job.id))
    return f"{AGAIN}{job.id}{' --failed' if some else ''}"


def _failed(cluster: Cluster, job: Job, said: JobRequest) -> str | None:
    """Return the indexes that did not succeed, if only those are wanted. Raises UsageError."""
    if not said.failed:
        return None
    if said.array is not None or said.each_line is not None:
        raise UsageError(
            "--failed already selects the tasks", hint="drop --failed, or --array and --each-line"
        )
    if not job.indexes:
        raise UsageError(f"{clip(job.id)} is not an array", hint=f"iris launch --again {clip(job.id)}")
    left = [
        index
        for index, task in zip(job.indexes, cluster.tasks_of(job.id), strict=True)
        if task.state is not TaskState.SUCCEEDED
    ]
    if not left:
        raise UsageError(
            f"all tasks of {clip(job.id)} have succeeded", hint=f"iris launch --again {clip(job.id)}"
        )
    return _array(left, job.max_running)


def _array(indexes: list[int] | tuple[int, ...], limit: int) -> str:
    return format_indexes(indexes) + (f"%{limit}" if limit else "")


def _fields(job: Job, said: JobRequest) -> dict[str, Any]:
    """Return the request fields from which the job would be accepted again, without those that `said` excludes."""
    same = {row.name for row in JOB_FIELDS} & set(Job.__struct_fields__) - _WORKED_OUT
    fields = {name: getattr(job, name) for name in same}
    resources, signal = job.resources, job.signal
    fields |= {
        "cpu": resources.cpu,
        "memory" if job.memory_limit else "memory_default": resources.memory,
        "image": job.image or None,
        "tolerate": job.tolerations,
        "secrets": tuple(
            f"{name}=@{file}" if (file := job.secret_files.get(name)) else name for name in job.secrets
        ),
        "signal": f"{signal.name}@{signal.lead}" if signal is not None else None,
    }
    if said.workdir is not None or said.workspace is not None:
        del fields["workspace"]
    if said.tpu is None and said.gpu is None:
        fields |= _device(job)
    return fields | _shape(job, said)


_WORKED_OUT = frozenset(
    ("again", "after", "replicas", "slices", "array", "each_line", "secrets", "signal", "client")
)
"""Fields with the same name in a request and in a job but other values, or other values for the next job."""


def _device(job: Job) -> dict[str, str]:
    device = job.resources.device
    if device is None or device.kind == "cpu":
        return {}
    return {device.kind: device.variant if device.kind == "tpu" else f"{device.variant}:{device.count}"}


def _shape(job: Job, said: JobRequest) -> dict[str, Any]:
    """Return the array, or the replicas, slices and group, that the request does not determine itself."""
    if said.array is not None or said.each_line is not None:
        lines = job.each_line if said.each_line is None else None
        return {"lines": lines, "keep_going": job.keep_going if job.indexes else None}
    if job.indexes:
        return {"array": _array(job.indexes, job.max_running), "lines": job.each_line}
    gang, device, slices = job.coscheduling, job.resources.device, job.slices
    replicas = job.replicas if job.replicas > 1 else None
    group_by = gang.group_by if gang is not None else None
    if gang is not None and device is not None and device.kind == "tpu":
        if said.tpu is not None or said.gpu is not None:
            replicas, group_by = None, None if group_by == TPU_NAME_ATTRIBUTE_KEY else group_by
        elif said.slices is not None:
            replicas = job.replicas // job.slices * said.slices
        if said.replicas is not None:
            slices = 1
    return {"replicas": replicas, "slices": slices if slices > 1 else None, "group_by": group_by}
