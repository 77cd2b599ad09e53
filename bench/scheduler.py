"""Targets 1, 2 and 3: one scheduling cycle, over fleets and queues of several sizes.

A cycle is `find_assignments`. A first look is a cycle over jobs that no cycle has seen, as in each command: no two jobs
share a constraint or a resources object, no two workers an attribute.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bench.result import Row, Scale
from bench.stopwatch import cpu, medians, seconds
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job, Priority
from iris_cli.core.model.task import Task
from iris_cli.core.model.worker import Worker
from iris_cli.core.scheduling import SchedulingResult, find_assignments, plan
from tests.support.fleet import gang, job, pending, tpu_slice, training
from tests.support.literal_scheduler import LiteralScheduler

VMS = 4
MOST_MEMORY = 400e6
_NOW = 300.0
_LATER = 1200.0
"""By this time gangs submitted at 0 have waited long enough to reserve workers."""
_REGIONS = ("", "region=us-central2", "region=us-west4", "region")
_POOLS = ("", "pool!=spare", "pool in a,b,c", "~pool=a")
_RACKS = ("", "rack>=0", "rack>=1", "rack>=2", "rack>=3", "rack>=4")
_WANTED = tuple(tuple(filter(None, words)) for words in islice(product(_RACKS, _POOLS, _REGIONS), 92))
_CPUS = 3
"""Cores that CPU jobs request, from 1. With 92 sets of constraints and the gangs this makes 277 signatures."""
_PRIORITIES = (Priority.NORMAL, Priority.NORMAL, Priority.HIGH, Priority.NORMAL, Priority.LOW)
_MOST_SECONDS = {(1_000, 100_000): 0.25, (10_000, 10_000): 0.15, (10_000, 100_000): 0.5}


@dataclass(frozen=True)
class Case:
    """A fleet and a queue."""

    workers: Sequence[Worker]
    jobs: Sequence[Job]

    @classmethod
    def of(cls, workers: int, tasks: int) -> Case:
        return cls(fleet(workers), mix_a(tasks))

    @cached_property
    def tasks(self) -> list[Task]:
        return pending(self.jobs)

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster(
            jobs={each.id: each for each in self.jobs},
            tasks={each.id: each for each in self.tasks},
            workers={each.id: each for each in self.workers},
        )

    def get_ready(self) -> None:
        """Create the parts that are not measured."""
        _ = self.tasks, self.cluster

    @property
    def size(self) -> str:
        return f"{len(self.workers)} workers, {len(self.tasks)} tasks"

    def full(self) -> Case:
        """Return the same case without free resources: a gang on each slice."""
        gangs = [number // VMS for number in range(len(self.workers))]
        return Case(
            [
                training(replace(each, cpu=1.0), by=f"old-{number}")
                for each, number in zip(self.workers, gangs, strict=True)
            ],
            self.jobs,
        )

    def with_unseen_jobs(self) -> Case:
        """Return the same case with jobs that no cycle has seen."""
        found = Case(self.workers, [replace(each) for each in self.jobs])
        found.get_ready()
        return found

    def cycle(self) -> float:
        """Return the CPU seconds of one cycle."""
        self.get_ready()
        return seconds(self.decide, cpu)

    def first_look(self, shown: int = 0) -> float:
        """Return the CPU seconds of a cycle over unseen jobs, and of reading `shown` reasons."""
        case = self.with_unseen_jobs()
        return seconds(lambda: case.decide_and_read(shown), cpu)

    def decide_and_read(self, shown: int) -> None:
        """Run one cycle and read the reasons of the first pending entries."""
        waiting = self.decide().waiting
        for key in islice(waiting, shown):
            _ = waiting[key]

    def decide(self) -> SchedulingResult:
        """Run one cycle."""
        return find_assignments(self.tasks, self.workers, self.cluster.jobs.get, _NOW)

    def plan(self, now: float = _NOW) -> float:
        """Return the CPU seconds of a plan, as in a command, with reservations. Reasons are read when shown."""
        self.get_ready()
        return seconds(lambda: plan(self.cluster, now), cpu)


def rows(scale: Scale) -> Iterator[Row]:
    """Measure a cycle with every feature; nothing is committed."""
    yield from _one_size(scale)
    yield from _against_reference(scale)
    yield from _many_sizes(scale)
    yield _memory(scale)


def fleet(workers: int) -> list[Worker]:
    """Return slices of four VMs, in two regions, three pools and five racks."""
    regions, pools = ("us-central2", "us-west4"), ("a", "b", "spare")
    return [
        worker
        for number in range(workers // VMS)
        for worker in tpu_slice(
            f"slice-{number}",
            "v4-32",
            VMS,
            region=regions[number % 2],
            pool=pools[number % 3],
            rack=number % 5,
        )
    ]


def mix_a(tasks: int) -> list[Job]:
    """Return jobs: half of the tasks in gangs of four, half in CPU jobs of one task, with 277 signatures in total.

    A gang precedes every four CPU jobs; each kind has three priorities and each job a deadline.
    """
    gangs = max(1, tasks // (2 * VMS))
    queue = _gangs(gangs)
    queue += [
        job(
            f"cpu-{number}",
            *_WANTED[number % len(_WANTED)],
            cpu=1 + number // len(_WANTED) % _CPUS,
            order=number + number // VMS + 1,
            **_shared(number),
        )
        for number in range(gangs * VMS)
    ]
    return sorted(queue, key=lambda each: each.order)


def mix_b(tasks: int) -> list[Job]:
    """Return jobs: half of the tasks in gangs of four, half in 50 CPU jobs."""
    gangs = max(1, tasks // (2 * VMS))
    jobs, each = min(50, gangs), max(1, tasks // 100)
    cpu = [
        job(f"cpu-{n}", *_WANTED[n % len(_WANTED)], replicas=each, order=5 * gangs + n, **_shared(n))
        for n in range(jobs)
    ]
    return [*_gangs(gangs), *cpu]


def _gangs(count: int) -> list[Job]:
    return [
        gang(f"gang-{number}", replicas=VMS, order=number * (VMS + 1), **_shared(number))
        for number in range(count)
    ]


def _shared(number: int) -> dict[str, Any]:
    return {"priority": _PRIORITIES[number % len(_PRIORITIES)], "scheduling_timeout": 3600.0}


def _one_size(scale: Scale) -> Iterator[Row]:
    mix = {name: Case(fleet(scale.of(1_000)), make(scale.of(10_000))) for name, make in _MIXES.items()}
    idle, full, other = mix["A"], mix["A"].full(), mix["B"]
    taken = medians(
        {
            (1, "mix A, first look", 0.045): idle.first_look,
            (1, "mix A, later looks", 0.045): idle.cycle,
            (1, "mix A, as a plan", 0.060): idle.plan,
            (1, "mix A, as a plan, gangs have waited long", 0.060): lambda: idle.plan(_LATER),
            (1, "mix B, first look", 0.030): other.first_look,
            (2, "mix A, full, first look, 100 reasons read", 0.030): lambda: full.first_look(100),
            (2, "mix A, full, first look, every reason read", 0.060): lambda: full.first_look(10**6),
        },
        scale.repeat,
    )
    for (target, how, most), value in taken.items():
        yield Row(target=target, name=f"{idle.size}, {how}, s CPU", value=value, reference=most, limit=1)


_MIXES = {"A": mix_a, "B": mix_b}


def _against_reference(scale: Scale) -> Iterator[Row]:
    """Measure against the reference, which examines every worker for every task: it gets a hundredth of the work."""
    for (name, make), limit in zip(_MIXES.items(), (1 / 60, 1 / 40), strict=True):
        case = Case(fleet(scale.of(100)), make(scale.of(1_000)))
        literal = LiteralScheduler(case.workers, _NOW)
        taken = medians(
            {"ours": case.first_look, "literal": partial(seconds, partial(literal.place, case.jobs), cpu)},
            min(3, scale.repeat),
        )
        what = f"{case.size}, mix {name}, first look, against a scan per task, s CPU"
        yield Row(target=1, name=what, value=taken["ours"], reference=taken["literal"], limit=limit)


def _many_sizes(scale: Scale) -> Iterator[Row]:
    sizes = [(workers, tasks) for workers in (1_000, 10_000) for tasks in (10_000, 100_000)]
    for mix, make in _MIXES.items():
        cases = {size: Case(fleet(scale.of(size[0])), make(scale.of(size[1]))) for size in sizes}
        times = medians({size: case.first_look for size, case in cases.items()}, min(3, scale.repeat))
        for size, most in _MOST_SECONDS.items():
            name = f"{cases[size].size}, mix {mix}, first look, s CPU"
            yield Row(target=3, name=name, value=times[size], reference=most, limit=1)
        for workers, tasks in ((1_000, None), (10_000, None), (None, 10_000), (None, 100_000)):
            line = [size for size in sizes if workers in (None, size[0]) and tasks in (None, size[1])]
            exponent = next(math.log10(times[more] / times[less]) for less, more in pairwise(line))
            grows = f"tasks ({workers} workers" if workers else f"workers ({tasks} tasks"
            name = f"exponent in {grows}), mix {mix}"
            yield Row(target=3, name=name, value=max(exponent, 0.0), reference=1, limit=1)


def _memory(scale: Scale) -> Row:
    workers, tasks = scale.of(10_000), scale.of(100_000)
    command = [sys.executable, "-m", "bench.scheduler", str(workers), str(tasks)]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    name = f"{workers} workers, {tasks} tasks, peak memory of a process, bytes"
    return Row(target=3, name=name, value=peak, reference=MOST_MEMORY, limit=1)


def _own_peak() -> int:
    """Return the peak memory of this process in bytes; 0 if unknown (Linux only)."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


if __name__ == "__main__":
    Case.of(*map(int, sys.argv[1:])).decide()
    print(_own_peak())
