"""The figures of a report in words, for its page and for the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from iris_cli.core.lifecycle.display import word_of
from iris_cli.ops.views.report import Report
from iris_cli.ops.views.report_figures import Use

_HOUR = 3600.0


def hours(seconds: float) -> str:
    """`1,204`, `12.3`, `0.25`: as many digits as anybody reads."""
    number = seconds / _HOUR
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:,.1f}" if number >= 1 or not number else f"{number:.2g}"


def share(part: float, whole: float) -> str:
    """`42 %`; '' of nothing."""
    return f"{100 * part / whole:.0f} %" if whole else ""


def of_what_was_there(chip_seconds: float, used: Iterable[Use]) -> str:
    """How much that is of the chips of these workers, for as long as they were there."""
    there = sum(use.worker.chips * use.worker.seconds for use in used)
    return f"{share(chip_seconds, there)} of {hours(there)} available" if there else "no chips here"


def counted(report: Report) -> str:
    """`1 failed, 2 running`: how its jobs read."""
    states = [word_of(job.display).lower() for job in report.jobs]
    return ", ".join(f"{states.count(each):,} {each}" for each in sorted(set(states)))
