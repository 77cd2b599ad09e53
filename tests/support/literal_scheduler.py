"""The rules of placement, implemented literally: each worker is checked for each task. Slow, and easy to verify.

It shares only the records of jobs, tasks and workers with the scheduler, and their priorities and ids.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from iris_cli.core import AttributeValue, Constraint, Job, JobId, Task, TaskState, Worker, WorkerCondition

Placement = tuple[str, str, tuple[int, ...]]


Room = tuple[int, int, int, int]
"""Thousandths of a core, bytes, GPUs, and 1 for the chips."""


@dataclass
class Desk:
    """A worker and its free resources."""

    worker: Worker
    cpu: int
    memory: int
    gpus: list[int]
    chips: bool
    held: list[Room]
    kept_for: str = ""
    spare: Room | None = None

    @property
    def left(self) -> Room:
        """Return the free resources: cores, memory, GPUs, chips."""
        return self.cpu, self.memory, len(self.gpus), int(self.chips)

    def attribute(self, key: str) -> AttributeValue | None:
        return self.worker.attributes.get(key)

    def text(self, key: str) -> str:
        return str(self.worker.attributes.get(key, ""))

    def whole_number(self, key: str) -> int | None:
        value = self.attribute(key)
        return value.value if value is not None and isinstance(value.value, int) else None


@dataclass
class LiteralScheduler:
    """`place` or `decide` sets the other fields."""

    fleet: Sequence[Worker]
    now: float
    reserve_after: float = 600.0
    backoff_max: float = 600.0
    unconfirmed_stops: Collection[str] = ()
    jobs: Mapping[JobId, Job] = field(default_factory=dict)
    stopping: set[JobId] = field(default_factory=set)  # gangs that reserve, but are not placed
    placements: list[Placement] = field(default_factory=list)
    reservations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    timed_out: list[str] = field(default_factory=list)
    waiting: dict[str, tuple[Job | None, list[Task]]] = field(default_factory=dict)

    def place(self, queue: Sequence[Job]) -> None:
        """Place all tasks of these jobs as pending ones."""
        tasks = [Task(id=task) for job in queue for task in job.task_ids]
        self.decide(tasks, {job.id: job for job in queue})

    def decide(self, tasks: Iterable[Task], jobs: Mapping[JobId, Job]) -> None:
        """Place the pending ones of these tasks."""
        self.jobs = jobs
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
            if rest and not self._place_gang(job, rest) and job.id not in self.stopping:
                self.waiting[job.id] = job, rest
            return
        left_over = []
        for task in rest:
            fitting = [desk for desk in self.desks if self._serves(desk, job) and room(desk, job)]
            if fitting:
                self._take(job, task, min(fitting, key=lambda desk: self._rank(desk, job)))
            else:
                self.waiting[str(task.id)] = job, [task]
                left_over.append(task)
        if left_over and 0 < self.reserve_after <= self.now - self._start_of_wait(job):
            self._reserve_one(job, str(left_over[0].id))

    def is_late(self, job: Job, together: list[Task]) -> bool:
        """Return True if the entry, a task or a gang, was never placed and has waited too long."""
        placed_once = any(task.attempts for task in together) or (job.is_gang and job.rounds > 0)
        return not placed_once and 0 < job.scheduling_timeout < self.now - self._start_of_wait(job)

    def _start_of_wait(self, job: Job) -> float:
        """Return the time since which the job may be placed: in the future if it is held or its dependency runs."""
        ends = [self.jobs[each].end for each in job.after if each in self.jobs]
        since = [math.inf if end is None else end.at for end in ends]
        return max(job.submitted_at, job.released_at, *since, math.inf if job.held_at is not None else 0.0)

    # Workers of a task

    def _serves(self, desk: Desk, job: Job) -> bool:
        return self._is_right(desk, job) and desk.worker.id not in self.unconfirmed_stops

    def may_serve(self, job: Job) -> list[Desk]:
        """Return the workers with the right device, attributes and taints, free or not. For a single TPU task only
        slices of one VM, if there are any.
        """
        found = [desk for desk in self.desks if self._matches(desk, job)]
        if job.is_gang or job.resources.device_type != "tpu":
            return found
        return [desk for desk in found if self.is_alone(desk)] or found

    def is_alone(self, desk: Desk) -> bool:
        """Return True unless it is a VM of a larger slice."""
        name = desk.attribute("tpu-name")
        mates = [each for each in self.desks if name is not None and each.attribute("tpu-name") == name]
        return len(mates) < 2 and desk.whole_number("tpu-vm-count") in (None, 1)

    def _is_right(self, desk: Desk, job: Job) -> bool:
        worker = desk.worker
        well = worker.condition is WorkerCondition.HEALTHY and not (
            worker.draining or worker.quarantined or worker.unschedulable
        )
        rests = self.now < worker.cooldown_until <= self.now + self.backoff_max
        return well and not rests and any(each is desk for each in self.may_serve(job))

    def _matches(self, desk: Desk, job: Job) -> bool:
        worker, kind, device = desk.worker, job.resources.device_type, job.resources.device
        tolerated = {f"taint:{taint}" for taint in job.tolerations}
        return (
            (kind == "cpu" or desk.text("device-type") == kind)
            and (kind == "cpu" or device is None or device.variant in ("auto", desk.text("device-variant")))
            and all(satisfies(worker, each) for each in job.constraints if each.required)
            and not any(key in worker.attributes for key in self.taints - tolerated)
        )

    def _rank(self, desk: Desk, job: Job) -> tuple[int, int, int, str]:
        name = desk.attribute("tpu-name")
        mates = [each for each in self.desks if name is not None and each.attribute("tpu-name") == name]
        whole = name is not None and not any(each.held for each in mates)
        if job.resources.device_type != "cpu":
            tier = int(whole and len(mates) > 1)
        elif desk.text("device-type") in ("", "cpu"):
            tier = 0
        else:
            tier = 3 if whole else 1 if name is not None else 2
        free = len(desk.gpus) if job.resources.device_type == "gpu" else 0
        return -_preferences(desk, job), tier, free, desk.worker.id

    def _take(self, job: Job, task: Task, desk: Desk) -> None:
        resources = job.resources
        count = resources.device.count if resources.device and resources.device.kind == "gpu" else 0
        gpus, desk.gpus = tuple(desk.gpus[:count]), desk.gpus[count:]
        desk.cpu -= resources.cpu_millis
        desk.memory -= resources.memory
        desk.chips = desk.chips and resources.device_type != "tpu"
        desk.held.append(needed(job))
        if desk.spare is not None:
            desk.spare = _minus(desk.spare, needed(job))
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
                ranked.append(((-met, len(fitting)), place, members, chosen))
        best = best_set(job, ranked, by_distance=True)
        if best and job.id not in self.stopping:
            seats = [desk for *_, chosen in best for desk in chosen]
            for task, desk in zip(tasks, seats, strict=True):
                self._take(job, task, desk)
            return True
        if 0 < self.reserve_after <= self.now - self._start_of_wait(job):
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
        ranked, names = [], dict[int, str]()
        for place, (key, members) in enumerate(groups):
            usable = [desk for desk in members if self._could_have(desk, job)]
            if not suffices(job, members, usable, size):
                continue
            soonest = sorted((_to_wait_for(desk, job), at) for at, desk in enumerate(usable))[:size]
            kept = [usable[at] for _, at in soonest]
            names[place] = str(key)
            ranked.append(((sum(wait for wait, _ in soonest),), place, members, kept))
        best = best_set(job, ranked, by_distance=False)
        if best:
            self.reservations[job.id] = tuple(names[place] for _, place, _, _ in best)
            for *_, desks in best:
                for desk in desks:
                    _keep(desk, job, job.id)

    def _reserve_one(self, job: Job, task: str) -> None:
        """Reserve a worker for a task that needs an accelerator host, or half of the largest worker."""
        need = needed(job)
        sizes = [_size(desk) for desk in self.may_serve(job)]
        half = any(
            2 * need[each] >= max(size[each] for size in sizes) for each in range(4) if need[each] and sizes
        )
        whole = job.resources.device_type == "tpu" or need[2] in [size[2] for size in sizes if size[2]]
        could = [desk for desk in self.desks if self._could_have(desk, job)]
        if could and (half or whole):
            best = min(could, key=lambda desk: (_to_wait_for(desk, job), desk.worker.id))
            self.reservations[task] = (best.worker.id,)
            _keep(best, job, task)

    def _could_have(self, desk: Desk, job: Job) -> bool:
        """Return True if only used capacity is missing."""
        return self._is_right(desk, job) and _covers(_size(desk), needed(job)) and not desk.kept_for


def needed(job: Job) -> Room:
    """Return the resources of a task."""
    device = job.resources.device
    gpus = device.count if device and device.kind == "gpu" else 0
    return job.resources.cpu_millis, job.resources.memory, gpus, int(job.resources.device_type == "tpu")


def _size(desk: Desk) -> Room:
    return desk.worker.cpu_millis, desk.worker.memory, desk.worker.gpus, 1


def _covers(have: Room, need: Room) -> bool:
    return all(some >= wanted for some, wanted in zip(have, need, strict=True))


def _minus(have: Room, taken: Room) -> Room:
    cpu, memory, gpus, chips = (some - each for some, each in zip(have, taken, strict=True))
    return cpu, memory, gpus, chips


def _ends(desk: Desk, job: Job) -> list[list[tuple[int, int]]]:
    """Return for each dimension the sets of attempts whose end frees enough of it: their number, and the excess.

    Each set includes the attempts beside which the task never fits.
    """
    need, found = needed(job), list[list[tuple[int, int]]]()
    beside = _minus(_size(desk), need)
    forced = [each for each in desk.held if not _covers(beside, each)]
    others = [each for each in desk.held if _covers(beside, each)]
    for number in range(4):
        enough = []
        for count in range(len(others) + 1):
            for some in combinations(others, count):
                free = desk.left[number] + sum(each[number] for each in (*forced, *some))
                if free >= need[number]:
                    enough.append((len(forced) + count, free - need[number]))
        found.append(enough)
    return found


def _to_wait_for(desk: Desk, job: Job) -> int:
    """Return the minimum number of attempts that must end."""
    if _covers(desk.left, needed(job)):
        return 0
    return max(min(count for count, _ in enough) for enough in _ends(desk, job))


def _keep(desk: Desk, job: Job, key: str) -> None:
    over = [min(excess for _, excess in enough) for enough in _ends(desk, job)]
    cpu, memory, gpus, chips = map(min, desk.left, over)
    desk.kept_for, desk.spare = key, (cpu, memory, gpus, chips)


def satisfies(worker: Worker, constraint: Constraint) -> bool:
    """Return True if the value meets the constraint. Values of different types differ; only numbers have an order."""
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
        held=[(each.cpu_millis, each.memory, len(each.gpus), int(each.chips)) for each in claims],
    )


def room(desk: Desk, job: Job, key: str = "") -> bool:
    """Return True if a task fits now; on a reserved worker only a task of the reserving entry."""
    free = desk.left if desk.spare is None or desk.kept_for == key else desk.spare
    return _covers(free, needed(job))


def _preferences(desk: Desk, job: Job) -> int:
    return sum(satisfies(desk.worker, each) for each in job.constraints if not each.required)


def suffices(job: Job, members: list[Desk], usable: list[Desk], size: int) -> bool:
    """Return True if the group is large enough; for a TPU gang, if it is a whole slice of exactly that size."""
    if job.resources.device_type != "tpu":
        return len(usable) >= size
    counts = [desk.whole_number("tpu-vm-count") for desk in members]
    return (
        usable == members
        and [desk.whole_number("tpu-worker-id") for desk in members] == list(range(size))
        and all(count in (None, size) for count in counts)
    )


RankedGroup = tuple[tuple[int, ...], int, list[Desk], list[Desk]]
"""The rank of a group (less is better), its index, its members, and the chosen ones."""


def best_set(job: Job, groups: Sequence[RankedGroup], *, by_distance: bool) -> Sequence[RankedGroup]:
    """Return the best set of as many groups as the job has slices; () if no set fits."""
    found = []
    for some in combinations(groups, job.slices):
        far = distance([members for _, _, members, _ in some], job)
        if far <= (2 if job.spread else 1):
            rank = [sum(column) for column in zip(*(rank for rank, *_ in some), strict=True)]
            places = [place for _, place, _, _ in some]
            found.append((far, rank, places, some) if by_distance else (rank, far, places, some))
    return min(found, key=lambda each: each[:3])[3] if found else ()


def distance(groups: Sequence[list[Desk]], job: Job) -> int:
    """0: in one zone, 1: in one region, 2: in several, 3: of several device variants."""
    if job.slices == 1:
        return 0
    desks = [desk for members in groups for desk in members]
    variants, regions, zones = (
        {desk.attribute(key) for desk in desks} for key in ("device-variant", "region", "zone")
    )
    if len(variants) > 1 and job.resources.device_type != "cpu":
        return 3
    return 2 if len(regions) > 1 else 1 if len(zones) > 1 else 0


def _seat(desk: Desk) -> tuple[bool, int, str]:
    number = desk.whole_number("tpu-worker-id")
    return number is None, number or 0, desk.worker.id
