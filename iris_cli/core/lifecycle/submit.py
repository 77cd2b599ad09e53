"""Turn a request into a job: fill in defaults, and refuse invalid requests."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from iris_cli.core import MAX_STRING, AttributeValue, Cluster, Limits, check_variable, constraints
from iris_cli.core.events.events import JobSubmitted
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import JobId, clip, is_name, parent_of, parse_job_id
from iris_cli.core.lifecycle import request_fields
from iris_cli.core.model.job import CoschedulingConfig, Job, JobRequest, parse_early_signal
from iris_cli.core.model.job_fields import JOB_FIELDS, Kind
from iris_cli.core.resources import AUTO, DEFAULT_RESOURCES, Device, Resources
from iris_cli.core.text import check_utf8, did_you_mean
from iris_cli.core.topology import canonical_type, describe, lookup
from iris_cli.errors import NotFoundError, UnschedulableError, UsageError

MAX_REPLICAS = 10_000
MAX_STRINGS = 1 << 20  # bytes of all strings of a job; Linux allows 2 MiB with its default stack size

PossibleWorkers = Sequence[Mapping[str, AttributeValue]]
"""The attributes of every possible worker: registered, declared in the configuration, or of a scale group."""


def submit(
    draft: Draft, request: JobRequest, possible_workers: PossibleWorkers, limits: Limits | None = None
) -> JobId:
    """Accept a request: record the job and return its id. Raises IrisError, and then records nothing."""
    job = accept(draft.cluster, request, possible_workers, limits)
    draft.record(JobSubmitted(job=job))
    return job.id


def accept(
    cluster: Cluster, request: JobRequest, possible_workers: PossibleWorkers, limits: Limits | None = None
) -> Job:
    """Return the job that a request describes. Raises UsageError, NotFoundError or UnschedulableError."""
    command = request.command or ()
    usage = f"iris {'run' if request.client else 'launch'} [OPTIONS] -- COMMAND ..."
    if not command:
        raise UsageError("there is no command to run", hint=usage)
    if not command[0] or command[0].startswith("-") or "=" in command[0]:
        raise UsageError(f"{clip(command[0])!r} is not a program name", hint=usage)
    request, array = request_fields.expand_array(request)
    device = _parse_device(request)
    replicas, slices, group_by = _choose_shape(request, device, possible_workers)
    if group_by and request.keep_going:
        raise UsageError(
            "--keep-going does not apply to gangs: a gang ends with its first failed rank",
            hint="drop --keep-going; --max-retries-failure restarts the whole gang",
        )
    if device is not None and not request.force:
        _check_device_exists(device, possible_workers)
    name = _choose_name(cluster, request, command)
    parent = parent_of(name)
    fields: dict[str, Any] = {"priority": cluster.jobs[parent].priority} if parent is not None else {}
    if request.max_task_failures_default is not None and not group_by:
        fields["max_task_failures"] = request.max_task_failures_default
    fields |= _copied_fields(request)
    job = Job(
        id=name,
        command=command,
        resources=_make_resources(request, device),
        replicas=replicas,
        slices=slices,
        keep_going=bool(array) if request.keep_going is None else request.keep_going,
        coscheduling=CoschedulingConfig(group_by) if group_by else None,
        tolerations=request.tolerate or (),
        signal=parse_early_signal(request.signal) if request.signal is not None else None,
        each_line=request.lines,
        memory_limit=request.memory is not None,
        **request_fields.secret_fields(request),
        **array,
        after=_parse_dependencies(cluster, request, name),
        max_dispatch_failures=(limits or Limits()).max_dispatch_failures,
        **fields,
    )
    request_fields.check_image(request.image, job.secrets)
    _check_job(job)
    return job


def _copied_fields(request: JobRequest) -> dict[str, Any]:
    """Return the given fields that the job takes unchanged from the request."""
    names = {row.name for row in JOB_FIELDS} & set(Job.__struct_fields__) - _DERIVED
    values = {name: getattr(request, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


_DERIVED = frozenset(
    {"command", "replicas", "slices", "array", "secrets", "signal", "each_line", "after", "keep_going"}
)
"""Fields that a request and a job both have, but with different values."""


def _parse_device(request: JobRequest) -> Device | None:
    if request.tpu is not None and request.gpu is not None:
        raise UsageError("a task uses a TPU or a GPU, not both", hint="use --tpu or --gpu")
    if request.tpu is not None:
        return Device("tpu", AUTO if request.tpu == AUTO else canonical_type(request.tpu))
    if request.gpu is None:
        return None
    variant, colon, count = request.gpu.partition(":")
    if variant.isdecimal() and not colon:  # a number of GPUs of any model
        variant, colon, count = AUTO, ":", variant
    if not variant.strip() or (colon and re.fullmatch("[1-9][0-9]{0,2}", count) is None):
        raise UsageError(
            f"{clip(request.gpu)!r} is not a GPU request", hint="write --gpu MODEL, --gpu MODEL:N or --gpu N"
        )
    return Device("gpu", variant, int(count) if colon else 1)


def _choose_shape(
    request: JobRequest, device: Device | None, possible_workers: PossibleWorkers
) -> tuple[int, int, str]:
    """Return the number of replicas, the number of groups, and the attribute that defines groups ("": no gang)."""
    group_by = request.group_by
    if group_by is not None and not group_by.strip():
        raise UsageError("coscheduling.group_by is empty", hint="name an attribute, such as --group-by rack")
    slices = _check_minimum(1, "slices", request.slices, 1)
    replicas = _check_minimum(1, "replicas", request.replicas, slices)
    if device is not None and device.kind == "tpu":
        return _choose_tpu_shape(request, device, possible_workers)
    if slices > 1 and not group_by:
        raise UsageError("--slices needs a gang", hint="add --tpu TYPE or --group-by ATTRIBUTE")
    _replicas_per_group(replicas, slices)
    return replicas, slices, group_by or ""


def _choose_tpu_shape(
    request: JobRequest, device: Device, possible_workers: PossibleWorkers
) -> tuple[int, int, str]:
    """Return the result of `_choose_shape` for a TPU job, which has a task for each VM."""
    vms = _vm_count(device, possible_workers) or _replicas_per_group(
        request.replicas or request.slices or 1, request.slices or 1
    )
    gang = vms > 1 or request.group_by is not None or (request.slices or 1) > 1
    replicas = request.replicas or (request.slices or 1) * vms
    slices = request.slices or (max(1, replicas // vms) if gang else 1)
    if gang and replicas != slices * vms:
        slice_text = f"a slice of {vms} VMs" if device.variant == AUTO else describe(device.variant, vms)
        count = f"{request.slices} × " if request.slices else ""
        wanted = f"{slices * vms}" if request.slices else f"a multiple of {vms}"
        nearest = max(1, round(replicas / vms))
        raise UsageError(
            f"replicas={replicas} does not fit {count}{slice_text}: it takes {wanted}, one task per VM",
            hint="drop --replicas" + (f", or use --slices {nearest}" if nearest != request.slices else ""),
        )
    return replicas, slices, request.group_by or (constraints.TPU_NAME_ATTRIBUTE_KEY if gang else "")


def _replicas_per_group(replicas: int, slices: int) -> int:
    """Return the number of replicas in each group. Raises UsageError."""
    if replicas % slices:
        raise UsageError(
            f"{replicas} replicas can't be spread over {slices} slices", hint="choose a multiple"
        )
    return replicas // slices


def _vm_count(device: Device, possible_workers: PossibleWorkers) -> int | None:
    """Return the number of VMs of a slice, from a possible worker or from the table of types; None if unknown."""
    variant = AttributeValue(device.variant)
    for attributes in possible_workers:
        count = attributes.get(constraints.TPU_VM_COUNT_ATTRIBUTE_KEY)
        if attributes.get(constraints.DEVICE_VARIANT_ATTRIBUTE_KEY) == variant and count is not None:
            return int(count.value)
    known = lookup(device.variant)
    return known.vms if known is not None else None


def _check_device_exists(device: Device, possible_workers: PossibleWorkers) -> None:
    """Raise UnschedulableError if no possible worker has or may have the device."""
    known = lookup(device.variant)
    is_multi_host = known is not None and known.vms > 1
    variants: dict[str, None] = {}
    for attributes in possible_workers:
        kind = attributes.get(constraints.DEVICE_TYPE_ATTRIBUTE_KEY)
        if kind is None and not is_multi_host:
            return  # a host that was never probed may have any device, but is not a VM of a multi-host slice
        if kind == AttributeValue(device.kind):
            variant = attributes.get(constraints.DEVICE_VARIANT_ATTRIBUTE_KEY)
            variants[AUTO if variant is None else str(variant.value)] = None
    if device.variant in variants or (device.variant == AUTO and variants):
        return
    wanted = f"a {device.kind.upper()}" if device.variant == AUTO else device.variant
    offered = (
        f"available: {', '.join(sorted(variants))};" if variants else "this cluster has no such accelerators;"
    )
    raise UnschedulableError(
        f"no worker or scale group has {wanted}: not submitted",
        hint=f"{did_you_mean(wanted, variants) or offered} --force submits the job anyway",
    )


def _make_resources(request: JobRequest, device: Device | None) -> Resources:
    memory = request.memory_default if request.memory is None else request.memory
    default = DEFAULT_RESOURCES
    try:
        found = Resources(
            cpu=default.cpu if request.cpu is None else request.cpu,
            memory=default.memory if memory is None else memory,
            device=device,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    return default if found == default else found  # the log omits the default object, but not an equal object


def _choose_name(cluster: Cluster, request: JobRequest, command: Sequence[str]) -> JobId:
    if request.name is None:
        return free_name(cluster, stem_of(command))
    job = parse_job_id(request.name)
    if job in cluster.jobs:
        raise UsageError(
            f"job {job} already exists ({cluster.job_state(job)})",
            hint=f"choose another --name, such as {free_name(cluster, job.rpartition('/')[2][:55])}",
        )
    parent = parent_of(job)
    if parent is not None and (parent not in cluster.jobs or cluster.job_state(parent).terminal):
        raise UsageError(f"{job} needs a running parent job {parent}", hint="choose a --name without '/'")
    return job


def stem_of(command: Sequence[str]) -> str:
    """Return the stem of a job's name, from the command: `python train.py` -> `train`."""
    words = [word.rpartition("/")[2] for word in command[:3] if not word.startswith("-")]
    scripts = [word.rpartition(".")[0] for word in words if word.endswith((".py", ".sh"))]
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", (scripts or words or ["job"])[0]).strip("-._")[:50]
    return stem if is_name(stem) and not re.fullmatch(r"(task|attempt)(-\d+)?", stem) else "job"


def has_derived_name(job: Job) -> bool:
    """Return whether the name of a job looks like one of `free_name`: the stem of its command, and a number."""
    stem, _, number = job.id.rpartition("/")[2].rpartition("-")
    return number.isdecimal() and stem == stem_of(job.command)


def free_name(cluster: Cluster, stem: str) -> JobId:
    """Return the stem with a free number, found by binary search, because used numbers are mostly consecutive."""
    taken, free = 0, 1
    while f"{stem}-{free}" in cluster.jobs:
        taken, free = free, 2 * free
    while free - taken > 1:
        between = (taken + free) // 2
        if f"{stem}-{between}" in cluster.jobs:
            taken = between
        else:
            free = between
    return JobId(f"{stem}-{free}")


def _parse_dependencies(cluster: Cluster, request: JobRequest, child: JobId) -> tuple[JobId, ...]:
    found = tuple(map(parse_job_id, request.after or ()))
    for job in found:
        if child.startswith(f"{job}/"):
            raise UsageError(f"child jobs end with {job}: they can't run --after it")
        if job not in cluster.jobs:
            raise NotFoundError(
                f"--after {job}: no such job",
                hint=did_you_mean(job, cluster.jobs) or "`iris status` lists the jobs",
            )
    return found


def _check_minimum(minimum: int, name: str, value: int | None, default: int) -> int:
    if value is not None and value < minimum:
        raise UsageError(f"{name} must be at least {minimum}, not {value}")
    return default if value is None else value


def _check_job(job: Job) -> None:
    if job.replicas > MAX_REPLICAS:
        raise UsageError(f"{job.replicas} replicas are more than {MAX_REPLICAS}", hint="split the job")
    if job.is_gang and job.max_task_failures:
        raise UsageError(
            "a gang can't tolerate failed tasks: it ends with its first failed rank",
            hint="drop --max-task-failures; --max-retries-failure restarts the whole gang",
        )
    if job.env_preset is not None and job.replicas > 1 and not job.is_gang:
        raise UsageError(
            f"--env-preset {job.env_preset}: the {job.replicas} tasks are independent",
            hint="make them a gang: --group-by ATTRIBUTE",
        )
    request_fields.check_client(job)
    request_fields.check_array_and_signal(job)
    request_fields.check_ports(job)
    request_fields.check_labels(job)
    try:
        constraints.normalize_constraints(job.constraints)
    except ValueError as error:
        raise UsageError(str(error)) from error
    contradiction = constraints.contradiction_in(job.constraints)
    if contradiction:
        raise UsageError(contradiction, hint="no worker can satisfy all of them: drop one")
    for row in JOB_FIELDS:
        if row.kind is Kind.COUNT:
            _check_minimum(0, row.name, getattr(job, row.name), 0)
        elif row.kind is Kind.DURATION and not 0 <= (seconds := getattr(job, row.name) or 0.0) <= 366 * 86400:
            raise UsageError(f"{row.name} must be between 0 and one year, not {seconds:.0f} seconds")
    for taint in job.tolerations:
        if not is_name(taint):
            raise UsageError(f"{clip(taint)!r} is not the name of a taint")
    _check_strings(job)


def _check_strings(job: Job) -> None:
    """Raise UsageError for strings that can't be passed to the worker unchanged."""
    for name in job.env:
        check_variable(name)
    strings = [
        *((f"argument {index}", text) for index, text in enumerate(job.command)),
        *((f"environment variable {clip(name)}", f"{name}={value}") for name, value in job.env.items()),
        ("setup", job.setup),
        ("device", job.resources.device.variant if job.resources.device else ""),
        *((f"secret {name}", file) for name, file in job.secret_files.items()),
        *((f"label {clip(name)}", f"{name}={value}") for name, value in job.labels.items()),
        *(
            (f"constraint on {clip(each.key)}", str(text))
            for each in job.constraints
            for text in (each.key, *(operand.value for operand in each.operands))
        ),
        ("coscheduling.group_by", job.coscheduling.group_by if job.coscheduling else ""),
    ]
    total = sum(_count_bytes(label, text) for label, text in strings)
    if total > MAX_STRINGS:
        raise UsageError(
            f"command, environment and other fields take {total} bytes, more than {MAX_STRINGS}",
            hint="put the data into a file",
        )


def _count_bytes(label: str, text: str) -> int:
    if "\0" in text:
        raise UsageError(f"{label} holds a NUL byte, which no program can be given")
    check_utf8(label, text)
    size = len(text.encode())
    if size > MAX_STRING:
        raise UsageError(
            f"{label} takes {size} bytes, more than {MAX_STRING}", hint="put the data into a file"
        )
    return size
