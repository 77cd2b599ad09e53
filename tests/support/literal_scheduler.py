"""The rules of placement, read literally: every worker is looked at for every task. Slow, and easy to check.

It shares nothing with the scheduler but the records of jobs, tasks and workers, their priorities and ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from iris_cli.core.attributes import AttributeValue
from iris_cli.core.constraints import Constraint
from iris_cli.core.ids import JobId
from iris_cli.core.job import Job
from iris_cli.core.task import Task, TaskState
from iris_cli.core.worker import Worker, WorkerCondition

Placement = tuple[str, str, tuple[int, ...]]


@dataclass
class Desk:
    """One worker and what is left of it."""

    worker: Worker
    cpu: int
    memory: int
    gpus: list[int]
    chips: bool
    attempts: int
    kept_for: str = ""

    def attribute(self, key: str) -> AttributeValue | None:
        return self.worker.attributes.get(key)

    def text(self, key: str) -> str:
        return str(self.worker.attributes.get(key, ""))

    def whole_number(self, key: str) -> int | None:
        value = self.attribute(key)
        return value.value if value is not None and isinstance(value.value, int) else None


@dataclass
class LiteralScheduler:
    """Decides on `place` or `decide`; afterwards its other fields tell what."""

    fleet: Sequence[Worker]
    now: float
    reserve_after: float = 600.0
    backoff_max: float = 600.0
    unconfirmed_stops: Collection[str] = ()
    placements: list[Placement] = field(default_factory=list)
    reservations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    timed_out: list[str] = field(default_factory=list)
    waiting: dict[str, tuple[Job | None, list[Task]]] = field(default_factory=dict)

    def place(self, queue: Sequence[Job]) -> None:
        """All tasks of these jobs, none of them placed yet."""
        tasks = [Task(id=task) for job in queue for task in job.task_ids]
        self.decide(tasks, {job.id: job for job in queue})

    def decide(self, tasks: Iterable[Task], jobs: Mapping[JobId, Job]) -> None:
        """The pending ones of these tasks."""
        self.desks = [desk_of(worker) for worker in sorted(self.fleet, key=lambda worker: worker.id)]
        self.taints = {key for worker in self.fleet for key in worker.attributes if key.startswith("taint:")}
        by_job: dict[JobId, dict[int, Task]] = {}
        for task in tasks:
            if task.state is TaskState.PENDING:
                by_job.setdefault(task.id.job, {})[task.id.index] = task
        for name in sorted(by_job):
            if name not in jobs:
                self.waiting.update((str(task.id), (None, [task])) for task in by_job[name].values())
        known = [jobs[name] for name in sorted(by_job) if name in jobs]
        for job in sorted(known, key=lambda job: _turn(job, jobs)):
            self._serve(job, [by_job[job.id][index] for index in sorted(by_job[job.id])])

    def _serve(self, job: Job, tasks: list[Task]) -> None:
        late = [task for task in tasks if self.is_late(job, tasks if job.is_gang else [task])]
        self.timed_out += (str(task.id) for task in late)
        rest = [task for task in tasks if task not in late]
        if job.is_gang:
            if rest and not self._place_gang(job, rest):
                self.waiting[job.id] = job, rest
            return
        for task in rest:
            fitting = [desk for desk in self.desks if self._serves(desk, job) and room(desk, job)]
            if fitting:
                self._take(job, task, min(fitting, key=lambda desk: self._rank(desk, job)))
            else:
                self.waiting[str(task.id)] = job, [task]

    def is_late(self, job: Job, together: list[Task]) -> bool:
        """Never placed, and longer ago submitted than it may wait. A gang is one."""
        placed_once = any(task.attempts for task in together) or (job.is_gang and job.rounds > 0)
        limited = job.scheduling_timeout > 0 and self.now - job.submitted_at > job.scheduling_timeout
        return limited and not placed_once

    # Whom a task may go to

    def _serves(self, desk: Desk, job: Job) -> bool:
        return self._is_right(desk, job) and desk.worker.id not in self.unconfirmed_stops

    def _is_right(self, desk: Desk, job: Job) -> bool:
        worker, kind, device = desk.worker, job.resources.device_type, job.resources.device
        tolerated = {f"taint:{taint}" for taint in job.tolerations}
        well = worker.condition is WorkerCondition.HEALTHY and not (
            worker.draining or worker.quarantined or worker.unschedulable
        )
        rests = self.now < worker.cooldown_until <= self.now + self.backoff_max
        return (
            (kind == "cpu" or desk.text("device-type") == kind)
            and (kind == "cpu" or device is None or device.variant in ("auto", desk.text("device-variant")))
            and all(satisfies(worker, each) for each in job.constraints if each.required)
            and not any(key in worker.attributes for key in self.taints - tolerated)
            and well
            and not rests
            and not desk.kept_for
        )

    def _rank(self, desk: Desk, job: Job) -> tuple[int, int, str]:
        name = desk.attribute("tpu-name")
        mates = [each for each in self.desks if name is not None and each.attribute("tpu-name") == name]
        whole = name is not None and not any(each.attempts for each in mates)
        if job.resources.device_type != "cpu":
            tier = int(whole and len(mates) > 1)
        elif desk.text("device-type") in ("", "cpu"):
            tier = 0
        else:
            tier = 3 if whole else 1 if name is not None else 2
        return -_preferences(desk, job), tier, desk.worker.id

    def _take(self, job: Job, task: Task, desk: Desk) -> None:
        resources = job.resources
        count = resources.device.count if resources.device and resources.device.kind == "gpu" else 0
        gpus, desk.gpus = tuple(desk.gpus[:count]), desk.gpus[count:]
        desk.cpu -= resources.cpu_millis
        desk.memory -= resources.memory
        desk.chips = desk.chips and resources.device_type != "tpu"
        desk.attempts += 1
        self.placements.append((str(task.id), desk.worker.id, gpus))

    # Gangs

    def _place_gang(self, job: Job, tasks: list[Task]) -> bool:
        assert job.coscheduling is not None
        if job.slices < 1 or job.replicas % job.slices or len(tasks) != job.replicas:
            return False
        size = job.replicas // job.slices
        groups = self.groups(job.coscheduling.group_by)
        ranked = []
        for place, (_, members) in enumerate(groups):
            fitting = [desk for desk in members if self._serves(desk, job) and room(desk, job)]
            if suffices(job, members, fitting, size):
                liked = sorted(fitting, key=lambda desk: -_preferences(desk, job))[:size]
                chosen = sorted(liked, key=_seat)
                met = sum(_preferences(desk, job) for desk in chosen)
                ranked.append((-met, len(fitting), place, chosen))
        best = sorted(ranked)[: job.slices]
        if len(best) == job.slices:
            seats = [desk for *_, chosen in best for desk in chosen]
            for task, desk in zip(tasks, seats, strict=True):
                self._take(job, task, desk)
            return True
        if 0 < self.reserve_after <= self.now - job.submitted_at:
            self._reserve(job, groups, size)
        return False

    def groups(self, key: str) -> list[tuple[AttributeValue, list[Desk]]]:
        found: dict[AttributeValue, list[Desk]] = {}
        for desk in self.desks:
            value = desk.attribute(key)
            if value is not None:
                found.setdefault(value, []).append(desk)
        for members in found.values():
            members.sort(key=_seat)
        return sorted(found.items(), key=lambda item: (type(item[0].value).__name__, item[0]))

    def _reserve(self, job: Job, groups: list[tuple[AttributeValue, list[Desk]]], size: int) -> None:
        ranked = []
        for place, (key, members) in enumerate(groups):
            usable = [desk for desk in members if self._is_right(desk, job) and _large_enough(desk, job)]
            if not suffices(job, members, usable, size):
                continue
            waits = [
                (0 if self._serves(desk, job) and room(desk, job) else desk.attempts, at)
                for at, desk in enumerate(usable)
            ]
            soonest = sorted(waits)[:size]
            ranked.append(
                (sum(wait for wait, _ in soonest), place, str(key), [usable[at] for _, at in soonest])
            )
        best = sorted(ranked)[: job.slices]
        if len(best) == job.slices:
            self.reservations[job.id] = tuple(name for _, _, name, _ in best)
            for *_, desks in best:
                for desk in desks:
                    desk.kept_for = job.id


def satisfies(worker: Worker, constraint: Constraint) -> bool:
    """The table of operators and types: values of different types are different values, numbers have an order."""
    op, found = constraint.op.value, worker.attributes.get(constraint.key)
    if found is None or op in ("EXISTS", "NOT_EXISTS"):
        return op == ("NOT_EXISTS" if found is None else "EXISTS")
    have = found.value
    same = [each.value for each in constraint.operands if type(each.value) is type(have)]
    if op in ("EQ", "IN"):
        return have in same
    if op == "NE":
        return have not in same
    (bound,) = (each.value for each in constraint.operands)
    if isinstance(have, str) or isinstance(bound, str):
        return False
    return {"GT": have > bound, "GE": have >= bound, "LT": have < bound, "LE": have <= bound}[op]


def _turn(job: Job, jobs: Mapping[JobId, Job]) -> tuple[object, ...]:
    root = jobs.get(JobId(job.id.split("/")[0]), job)
    priority = ["high", "normal", "low"].index(job.priority.value)
    age = (root.order, root.submitted_at, job.order, job.submitted_at)
    return priority, -job.id.count("/"), *age, job.id


def desk_of(worker: Worker) -> Desk:
    claims = list(worker.claims.values())
    taken = {gpu for claim in claims for gpu in claim.gpus}
    return Desk(
        worker=worker,
        cpu=worker.cpu_millis - sum(claim.cpu_millis for claim in claims),
        memory=worker.memory - sum(claim.memory for claim in claims),
        gpus=[gpu for gpu in range(worker.gpus) if gpu not in taken],
        chips=not any(claim.chips for claim in claims),
        attempts=len(claims),
    )


def room(desk: Desk, job: Job) -> bool:
    return _enough(job, desk.cpu, desk.memory, len(desk.gpus)) and (
        job.resources.device_type != "tpu" or desk.chips
    )


def _large_enough(desk: Desk, job: Job) -> bool:
    return _enough(job, desk.worker.cpu_millis, desk.worker.memory, desk.worker.gpus)


def _enough(job: Job, cpu: int, memory: int, gpus: int) -> bool:
    device = job.resources.device
    wanted = device.count if device and device.kind == "gpu" else 0
    return cpu >= job.resources.cpu_millis and memory >= job.resources.memory and gpus >= wanted


def _preferences(desk: Desk, job: Job) -> int:
    return sum(satisfies(desk.worker, each) for each in job.constraints if not each.required)


def suffices(job: Job, members: list[Desk], usable: list[Desk], size: int) -> bool:
    """Enough of a group; for a TPU gang a whole slice of exactly that size, by its workers' own account too."""
    if job.resources.device_type != "tpu":
        return len(usable) >= size
    counts = [desk.whole_number("tpu-vm-count") for desk in members]
    return (
        usable == members
        and [desk.whole_number("tpu-worker-id") for desk in members] == list(range(size))
        and all(count in (None, size) for count in counts)
    )


def _seat(desk: Desk) -> tuple[bool, int, str]:
    number = desk.whole_number("tpu-worker-id")
    return number is None, number or 0, desk.worker.id
