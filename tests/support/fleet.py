"""Build workers and jobs in one line each, and run a cycle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from iris_cli.core.attributes import AttributeValue, RawValue
from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.ids import AttemptId, JobId, TaskId, WorkerId
from iris_cli.core.model.job import CoschedulingConfig, Job
from iris_cli.core.model.task import Task
from iris_cli.core.model.worker import Claim, Worker
from iris_cli.core.resources import Device, Resources
from iris_cli.core.scheduling import Explanation, SchedulingResult, find_assignments

GIB = 1 << 30


def host(name: str, cpu: float = 16, memory: int = 64 * GIB, gpus: int = 0, **attributes: RawValue) -> Worker:
    """A host without chips; its GPUs are A100s."""
    device: dict[str, RawValue] = {"device-type": "gpu", "device-variant": "A100"} if gpus else {}
    found = {"device-type": "cpu", **device, **_named(attributes)}
    return Worker(id=WorkerId(name), attributes=values(found), cpu=cpu, memory=memory, gpus=gpus)


def vm(
    name: str, slice_name: str, number: RawValue | None, tpu: str = "v4-32", **attributes: RawValue
) -> Worker:
    """One VM of a slice, 112 cores and four chips; `number` is its tpu-worker-id, None for a blank one."""
    numbered: dict[str, RawValue] = {} if number is None else {"tpu-worker-id": number}
    device: dict[str, RawValue] = {"device-type": "tpu", "device-variant": tpu, "tpu-name": slice_name}
    found = values({**device, **numbered, **_named(attributes)})
    return Worker(id=WorkerId(name), attributes=found, cpu=112, memory=400 * GIB, chips=4)


def tpu_slice(name: str, tpu: str = "v4-32", vms: int = 4, **attributes: RawValue) -> list[Worker]:
    """A slice, its VMs named `name-0`, `name-1`, ..."""
    return [vm(f"{name}-{number}", name, number, tpu, **attributes) for number in range(vms)]


def busy(
    worker: Worker, by: str = "old", *, cpu: float = 1, gpus: tuple[int, ...] = (), memory: int = GIB
) -> Worker:
    """Return the worker with one more live attempt, of the first task of job `by`, without chips."""
    return _claimed(worker, by, Claim(cpu_millis=round(cpu * 1000), memory=memory, gpus=gpus))


def training(worker: Worker, by: str = "old") -> Worker:
    """The worker with its chips taken by job `by`."""
    return _claimed(worker, by, Claim(cpu_millis=1000, memory=GIB, chips=True))


def change(workers: Sequence[Worker], number: int, **fields: Any) -> list[Worker]:
    """Return the workers with one of them changed."""
    return [replace(worker, **fields) if at == number else worker for at, worker in enumerate(workers)]


def tainted(worker: Worker, taint: str = "maintenance", value: RawValue = "true") -> Worker:
    """The worker with a taint."""
    return replace(worker, attributes={**worker.attributes, f"taint:{taint}": AttributeValue(value)})


def job(
    name: str,
    *constraints: str,
    cpu: float = 1,
    memory: int = GIB,
    device: Device | None = None,
    **fields: Any,
) -> Job:
    """A job of single tasks; constraints as they are typed on the command line."""
    return Job(
        id=JobId(name),
        resources=Resources(cpu=cpu, memory=memory, device=device),
        constraints=tuple(map(parse_constraint, constraints)),
        **fields,
    )


def gang(
    name: str,
    *constraints: str,
    replicas: int = 4,
    tpu: str | None = "v4-32",
    by: str = "tpu-name",
    **fields: Any,
) -> Job:
    """A gang on TPU slices, or with `tpu=None` on any workers, such as those of a rack."""
    device = Device("tpu", tpu) if tpu else fields.pop("device", None)
    coscheduling = CoschedulingConfig(by)
    return job(name, *constraints, device=device, replicas=replicas, coscheduling=coscheduling, **fields)


def pending(jobs: Iterable[Job]) -> list[Task]:
    """All tasks of the jobs, none of them placed yet."""
    return [Task(id=task) for each in jobs for task in each.task_ids]


def cycle(
    workers: Iterable[Worker],
    *jobs: Job,
    now: float = 0.0,
    tasks: Iterable[Task] | None = None,
    **options: Any,
) -> SchedulingResult:
    """One cycle over all tasks of the jobs, or those given."""
    known = {each.id: each for each in jobs}
    waiting = pending(jobs) if tasks is None else tasks
    return find_assignments(waiting, workers, known.get, now, **options)


def explain(fleet: list[Worker], asked: Job) -> Explanation:
    """Return the reasons of a job, or of its first task, that a cycle can't place and has no reservation for."""
    waiting = cycle(fleet, asked, now=1000.0, gang_reserve_after=0.0).waiting
    return waiting.explain(asked.id if asked.is_gang else TaskId(asked.id, 0))


def placed(result: SchedulingResult) -> dict[str, str]:
    """Return the placements in the order of decision."""
    return {str(each.task): each.worker for each in result.assignments}


def workers_of(result: SchedulingResult, name: str) -> list[str]:
    """Return the workers of a job's tasks in the order of decision."""
    return [each.worker for each in result.assignments if each.task.job == name]


def kinds(result: SchedulingResult, name: str, index: int | None = None) -> list[str]:
    """Return the kinds of reasons why a gang, or a task of another job, is pending."""
    key = JobId(name) if index is None else TaskId(JobId(name), index)
    return [reason.kind.value for reason in result.waiting.get(key, ())]


def text_of(result: SchedulingResult, name: str, index: int | None = None) -> str:
    """Return the text of the first reason."""
    key = JobId(name) if index is None else TaskId(JobId(name), index)
    return str(result.waiting[key][0])


def values(raw: dict[str, RawValue]) -> dict[str, AttributeValue]:
    """Convert values to attributes."""
    return {key: AttributeValue(value) for key, value in raw.items()}


def _named(attributes: dict[str, RawValue]) -> dict[str, RawValue]:
    return {key.replace("_", "-"): value for key, value in attributes.items()}


def _claimed(worker: Worker, by: str, claim: Claim) -> Worker:
    attempt = AttemptId(TaskId(JobId(by), len(worker.claims)), 0)
    return replace(worker, claims={**worker.claims, attempt: claim})
