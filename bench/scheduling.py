"""Targets 1, 2 and 3: one scheduling cycle over fleets of several sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bench.result import Row
from bench.scale import Scale
from bench.stopwatch import cpu, median, seconds
from iris_cli.core.job import Job
from iris_cli.core.scheduling import find_assignments
from iris_cli.core.task import Task
from iris_cli.core.worker import Worker
from tests.support.fleet import gang, job, pending, tpu_slice, training
from tests.support.literal_scheduler import LiteralScheduler

VMS = 4
_MIX = (
    (),
    ("region=us-central2",),
    ("region=us-central2", "pool!=spare"),
    ("pool in a,b,c",),
    ("rack>=2", "region=us-west4"),
)


def rows(scale: Scale) -> Iterator[Row]:
    """A cycle with every feature, with reasons for what waits; nothing of it is committed."""
    slices = scale.of(250)
    idle, full = fleet(slices), [training(replace(each, cpu=0.0)) for each in fleet(slices)]
    queue = mixed(scale.of(1250), scale.of(5000))
    for target, workers, most in ((1, idle, 0.060), (2, full, 0.030)):
        name = f"{len(workers)} {'idle' if workers is idle else 'full'} workers, {_count(queue)} tasks, s CPU"
        taken = median(lambda workers=workers: cycle(workers, queue), repeat=scale.repeat, clock=cpu)  # type: ignore[misc]  # a default keeps the loop's value
        yield Row(target=target, name=name, value=taken, reference=most, limit=1)
    yield _against_the_literal_one(scale)
    yield from _sizes(scale)


def fleet(slices: int) -> list[Worker]:
    """Slices of four VMs, in two regions, three pools and five racks."""
    regions, pools = ("us-central2", "us-west4"), ("a", "b", "spare")
    return [
        worker
        for number in range(slices)
        for worker in tpu_slice(
            f"slice-{number}",
            "v4-32",
            VMS,
            region=regions[number % 2],
            pool=pools[number % 3],
            rack=number % 5,
        )
    ]


def mixed(gangs: int, singles: int) -> list[Job]:
    """Gangs of four, and CPU jobs of one task with constraints."""
    queue = [gang(f"gang-{n}", order=n, replicas=VMS) for n in range(gangs)]
    return queue + [job(f"cpu-{n}", *_MIX[n % len(_MIX)], order=gangs + n) for n in range(singles)]


def cycle(workers: Sequence[Worker], queue: Sequence[Job], tasks: Sequence[Task] | None = None) -> int:
    """How many tasks were placed."""
    known = {each.id: each for each in queue}
    waiting = pending(queue) if tasks is None else tasks
    return len(find_assignments(waiting, workers, known.get, 0.0).assignments)


def _against_the_literal_one(scale: Scale) -> Row:
    """The reference looks at every worker for every task: it gets a tenth of the work, and time for it."""
    workers, queue = fleet(scale.of(25)), mixed(scale.of(25), scale.of(400))
    literal = seconds(lambda: LiteralScheduler(workers, 0.0).place(queue), cpu)
    ours = median(lambda: cycle(workers, queue), repeat=scale.repeat, clock=cpu)
    name = f"{len(workers)} workers, {_count(queue)} tasks, against a scan per task, s CPU"
    return Row(target=1, name=name, value=ours, reference=literal, limit=1 / 40)


def _sizes(scale: Scale) -> Iterator[Row]:
    """Tasks are a few wide jobs: what counts is how the time grows."""
    taken = {}
    for workers, tasks, most in ((1000, 100_000, 0.2), (10_000, 10_000, 0.2), (10_000, 100_000, 0.6)):
        hosts, queue = fleet(scale.of(workers) // VMS), _wide(scale.of(tasks))
        waiting = pending(queue)
        value = median(lambda: cycle(hosts, queue, waiting), repeat=min(3, scale.repeat), clock=cpu)  # noqa: B023 - called at once
        taken[workers, tasks] = value
        name = f"{len(hosts)} workers, {len(waiting)} tasks, s CPU"
        yield Row(target=3, name=name, value=value, reference=most, limit=1)
    largest = taken[10_000, 100_000]
    for name, smaller in (("tasks", taken[10_000, 10_000]), ("workers", taken[1000, 100_000])):
        exponent = math.log10(largest / smaller)
        yield Row(target=3, name=f"exponent in {name}", value=max(exponent, 0.0), reference=1, limit=1)


def _wide(tasks: int) -> list[Job]:
    width = max(1, tasks // 100)
    return [job(f"wide-{n}", *_MIX[n % len(_MIX)], order=n, replicas=width) for n in range(tasks // width)]


def _count(queue: Sequence[Job]) -> int:
    return sum(each.replicas for each in queue)
