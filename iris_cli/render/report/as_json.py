"""The figures of a report as JSON. Chip and task time is in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from iris_cli.core import JobId, JobState, Priority, WorkerId
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


class Sums(Struct, frozen=True):
    """Sums for several jobs. `waited_*`: median and longest time from submission to the first start."""

    FLATTENED: ClassVar = ("costs",)
    jobs: int
    costs: Costs
    waited_median_seconds: float
    waited_most_seconds: float


class TotalSums(Struct, frozen=True):
    """Sums for all jobs."""

    FLATTENED: ClassVar = ("sums",)
    sums: Sums
    retries: int
    preemptions: int


class LabelSums(Struct, frozen=True):
    """Sums for the jobs with one label. `label` is null for the jobs without labels."""

    FLATTENED: ClassVar = ("sums",)
    label: str | None
    sums: Sums


class PrioritySums(Struct, frozen=True):
    """Sums for the jobs of one priority."""

    FLATTENED: ClassVar = ("sums",)
    priority: str
    sums: Sums


class WorkerUse(Struct, frozen=True, kw_only=True):
    """Use of one worker. `there_seconds`: time in the configuration. `lost`: attempts that were lost on the worker."""

    id: WorkerId
    worker: WorkerId  # same as `id`: other documents call it `worker`
    slice: str | None
    type: str
    chips: int
    there_seconds: float
    busy_seconds: float
    attempts: int
    lost: int


class ReportedJob(Struct, frozen=True, kw_only=True):
    """One job of the report."""

    FLATTENED: ClassVar = ("costs",)
    id: JobId
    state: JobState
    display: str
    labels: Mapping[str, str]
    priority: Priority
    replicas: int
    gang: bool
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    waited_seconds: float
    ran_seconds: float | None
    retries: int
    preemptions: int
    costs: Costs
    why: str
    again: JobId | None
    tried_again: Sequence[JobId]


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
            _sums(total(report.jobs)),
            retries=sum(job.retries for job in report.jobs),
            preemptions=sum(job.preemptions for job in report.jobs),
        ),
        labels=[LabelSums(each.name or None, _sums(each)) for each in by_label(report.jobs)],
        priorities=[PrioritySums(each.name, _sums(each)) for each in by_priority(report.jobs)],
        ends=ends(report.jobs),
        workers=[_worker(each) for each in uses(report)],
        jobs=[_job(each) for each in report.jobs],
    )


def _sums(each: Sum) -> Sums:
    return Sums(each.jobs, _costs(each), each.waited_median, each.waited_most)


def _costs(each: Sum) -> Costs:
    return Costs(each.chip_seconds, each.wasted, each.task_seconds)


def _worker(each: Use) -> WorkerUse:
    worker = each.worker
    return WorkerUse(
        id=worker.id,
        worker=worker.id,
        slice=worker.slice,
        type=worker.type,
        chips=worker.chips,
        there_seconds=worker.seconds,
        busy_seconds=each.busy_seconds,
        attempts=each.attempts,
        lost=each.lost,
    )


def _job(job: JobLine) -> ReportedJob:
    return ReportedJob(
        id=job.id,
        state=job.state,
        display=job.display,
        labels=job.labels,
        priority=job.priority,
        replicas=job.replicas,
        gang=job.gang,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        waited_seconds=job.waited,
        ran_seconds=job.ran,
        retries=job.retries,
        preemptions=job.preemptions,
        costs=_costs(total([job])),
        why=job.why,
        again=job.again,
        tried_again=job.tried_again,
    )
