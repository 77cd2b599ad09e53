"""The kinds of reasons why entries are pending: each worker and group is checked for each kind.

It starts from the state at the end of a cycle of the literal scheduler, and uses its rules for groups and room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from iris_cli.core.ids import WorkerId
from iris_cli.core.model.job import Job
from iris_cli.core.model.task import Task
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.core.scheduling.reasons import Reason, WaitingKey
from tests.support.literal_scheduler import (
    Desk,
    LiteralScheduler,
    desk_of,
    distance,
    room,
    satisfies,
    suffices,
)

_SELECTION = ("invalid", "no_such_device", "constraint", "taint", "group_shape")
"""Kinds that don't depend on the use of a worker or group."""

_NOW = ("unhealthy", "cooldown", "chips", "gpus", "memory", "cpu", "time_left", "region")

FITS = ""

_PRECEDENCE = (
    *_SELECTION,
    *_NOW,
    "secret",
    "after",
    "held",
    "throttled",
    "stopping",
    "reserved",
    "behind",
    FITS,
).index


def reasons_of(cycle: LiteralScheduler) -> dict[str, list[str]]:
    """Return for each pending entry the kinds of its reasons, in order of precedence."""
    return {
        key: _kinds(cycle, job, tasks, key) if job else ["invalid"]
        for key, (job, tasks) in cycle.waiting.items()
    }


def kinds_of(waiting: Mapping[WaitingKey, tuple[Reason, ...]]) -> dict[str, list[str]]:
    """Return the same for the result of a real cycle."""
    return {
        str(key): list(dict.fromkeys(reason.kind.value for reason in reasons))
        for key, reasons in waiting.items()
    }


def in_order(kinds: Iterable[str]) -> list[str]:
    """Return each kind once, in order of precedence."""
    return sorted(dict.fromkeys(kinds), key=_PRECEDENCE)


def _kinds(cycle: LiteralScheduler, job: Job, tasks: list[Task], key: str) -> list[str]:
    if job.is_gang:
        if job.slices < 1 or job.replicas % job.slices:
            return ["invalid"]
        if len(tasks) != job.replicas:
            return ["stopping" if job.rounds or any(task.attempts for task in tasks) else "invalid"]
    first = {desk.worker.id: next(_against(cycle, desk, job, key)) for desk in cycle.desks}
    kinds = in_order(first.values())
    if all(kind in _SELECTION for kind in kinds):
        return kinds[-1:] or ["no_such_device"]  # the one that excluded all workers
    if job.is_gang:
        kinds = in_order(_of_groups(cycle, job, first))
        return [kind for kind in kinds if kind not in _SELECTION] or kinds[-1:] or ["group_shape"]
    return [kind for kind in kinds if kind not in _SELECTION]


def _of_groups(cycle: LiteralScheduler, job: Job, first: Mapping[WorkerId, str]) -> list[str]:
    """Return the kinds for each group that could run it; if these are too few, for the other groups."""
    assert job.coscheduling is not None
    size = job.replicas // job.slices
    verdicts, judged = [], []
    for _, members in cycle.groups(job.coscheduling.group_by):
        found = [first[desk.worker.id] for desk in members]
        if any(kind != "no_such_device" for kind in found):
            if not suffices(job, members, members, size):
                found = [min(kind, "group_shape", key=_PRECEDENCE) for kind in found]
            whole = job.resources.device_type == "tpu"
            verdicts.append(_verdict(found, len(found) if whole else min(size, len(found))))
            judged.append(members)
    serving = [kind for kind in verdicts if kind not in _SELECTION]
    could = [members for kind, members in zip(verdicts, judged, strict=True) if kind not in _SELECTION]
    free = [members for kind, members in zip(verdicts, judged, strict=True) if kind == FITS]
    if len(serving) >= job.slices:
        most = 2 if job.spread else 1
        if _nearest(could, job) > most:
            return ["region" if _nearest(could, job) == 2 else "group_shape"]
        apart = ["region"] if _nearest(free, job) == 2 > most else []
        return [*(kind for kind in serving if kind != FITS), *apart]
    return [kind for kind in verdicts if kind in _SELECTION]


def _nearest(groups: list[list[Desk]], job: Job) -> int:
    """Return the minimum distance of the groups of a gang; 3: too few have the same device variant."""
    return min((distance(some, job) for some in combinations(groups, job.slices)), default=3)


def _verdict(members: list[str], needed: int) -> str:
    """Return the kind that excludes the first indispensable member."""
    return sorted(members, key=_PRECEDENCE)[len(members) - needed]


def _against(cycle: LiteralScheduler, desk: Desk, job: Job, key: str) -> Iterator[str]:
    """Return all kinds that exclude a worker, in order of precedence, and at last that it fits."""
    worker, kind, device = desk.worker, job.resources.device_type, job.resources.device
    variant = "auto" if device is None or kind == "cpu" else device.variant
    if kind != "cpu" and (
        kind != desk.text("device-type") or variant not in ("auto", desk.text("device-variant"))
    ):
        yield "no_such_device"
    if not all(satisfies(worker, each) for each in job.constraints if each.required):
        yield "constraint"
    if any(key.startswith("taint:") and key[6:] not in job.tolerations for key in worker.attributes):
        yield "taint"
    lone = kind == "tpu" and not job.is_gang
    if lone and not cycle.is_alone(desk) and any(map(cycle.is_alone, cycle.may_serve(job))):
        yield "group_shape"
    if worker.condition is not WorkerCondition.HEALTHY or any(
        (worker.draining, worker.quarantined, worker.unschedulable)
    ):
        yield "unhealthy"
    if cycle.now < worker.cooldown_until <= cycle.now + cycle.backoff_max:
        yield "cooldown"
    yield from _missing(desk_of(worker), job)
    if worker.id in cycle.unconfirmed_stops:
        yield "stopping"
    if not room(desk, job, key):
        yield "behind" if desk.kept_for in ("", key) else "reserved"
    yield FITS


def _missing(start: Desk, job: Job) -> Iterator[str]:
    """Return the resources that were missing at the beginning of the cycle."""
    resources = job.resources
    if resources.device_type == "tpu" and not start.chips:
        yield "chips"
    if resources.device and resources.device.kind == "gpu" and resources.device.count > len(start.gpus):
        yield "gpus"
    if resources.memory > start.memory:
        yield "memory"
    if resources.cpu_millis > start.cpu:
        yield "cpu"
