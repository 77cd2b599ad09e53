"""Demand and routing over very many scale groups: a figure without a target (0 in the table)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from bench.result import Row, Scale
from bench.stopwatch import cpu, medians, seconds
from iris_cli.core.autoscaling import GroupState, compute_demand_entries, route_demand
from iris_cli.core.model.job import Job
from tests.support.fleet import gang, job, pending
from tests.support.scale import state

_ZONES = ("us-west4-a", "us-central2-b", "europe-west4-a", "us-east5-c")
_TYPES = {"v5litepod-16": 4, "v4-32": 4, "v6e-32": 8, "v5p-16": 2}
_MOST = 1.0
"""Seconds: no more than cron may spend each minute."""


def rows(scale: Scale) -> Iterator[Row]:
    """Measure with half gangs and half CPU tasks of many sizes; groups are small, so that many are examined."""
    groups, jobs = some_groups(scale.of(1_000)), some_jobs(scale.of(10_000))
    known = {each.id: each for each in jobs}
    tasks = pending(jobs)
    entries = compute_demand_entries(tasks, [], known.get, 0.0, groups=groups)
    full = [replace(each, slices=each.group.max_slices) for each in groups]
    size = f"{len(groups)} scale groups, {len(entries)} entries"
    taken = medians(
        {
            "demand": lambda: seconds(
                lambda: compute_demand_entries(tasks, [], known.get, 0.0, groups=groups), cpu
            ),
            "routing": lambda: seconds(lambda: route_demand(entries, groups), cpu),
            "routing, all groups full": lambda: seconds(lambda: route_demand(entries, full), cpu),
        },
        scale.repeat,
    )
    for what, value in taken.items():
        yield Row(target=0, name=f"{size}, {what}, s CPU", value=value, reference=_MOST, limit=1)


def some_groups(count: int) -> list[GroupState]:
    names = list(_TYPES)
    return [
        state(
            f"group-{number:04}",
            names[number % len(names)],
            _ZONES[number // len(names) % len(_ZONES)],
            preemptible=number % 3 == 0,
            priority=number % 10,
            max_slices=1 + number % 7,
        )
        for number in range(count)
    ]


def some_jobs(count: int) -> list[Job]:
    names, found = list(_TYPES), []
    for number in range(count):
        wanted = ((), (f"region={_ZONES[number % 4][:-2]}",), ("preemptible=false",), ("~preemptible=true",))[
            number % 4
        ]
        if number % 2:
            tpu = names[number // 2 % len(names)]
            found.append(gang(f"gang-{number}", *wanted, tpu=tpu, replicas=_TYPES[tpu], order=number))
        else:
            found.append(job(f"load-{number}", *wanted, cpu=1 + number % 50, order=number))
    return found
