"""Sums over the jobs of a report: chip-hours, waiting times, how attempts ended, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

from msgspec import Struct

from iris_cli.core.model.task import INFRASTRUCTURE, EndReason
from iris_cli.ops.views.report import JobLine, Report, Stretch
from iris_cli.ops.views.report_fleet import WorkerLine

LOSSES = INFRASTRUCTURE | {EndReason.DISPATCH_FAILED}
"""Ends that say something of a host."""


class Sum(Struct, frozen=True, kw_only=True):
    """Several jobs together, in seconds. `in_vain` is the part of attempts that ended, and not well."""

    name: str
    jobs: int
    task_seconds: float
    chip_seconds: float
    in_vain: float
    waited_median: float
    waited_most: float


class Ends(Struct, frozen=True, kw_only=True):
    """Attempts that ended for one reason, or that still run (`reason` None). Times in seconds."""

    reason: EndReason | None
    attempts: int
    task_seconds: float
    chip_seconds: float


class Use(Struct, frozen=True, kw_only=True):
    """What a worker did: for how much of its time it had something to do, and how often work was lost there."""

    worker: WorkerLine
    busy_seconds: float
    attempts: int
    lost: int


def total(jobs: Iterable[JobLine], name: str = "") -> Sum:
    """These jobs together."""
    jobs = list(jobs)
    stretches = [each for job in jobs for each in job.stretches]
    waited = [job.waited for job in jobs]
    return Sum(
        name=name,
        jobs=len(jobs),
        task_seconds=sum(each.seconds for each in stretches),
        chip_seconds=sum(each.chip_seconds for each in stretches),
        in_vain=sum(each.chip_seconds for each in stretches if each.in_vain),
        waited_median=median(waited) if waited else 0.0,
        waited_most=max(waited, default=0.0),
    )


def by_label(jobs: Iterable[JobLine]) -> list[Sum]:
    """One sum for each label; a job with several counts for each of them, one without for ''."""
    return _by(jobs, lambda job: [f"{key}={value}" for key, value in job.labels.items()] or [""])


def by_priority(jobs: Iterable[JobLine]) -> list[Sum]:
    """One sum for each priority that there is."""
    return _by(jobs, lambda job: [job.priority])


def ends(jobs: Iterable[JobLine]) -> list[Ends]:
    """How attempts ended, the most frequent end first."""
    alike: dict[EndReason | None, list[Stretch]] = {}
    for job in jobs:
        for each in job.stretches:
            alike.setdefault(each.reason, []).append(each)
    found = [
        Ends(
            reason=reason,
            attempts=len(those),
            task_seconds=sum(each.seconds for each in those),
            chip_seconds=sum(each.chip_seconds for each in those),
        )
        for reason, those in alike.items()
    ]
    return sorted(found, key=lambda each: (-each.attempts, each.reason or ""))


def uses(report: Report) -> list[Use]:
    """One for each worker, in their order."""
    there: list[list[Stretch]] = [[] for _ in report.workers]
    for job in report.jobs:
        for each in job.stretches:
            there[each.worker].append(each)
    return [
        Use(
            worker=worker,
            busy_seconds=_covered(those),
            attempts=len(those),
            lost=sum(each.reason in LOSSES for each in those),
        )
        for worker, those in zip(report.workers, there, strict=True)
    ]


def _by(jobs: Iterable[JobLine], names: Callable[[JobLine], Iterable[str]]) -> list[Sum]:
    alike: dict[str, list[JobLine]] = {}
    for job in jobs:
        for name in names(job):
            alike.setdefault(name, []).append(job)
    sums = [total(those, name) for name, those in alike.items()]
    return sorted(sums, key=lambda each: (-each.chip_seconds, -each.task_seconds, each.name))


def _covered(stretches: list[Stretch]) -> float:
    """Seconds in which there was at least one of them."""
    covered, until = 0.0, 0.0
    for each in sorted(stretches, key=lambda each: each.placed_at):
        covered += max(0.0, each.over_at - max(each.placed_at, until))
        until = max(until, each.over_at)
    return covered
