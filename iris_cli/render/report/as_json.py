"""The figures of a report as JSON. Chip and task time is in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from iris_cli.core import WorkerId
from iris_cli.journal.log.recovery import Damage
from iris_cli.ops.views.report import (
    Ends,
    JobLine,
    Report,
    Sum,
    Use,
    by_label,
    by_priority,
    ends,
    total,
    uses,
)
from iris_cli.render.as_json import json_time


class Costs(Struct, frozen=True):
    """Resources used. `chip_seconds_in_vain`: chip time of attempts that ended without success."""

    chip_seconds: float
    chip_seconds_in_vain: float
    task_seconds: float


class TotalSums(Struct, frozen=True):
    """Sums for all jobs."""

    FLATTENED: ClassVar = ("sums",)
    sums: Sum
    retries: int
    preemptions: int


class LabelSums(Struct, frozen=True):
    """Sums for the jobs with one label. `label` is null for the jobs without labels."""

    FLATTENED: ClassVar = ("sums",)
    label: str | None
    sums: Sum


class PrioritySums(Struct, frozen=True):
    """Sums for the jobs of one priority."""

    FLATTENED: ClassVar = ("sums",)
    priority: str
    sums: Sum


class WorkerUse(Struct, frozen=True):
    """Use of one worker. `there_seconds`: time in the configuration. `lost`: attempts that were lost on the worker."""

    FLATTENED: ClassVar = ("use",)
    worker: WorkerId  # same as `id`: other documents call it `worker`
    there_seconds: float
    use: Use


class ReportedJob(Struct, frozen=True):
    """One job of the report."""

    FLATTENED: ClassVar = ("job", "costs")
    job: JobLine
    costs: Costs


class ReportDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris report`. `older`: number of older jobs that are not listed.

    The result does not list attempts. `iris log export` prints them.
    """

    cluster: str
    since: str | None
    at: float
    messages: Sequence[str]
    log_damage: Damage | None
    older: int
    total: TotalSums
    labels: Sequence[LabelSums]
    priorities: Sequence[PrioritySums]
    ends: Sequence[Ends]
    workers: Sequence[WorkerUse]
    jobs: Sequence[ReportedJob]


def report_document(report: Report) -> ReportDocument:
    return ReportDocument(
        cluster=report.name,
        since=json_time(report.since),
        at=report.at,
        messages=report.messages,
        log_damage=report.log_damage,
        older=report.older,
        total=TotalSums(
            total(report.jobs),
            retries=sum(job.retries for job in report.jobs),
            preemptions=sum(job.preemptions for job in report.jobs),
        ),
        labels=[LabelSums(each.name or None, each) for each in by_label(report.jobs)],
        priorities=[PrioritySums(each.name, each) for each in by_priority(report.jobs)],
        ends=ends(report.jobs),
        workers=[WorkerUse(each.worker.id, each.worker.seconds, each) for each in uses(report)],
        jobs=[_job(each) for each in report.jobs],
    )


def _job(job: JobLine) -> ReportedJob:
    costs = total([job])
    return ReportedJob(job, Costs(costs.chip_seconds, costs.wasted, costs.task_seconds))
