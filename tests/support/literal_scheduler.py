"""The rules of placement, read literally: every worker is looked at for every task. Slow, and easy to check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from iris_cli.core.attributes import AttributeValue
from iris_cli.core.job import Job
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


@dataclass
class LiteralScheduler:
    """Decides on `place`; afterwards `placements` and `reservations` tell what."""

    fleet: Sequence[Worker]
    now: float
    reserve_after: float = 600.0
    placements: list[Placement] = field(default_factory=list)
    reservations: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def place(self, queue: Sequence[Job]) -> None:
        self.desks = [_desk(worker) for worker in sorted(self.fleet, key=lambda worker: worker.id)]
        self.taints = {key for worker in self.fleet for key in worker.attributes if key.startswith("taint:")}
        for job in sorted(queue, key=lambda job: (job.priority.rank, job.order)):
            if job.coscheduling is not None:
                self._place_gang(job)
                continue
            for index in range(job.replicas):
                fitting = [desk for desk in self.desks if self._serves(desk, job) and _room(desk, job)]
                if fitting:
                    self._take(job, index, min(fitting, key=lambda desk: self._rank(desk, job)))

    # Single tasks

    def _serves(self, desk: Desk, job: Job, kept: bool = False) -> bool:
        kind, device = job.resources.device_type, job.resources.device
        tolerated = {f"taint:{taint}" for taint in job.tolerations}
        return (
            (kind == "cpu" or desk.text("device-type") == kind)
            and (device is None or device.variant in ("auto", desk.text("device-variant")))
            and all(each.matches(desk.worker.attributes) for each in job.constraints if each.required)
            and not any(key in desk.worker.attributes for key in self.taints - tolerated)
            and desk.worker.condition is WorkerCondition.HEALTHY
            and not desk.worker.draining
            and (kept or not desk.kept_for)
        )

    def _rank(self, desk: Desk, job: Job) -> tuple[int, int, str]:
        mates = [each for each in self.desks if each.attribute("tpu-name") == desk.attribute("tpu-name")]
        in_slice = desk.attribute("tpu-name") is not None
        whole = in_slice and not any(each.attempts for each in mates)
        if job.resources.device_type != "cpu":
            tier = int(whole and len(mates) > 1)
        elif desk.text("device-type") == "cpu":
            tier = 0
        else:
            tier = 3 if whole else 1 if in_slice else 2
        return -_preferences(desk, job), tier, desk.worker.id

    def _take(self, job: Job, index: int, desk: Desk) -> None:
        resources = job.resources
        count = resources.device.count if resources.device and resources.device.kind == "gpu" else 0
        gpus, desk.gpus = tuple(desk.gpus[:count]), desk.gpus[count:]
        desk.cpu -= resources.cpu_millis
        desk.memory -= resources.memory
        desk.chips = desk.chips and resources.device_type != "tpu"
        desk.attempts += 1
        self.placements.append((f"{job.id}/task-{index}", desk.worker.id, gpus))

    # Gangs

    def _place_gang(self, job: Job) -> None:
        assert job.coscheduling is not None
        size = job.replicas // job.slices
        groups = self._groups(job.coscheduling.group_by)
        ranked = []
        for place, (_, members) in enumerate(groups):
            fitting = [desk for desk in members if self._serves(desk, job) and _room(desk, job)]
            if self._suffices(job, members, fitting, size):
                chosen = fitting[:size]
                met = sum(_preferences(desk, job) for desk in chosen)
                ranked.append((-met, len(fitting), place, chosen))
        best = sorted(ranked)[: job.slices]
        if len(best) == job.slices:
            seats = [desk for *_, chosen in best for desk in chosen]
            for index, desk in enumerate(seats):
                self._take(job, index, desk)
        elif 0 < self.reserve_after <= self.now - job.submitted_at:
            self._reserve(job, groups, size)

    def _groups(self, key: str) -> list[tuple[AttributeValue, list[Desk]]]:
        found: dict[AttributeValue, list[Desk]] = {}
        for desk in self.desks:
            value = desk.attribute(key)
            if value is not None:
                found.setdefault(value, []).append(desk)
        for members in found.values():
            members.sort(key=lambda desk: (_number(desk) is None, _number(desk) or 0, desk.worker.id))
        return sorted(found.items(), key=lambda item: (type(item[0].value).__name__, item[0]))

    def _suffices(self, job: Job, members: list[Desk], usable: list[Desk], size: int) -> bool:
        if job.resources.device_type != "tpu":
            return len(usable) >= size
        return usable == members and [_number(desk) for desk in members] == list(range(size))

    def _reserve(self, job: Job, groups: list[tuple[AttributeValue, list[Desk]]], size: int) -> None:
        ranked = []
        for place, (key, members) in enumerate(groups):
            usable = [desk for desk in members if self._serves(desk, job) and _large_enough(desk, job)]
            if not self._suffices(job, members, usable, size):
                continue
            waits = [(0 if _room(desk, job) else desk.attempts, at) for at, desk in enumerate(usable)]
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


def _desk(worker: Worker) -> Desk:
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


def _room(desk: Desk, job: Job) -> bool:
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
    return sum(each.matches(desk.worker.attributes) for each in job.constraints if not each.required)


def _number(desk: Desk) -> int | None:
    value = desk.attribute("tpu-worker-id")
    return value.value if value is not None and isinstance(value.value, int) else None
