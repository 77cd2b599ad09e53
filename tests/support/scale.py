"""Scale groups and demand in one line each."""

from __future__ import annotations

from typing import Any

from iris_cli.core.attributes import AttributeValue, RawValue
from iris_cli.core.autoscaling import DemandEntry, GroupState, RoutingDecision, route_demand
from iris_cli.core.autoscaling.demand import entry_of
from iris_cli.core.model.job import Job
from iris_cli.core.model.slice import Provider, ScaleGroup, SliceTemplate


def scale_group(
    name: str,
    tpu: str = "v5litepod-16",
    zone: str = "us-west4-a",
    *,
    preemptible: bool = False,
    attributes: dict[str, RawValue] | None = None,
    **fields: Any,
) -> ScaleGroup:
    """A group of slices of four VMs (112 cores each) in us-west4, four slices at most."""
    declared = {key: AttributeValue(value) for key, value in (attributes or {}).items()}
    template = SliceTemplate(provider=Provider.MANUAL, type=tpu, zone=zone, preemptible=preemptible)
    return ScaleGroup(name=name, template=template, attributes=declared, **{"max_slices": 4, **fields})


_OF_STATE = ("slices", "booting", "backing_off", "vms", "vm")


def state(name: str, tpu: str = "v5litepod-16", zone: str = "us-west4-a", **fields: Any) -> GroupState:
    """Return the group with its state: `slices`, `booting`, `backing_off`, ..."""
    standing = {key: fields.pop(key) for key in _OF_STATE if key in fields}
    return GroupState(group=scale_group(name, tpu, zone, **fields), **standing)


def entries_of(*jobs: Job) -> list[DemandEntry]:
    """Return the demand of jobs without workers: whole gangs, other tasks one by one."""
    return [
        entry_of(job, tasks)
        for job in jobs
        for tasks in ([job.task_ids] if job.is_gang else [(task,) for task in job.task_ids])
    ]


def route(groups: list[GroupState], *jobs: Job) -> RoutingDecision:
    return route_demand(entries_of(*jobs), groups)


def launched(groups: list[GroupState], *jobs: Job) -> dict[str, int]:
    """Return the number of new slices of each group."""
    return dict(route(groups, *jobs).launch)


def unmet(groups: list[GroupState], *jobs: Job) -> list[str]:
    """Return the texts of the reasons why entries get no slice."""
    return [f"{each.entry.key}: {each.reason}" for each in route(groups, *jobs).unmet]
