"""What the chart of a report is drawn from, in as few numbers as possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from iris_cli.core.model.task import PROGRAM_FAILURES, EndReason
from iris_cli.ops.outcomes.causes import reason_words
from iris_cli.ops.views.report import Report, Stretch
from iris_cli.ops.views.report_figures import LOSSES, Use
from iris_cli.render.clean import clean_line

_REASONS: tuple[EndReason | None, ...] = (None, *EndReason)
_LONG = 36_000.0
"""Seconds above which nobody sees a fraction of one."""


def kind_of(reason: EndReason | None) -> str:
    """The class of an end in the style sheet; the chart has a colour for each."""
    if reason is None:
        return "running"
    if reason is EndReason.OK:
        return "ok"
    if reason in LOSSES:
        return "lost"
    return "failed" if reason in PROGRAM_FAILURES or reason is EndReason.TIMEOUT else "stopped"


def chart(report: Report, uses: Iterable[Use]) -> dict[str, Any]:
    """Times are in units of `unit` seconds. `jobs` have a name, and seven numbers for each attempt (see `_numbers`)."""
    unit = 1.0 if report.at - report.since > _LONG else 0.01
    return {
        "since": report.since,
        "unit": unit,
        "length": _units(report.at - report.since, unit),
        "reasons": [["" if each is None else reason_words(each), kind_of(each)] for each in _REASONS],
        "workers": [_worker(report, use, unit) for use in uses],
        "jobs": [
            [clean_line(job.id), list(_numbers(job.stretches, report.since, unit))] for job in report.jobs
        ],
    }


def _worker(report: Report, use: Use, unit: float) -> list[Any]:
    """Name, slice, type, chips, seconds there and busy, and when it was there."""
    worker = use.worker
    there = [_units(each - report.since, unit) for span in worker.there for each in span]
    return [
        clean_line(worker.id),
        clean_line(worker.slice or ""),
        clean_line(worker.type),
        worker.chips,
        round(worker.seconds, 1),
        round(use.busy_seconds, 1),
        there,
    ]


def _numbers(stretches: Iterable[Stretch], since: float, unit: float) -> Iterator[int]:
    """Task, attempt, worker, placed (after the one before), started after that (or -1), length, reason."""
    before = 0
    for each in stretches:
        placed = _units(each.placed_at - since, unit)
        started = -1 if each.started_at is None else _units(each.started_at - each.placed_at, unit)
        length = _units(each.seconds, unit)
        yield from (each.task, each.attempt, each.worker, placed - before, started, length)
        yield _REASONS.index(each.reason)
        before = placed


def _units(seconds: float, unit: float) -> int:
    return round(seconds / unit)
