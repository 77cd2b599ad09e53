"""Small random fleets and queues for property tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st
from msgspec.structs import force_setattr, replace

from iris_cli.core.attributes import AttributeValue
from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.constraints import Constraint, ConstraintOp
from iris_cli.core.ids import JobId, Token, WorkerId
from iris_cli.core.model.job import Job, Priority
from iris_cli.core.model.slice import INCOMPLETE
from iris_cli.core.model.task import Attempt, Task, TaskState
from iris_cli.core.model.worker import Worker, WorkerCondition
from iris_cli.core.resources import Device
from iris_cli.core.scheduling import SchedulingResult, find_assignments
from tests.support.fleet import GIB, busy, gang, host, job, tainted, tpu_slice, training, values
from tests.support.phases import ENDED

NOW = 1000.0

T = TypeVar("T")


class Dice:
    """Choices from random bytes, which is fast. Zeros, to which bytes shrink, choose the first."""

    def __init__(self, throws: bytes) -> None:
        self._throws = iter(throws)

    def pick(self, options: Sequence[T]) -> T:
        return options[next(self._throws, 0) % len(options)]

    def up_to(self, most: int) -> int:
        return self.pick(range(most + 1))

    def rarely(self, one_in: int = 8) -> bool:
        return self.pick(range(one_in)) == one_in - 1


dice = st.binary(min_size=300, max_size=300).map(Dice)


@dataclass(frozen=True)
class Situation:
    """The input of a cycle."""

    fleet: list[Worker]
    jobs: list[Job]
    tasks: list[Task]
    unconfirmed_stops: Mapping[WorkerId, list[JobId | None]] = field(default_factory=dict)
    gang_reserve_after: float = 600.0
    now: float = NOW
    known: dict[JobId, Job] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", {each.id: each for each in self.jobs})

    @property
    def options(self) -> dict[str, Any]:
        return {
            "unconfirmed_stops": self.unconfirmed_stops,
            "gang_reserve_after": self.gang_reserve_after,
            "backoff_max": 300.0,
        }

    def cycle(self) -> SchedulingResult:
        return find_assignments(self.tasks, self.fleet, self.known.get, self.now, **self.options)

    def __repr__(self) -> str:
        """Return one record per line."""
        lines = [*map(repr, self.fleet), *map(repr, self.jobs), *(repr(each) for each in self.tasks)]
        return "\n".join([*lines, repr(self.options)])


def a_situation(dice: Dice) -> Situation:
    """Return a random situation."""
    workers = a_fleet(dice)
    queue = [a_job(dice, number) for number in range(dice.pick([1, 2, 3, 4, 5, 6, 7, 8, 9, 0]))]
    return Situation(
        fleet=workers,
        jobs=[each for each in queue if not dice.rarely(32)],
        tasks=[task for each in queue for task in _tasks(dice, each)],
        unconfirmed_stops={each.id: _stops(dice, each) for each in workers if each.claims and dice.rarely(5)},
        gang_reserve_after=dice.pick([600.0, 600.0, 0.0]),
    )


def _stops(dice: Dice, worker: Worker) -> list[JobId | None]:
    jobs: list[JobId | None] = [attempt.task.job for attempt in worker.claims]
    return dice.pick([jobs[:1], jobs, [*jobs, None]])


situations = dice.map(a_situation)


# Workers

_VARIANTS = {"v4-8": 1, "v4-16": 2, "v4-32": 4}
_OFTEN = ["v4-16", "v4-16", "v4-16", "v4-8", "v4-32"]
_ZONES: list[dict[str, Any]] = [{}, {"zone": "a"}, {"zone": "b"}, {"zone": "b"}]
_REGIONS: list[str | int] = ["us", "us", "us", "eu", "eu", 1, "1"]


def a_fleet(dice: Dice) -> list[Worker]:
    """Return up to four slices and five hosts, some busy, unhealthy, tainted or inconsistent."""
    found: list[Worker] = []
    for number in range(dice.pick([1, 2, 2, 3, 3, 4, 4, 0])):
        found += _a_slice(dice, f"s{number}")
    for number in range(dice.pick([1, 2, 3, 4, 5, 6, 0])):
        pool: dict[str, Any] = dice.pick([{}, {}, {"pool": "x"}, {"pool": 2}, {"tpu_worker_id": 9 - number}])
        gpus = dice.pick([0, 0, 2, 4])
        cpu = dice.pick([16, 8, 2])
        where: dict[str, Any] = {
            "rack": dice.pick(_REGIONS),
            "region": dice.pick(_REGIONS),
            **dice.pick(_ZONES),
        }
        found.append(_a_habit(dice, host(f"h{number}", cpu, gpus=gpus, **where, **pool)))
    return found


def _a_slice(dice: Dice, name: str) -> list[Worker]:
    variant = dice.pick(_OFTEN)
    vms = _VARIANTS[variant]
    extra: dict[str, Any] = {"region": dice.pick(_REGIONS), **dice.pick(_ZONES)}
    if dice.rarely(6):
        extra["tpu_vm_count"] = dice.pick([vms, vms + 1])
    members = tpu_slice(name, variant, vms, **extra)
    if dice.rarely():
        members = dice.pick([members[1:], members[:-1], [*members, members[0]]])
        if members:  # missing, or with the number of another worker, or without a number
            odd = dice.pick([values({"tpu-worker-id": 0}), values({"tpu-worker-id": "1"}), {}])
            attributes = {k: v for k, v in members[-1].attributes.items() if k != "tpu-worker-id"}
            members[-1] = replace(members[-1], id=WorkerId(f"{name}-x"), attributes={**attributes, **odd})
    # Mostly all VMs of a slice are busy, or all are idle.
    if dice.rarely(4):
        return [training(member, dice.pick(["old", "new", "j0"])) for member in members]
    return [_a_habit(dice, member) for member in members]


_SET_ASIDE: list[dict[str, Any]] = [
    {"draining": True},
    {"draining": True, "drain_reason": INCOMPLETE},
    {"quarantined": True},
    {"unschedulable": True},
]
_CONDITIONS = [each for each in WorkerCondition if each is not WorkerCondition.HEALTHY]


def _a_habit(dice: Dice, worker: Worker) -> Worker:
    """Return the worker with attempts or problems, if any."""
    match dice.up_to(29):
        case 1 | 2 | 12:
            return busy(
                worker, dice.pick(["old", "new", "j0", "j1"]), cpu=dice.pick([1, worker.cpu / 2, worker.cpu])
            )
        case 3:
            return busy(busy(worker, "old"), "new", memory=dice.pick([GIB, 63 * GIB]))
        case 4 | 5 | 13:
            by = dice.pick(["old", "j0"])
            return training(worker, by) if worker.chips else busy(worker, by, gpus=_some(dice, worker))
        case 6:
            return busy(training(worker, "old") if worker.chips else worker, "new", cpu=worker.cpu + 1)
        case 7:
            state: dict[str, Any] = dice.pick(_SET_ASIDE)
            return replace(worker, **state)
        case 8:
            return replace(worker, condition=dice.pick(_CONDITIONS))
        case 9:
            return replace(worker, cooldown_until=dice.pick([NOW + 30, NOW, NOW + 300, NOW + 301]))
        case 10 | 11:
            return tainted(worker, dice.pick(["maintenance", "maintenance", "spot"]))
        case 14 | 15:
            once = _a_habit(dice, worker)  # maybe a second one, but chips and GPUs are held once
            return once if once.claims else _a_habit(dice, once)
        case 16 | 17:
            return _with_several(dice, worker)
        case _:
            return worker


def _with_several(dice: Dice, worker: Worker) -> Worker:
    """Add several attempts: which of them end decides what fits."""
    for number in range(2 + dice.up_to(2)):
        gpus = (number,) if number < worker.gpus else ()
        by, cpu, memory = dice.pick(["old", "new", "j0"]), dice.pick([1, 2, 3, 5]), dice.pick([1, 4, 7])
        worker = busy(worker, by, cpu=cpu, gpus=gpus, memory=memory * GIB)
    return worker


def _some(dice: Dice, worker: Worker) -> tuple[int, ...]:
    return tuple(gpu for gpu in range(worker.gpus) if dice.up_to(1))


# Jobs

_CONSTRAINTS = [
    *map(parse_constraint, ("region=us", "region!=eu", "region>0", 'region="1"', "region in us,1", "!pool")),
    *map(parse_constraint, ("pool", "~region=eu", "~pool", "~pool>=1", "~region in us,1", "tpu-worker-id<2")),
]


def malformed(key: str, op: ConstraintOp, value: Any) -> Constraint:
    """Return an invalid constraint: without a key or a value, or one that compares texts by order."""
    constraint = Constraint.of("k", ConstraintOp.EXISTS)
    found = None if value is None else AttributeValue(value)
    for name, content in (("key", key), ("op", op), ("value", found)):
        force_setattr(constraint, name, content)
    return constraint


def a_job(dice: Dice, number: int) -> Job:
    """Return a job of any kind."""
    constraints = tuple(dict.fromkeys(dice.pick(_CONSTRAINTS) for _ in range(dice.pick([0, 0, 0, 1, 1, 2]))))
    if dice.rarely(24):
        constraints += (malformed(dice.pick(["region", "pool"]), ConstraintOp.LT, "us"),)
    shared: dict[str, Any] = {
        "order": dice.pick([number, 9 - number]),
        "priority": dice.pick([Priority.NORMAL, Priority.HIGH, Priority.LOW]),
        "submitted_at": dice.pick([0.0, 900.0, 399.9, 400.0]),
        "scheduling_timeout": dice.pick([99.0, 100.0, 700.0]) if dice.rarely(6) else 0.0,
        "cpu": dice.pick([1, 0.5, 2, 4, 8, 16, 100]),
        "memory": dice.pick([100 * GIB, 32 * GIB]) if dice.rarely() else GIB,
        "tolerations": dice.pick([(), (), ("maintenance",), ("maintenance", "spot")]),
    }
    name = f"{dice.pick(['', '', 'j0/', 'j1/x/', 'gone/'])}j{number}"
    return replace(_of_a_kind(dice, name, shared), constraints=constraints)


def _of_a_kind(dice: Dice, name: str, shared: dict[str, Any]) -> Job:
    kind = dice.pick(["cpu", "gpu", "tpu", "slice", "slice", "slice", "rack", "rack", "hosts of slices"])
    match kind:
        case "cpu":
            device = dice.pick([None, None, Device("cpu")])
            return job(name, replicas=1 + dice.up_to(5), device=device, **shared)
        case "gpu":
            device = Device("gpu", dice.pick(["auto", "auto", "A100", "H100"]), count=1 + dice.up_to(2))
            return job(name, device=device, replicas=1 + dice.up_to(2), **shared)
        case "tpu":
            device = Device("tpu", dice.pick(["auto", "v4-8", "v4-16"]))
            return job(name, device=device, replicas=1 + dice.up_to(2), **shared)
        case "slice":
            variant = dice.pick(_OFTEN)
            asked, slices = dice.pick([variant, variant, "auto"]), dice.pick([1, 1, 2, 3])
            replicas = _VARIANTS[variant] * slices
            shared["spread"] = dice.rarely(4)
            return _rounds(dice, gang(name, tpu=asked, replicas=replicas, slices=slices, **shared))
    device = dice.pick([None, None, Device("gpu", count=2)])
    size, slices = 1 + dice.up_to(2), dice.pick([1, 1, 2])
    shared["spread"] = dice.rarely(4)
    by = "rack" if kind == "rack" else "tpu-name"
    return _rounds(
        dice, gang(name, tpu=None, by=by, replicas=size * slices, slices=slices, device=device, **shared)
    )


def _rounds(dice: Dice, asked: Job) -> Job:
    if dice.rarely(32):
        return replace(asked, slices=dice.pick([asked.slices + 1, 0]))  # mostly malformed
    return replace(asked, rounds=1, settled_rounds=1) if dice.rarely() else asked


_TRIED = Attempt(number=0, worker=WorkerId("h0"), token=Token("0" * 32), phase=ENDED)


def _tasks(dice: Dice, asked: Job) -> list[Task]:
    """Return the tasks of a job: all pending, or some retried, running or listed twice."""
    tasks = [Task(id=each) for each in asked.task_ids]
    match dice.up_to(31):
        case 1:
            tasks[-1] = replace(tasks[-1], attempts=(_TRIED,))
        case 2:
            tasks[0] = replace(tasks[0], state=TaskState.RUNNING)
        case 3:
            tasks.append(tasks[0])
    return tasks
