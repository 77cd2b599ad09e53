"""Conversion of request fields to job fields: arrays, secrets, ports, images and early signals."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from iris_cli.core import Job, JobRequest, clip, count, format_duration, format_indexes, parse_array, pattern
from iris_cli.core.model.variables import check_port_name, is_read_by_container_clients, secret_source
from iris_cli.errors import UsageError

MAX_PORTS = 16  # maximum for one job
_IMAGE = pattern(r"[A-Za-z0-9\[][A-Za-z0-9._/:@+\[\]-]*")
_MAX_IMAGE = 512  # characters


def expand_array(request: JobRequest) -> tuple[JobRequest, dict[str, Any]]:
    """Return the request with one replica for each array index or line, and the array fields of the job."""
    lines = request.lines
    if request.array is None and lines is None:
        return request, {}
    if request.group_by is not None or (request.slices or 1) > 1:
        raise UsageError("an array can't be a gang", hint="drop --array, or drop --group-by and --slices")
    indexes, limit = (tuple(range(lines.count)) if lines else (), 0)
    if request.array is not None:
        indexes, limit = parse_array(request.array)
    if lines is not None and indexes[-1] >= lines.count:
        raise UsageError(
            f"no line {indexes[-1]}: the lines are numbered 0 to {lines.count - 1}",
            hint="--array chooses among the lines of --each-line",
        )
    if request.replicas not in (None, len(indexes)):
        raise UsageError(
            f"replicas={request.replicas}, but the array has {count(len(indexes), 'task')}",
            hint="drop --replicas",
        )
    has_all_lines = lines is not None and len(indexes) == lines.count
    fields = {"array": "" if has_all_lines else format_indexes(indexes), "max_running": limit}
    return merge_requests(JobRequest(replicas=len(indexes)), request), fields


def secret_fields(request: JobRequest) -> dict[str, Any]:
    """Return the fields of the job for its secrets: their names, and the files with their values."""
    sources = dict(map(secret_source, request.secrets or ()))
    return {"secrets": tuple(sources), "secret_files": {name: file for name, file in sources.items() if file}}


def secret_texts(job: Job, names: Iterable[str]) -> tuple[str, ...]:
    """Return these secrets of a job as `NAME` or `NAME=@FILE`, as in a request."""
    return tuple(f"{name}=@{file}" if (file := job.secret_files.get(name)) else name for name in names)


def check_client(job: Job) -> None:
    """Raise UsageError for an interactive job with more than one task."""
    if job.client and (job.replicas > 1 or job.is_gang or job.indexes):
        raise UsageError(
            f"a terminal shows one task, and this job has {job.replicas}",
            hint="choose a one-VM TPU type; iris launch --follow shows the output of many tasks",
        )


def check_image(image: str | None, secrets: Sequence[str]) -> None:
    """Raise UsageError for an image that docker would take for an option, or a secret that docker itself reads."""
    if image is None:
        return
    if _IMAGE.fullmatch(image) is None or len(image) > _MAX_IMAGE:
        raise UsageError(
            f"{clip(image)!r} can't be the name of an image",
            hint="write REGISTRY/NAME:TAG, such as ghcr.io/lab/train:3, or REGISTRY/NAME@sha256:DIGEST",
        )
    for name in secrets:
        if is_read_by_container_clients(name):
            raise UsageError(
                f"secret {name} can't be given to a container: docker and podman read that variable themselves",
                hint="choose another name",
            )


def check_array_and_signal(job: Job) -> None:
    """Raise UsageError for an array that is a gang, or an early signal that does not fit the time limit."""
    if (job.array or job.each_line) and job.is_gang:
        raise UsageError(
            "an array can't be a gang", hint="choose a one-VM TPU type, or drop --array and --each-line"
        )
    if job.signal is not None and not job.timeout:
        raise UsageError("an early signal needs a time limit", hint="add --timeout")
    if job.signal is not None and job.signal.lead >= job.timeout:
        raise UsageError(
            f"{job.signal.name} can't be sent {format_duration(job.signal.lead)} before a time limit of"
            f" {format_duration(job.timeout)}",
            hint="use a longer --timeout",
        )


def check_ports(job: Job) -> None:
    """Raise UsageError for port names that can't be part of a variable's name, or that differ only in case."""
    if len(job.ports) > MAX_PORTS:
        raise UsageError(f"{len(job.ports)} ports are more than {MAX_PORTS}")
    seen: set[str] = set()
    for name in job.ports:
        check_port_name(name)
        if name.upper() in seen:
            raise UsageError(f"port {name.upper()} is given twice")
        seen.add(name.upper())


def check_labels(job: Job) -> None:
    """Raise UsageError for a label that `--label NAME=VALUE` can't select."""
    for name in job.labels:
        if not name or "=" in name:
            raise UsageError(f"{clip(name)!r} is not the name of a label", hint="labels are NAME=VALUE")


def merge_requests(request: JobRequest, defaults: JobRequest) -> JobRequest:
    """Return `request`, with `defaults` for the fields that it does not set. Mappings are merged.

    Required and preferred constraints count as two fields: those of `--constraint` and of `--prefer`.
    """
    merged: dict[str, Any] = {}
    for name in JobRequest.__struct_fields__:
        value, default = getattr(request, name), getattr(defaults, name)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            merged[name] = {**default, **value}
        elif name == "constraints" and value and default and request.inherit_constraints is not False:
            modes = {each.mode for each in value}
            merged[name] = (*value, *(each for each in default if each.mode not in modes))
        else:
            merged[name] = default if value is None else value
    return JobRequest(**merged)
