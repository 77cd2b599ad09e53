"""All figures of a report for programs. Chips and tasks are counted in seconds, for whoever adds them up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from iris_cli.ops.report import JobLine, Report
from iris_cli.ops.report_figures import Ends, Sum, Use, by_label, by_priority, ends, total, uses
from iris_cli.render.as_json import moment, plain


def report_document(report: Report) -> dict[str, Any]:
    """Everything that the page has but the attempts, which `iris log export` has."""
    return {
        "cluster": report.name,
        "since": moment(report.since),
        "at": moment(report.at),
        "messages": list(report.messages),
        "log_damage": plain(report.log_damage),
        "older": report.older,
        "total": {**_sum(total(report.jobs)), **_retries(report.jobs)},
        "labels": [{"label": each.name or None, **_sum(each)} for each in by_label(report.jobs)],
        "priorities": [{"priority": each.name, **_sum(each)} for each in by_priority(report.jobs)],
        "ends": [_ends(each) for each in ends(report.jobs)],
        "workers": [_worker(each) for each in uses(report)],
        "jobs": [_job(each) for each in report.jobs],
    }


def _sum(each: Sum) -> dict[str, Any]:
    return {
        "jobs": each.jobs,
        **_costs(each),
        "waited_median_seconds": each.waited_median,
        "waited_most_seconds": each.waited_most,
    }


def _costs(each: Sum) -> dict[str, float]:
    return {
        "chip_seconds": each.chip_seconds,
        "chip_seconds_in_vain": each.in_vain,
        "task_seconds": each.task_seconds,
    }


def _retries(jobs: Iterable[JobLine]) -> dict[str, int]:
    jobs = list(jobs)
    return {
        "retries": sum(job.retries for job in jobs),
        "preemptions": sum(job.preemptions for job in jobs),
    }


def _ends(each: Ends) -> dict[str, Any]:
    """`reason` null: it runs still."""
    return {
        "reason": each.reason.value if each.reason else None,
        "attempts": each.attempts,
        "chip_seconds": each.chip_seconds,
        "task_seconds": each.task_seconds,
    }


def _worker(each: Use) -> dict[str, Any]:
    worker = each.worker
    return {
        "id": worker.id,
        "worker": worker.id,  # as in all other documents
        "slice": worker.slice,
        "type": worker.type,
        "chips": worker.chips,
        "there_seconds": worker.seconds,
        "busy_seconds": each.busy_seconds,
        "attempts": each.attempts,
        "lost": each.lost,
    }


def _job(job: JobLine) -> dict[str, Any]:
    return {
        "id": job.id,
        "state": job.state.value,
        "display": job.display,
        "labels": job.labels,
        "priority": job.priority.value,
        "replicas": job.replicas,
        "gang": job.gang,
        "submitted_at": moment(job.submitted_at),
        "started_at": None if job.started_at is None else moment(job.started_at),
        "ended_at": None if job.ended_at is None else moment(job.ended_at),
        "waited_seconds": job.waited,
        "ran_seconds": job.ran,
        "retries": job.retries,
        "preemptions": job.preemptions,
        **_costs(total([job])),
        "why": job.why,
    }
