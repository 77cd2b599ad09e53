"""Print the figures of a report, on the terminal or as JSON. Chip and task time in JSON is in seconds."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from iris_cli.core import WorkerId, count, format_memory
from iris_cli.core.lifecycle.display import word_of
from iris_cli.journal.log.recovery import Damage
from iris_cli.ops.outcomes.causes import reason_words
from iris_cli.ops.views import report as figures
from iris_cli.render import tables
from iris_cli.render.as_json import json_time
from iris_cli.render.console import Output
from iris_cli.render.layout import Table, Text

_MAX_ROWS = 10  # maximum number of labels, of hosts and of jobs with a row; the HTML page has more rows

_RIGHT = (
    *("JOBS", "ATTEMPTS", "ATTEMPTS EACH", "LOST ATTEMPTS", "LOST ATTEMPTS EACH", "CHIP-HOURS", "WASTED"),
    *("TASK-HOURS", "WAITED", "RAN", "RETRIES", "TIME IN USE", "MEDIAN WAIT", "LONGEST WAIT"),
)


class Costs(Struct, frozen=True):
    """Resources used. `chip_seconds_in_vain`: chip time of attempts that ended without success."""

    chip_seconds: float
    chip_seconds_in_vain: float
    task_seconds: float


class TotalSums(Struct, frozen=True):
    """Sums for all jobs."""

    FLATTENED: ClassVar = ("sums",)
    sums: figures.Sum
    retries: int
    preemptions: int


class LabelSums(Struct, frozen=True):
    """Sums for the jobs with one label. `label` is null for the jobs without labels."""

    FLATTENED: ClassVar = ("sums",)
    label: str | None
    sums: figures.Sum


class PrioritySums(Struct, frozen=True):
    """Sums for the jobs of one priority."""

    FLATTENED: ClassVar = ("sums",)
    priority: str
    sums: figures.Sum


class WorkerUse(Struct, frozen=True):
    """Use of one worker. `there_seconds`: time in the configuration. `lost`: attempts that were lost on the worker."""

    FLATTENED: ClassVar = ("use",)
    worker: WorkerId  # same as `id`: other documents call it `worker`
    there_seconds: float
    use: figures.Use


class ReportedJob(Struct, frozen=True):
    """One job of the report."""

    FLATTENED: ClassVar = ("job", "costs")
    job: figures.JobLine
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
    ends: Sequence[figures.Ends]
    workers: Sequence[WorkerUse]
    jobs: Sequence[ReportedJob]


def report_document(report: figures.Report) -> ReportDocument:
    return ReportDocument(
        cluster=report.name,
        since=json_time(report.since),
        at=report.at,
        messages=report.messages,
        log_damage=report.log_damage,
        older=report.older,
        total=TotalSums(
            figures.total(report.jobs),
            retries=sum(job.retries for job in report.jobs),
            preemptions=sum(job.preemptions for job in report.jobs),
        ),
        labels=[LabelSums(each.name or None, each) for each in figures.by_label(report.jobs)],
        priorities=[PrioritySums(each.name, each) for each in figures.by_priority(report.jobs)],
        ends=figures.ends(report.jobs),
        workers=[WorkerUse(each.worker.id, each.worker.seconds, each) for each in figures.uses(report)],
        jobs=[_job(each) for each in report.jobs],
    )


def _job(job: figures.JobLine) -> ReportedJob:
    costs = figures.total([job])
    return ReportedJob(job, Costs(costs.chip_seconds, costs.wasted, costs.task_seconds))


def show_report(output: Output, report: figures.Report) -> None:
    """Print resource use and waiting times: in total, by label, by outcome, by host and by job."""
    if output.as_json:
        output.document(report_document(report))
    elif output.quiet:
        output.warnings(report.messages)
        for job in report.jobs:
            output.line(job.id)
    else:
        output.show(*_summary(report, output.width))


def _summary(report: figures.Report, width: int) -> list[Text | Table]:
    used = figures.uses(report)
    narrow = width < tables.NARROW
    parts: list[Text | Table] = [tables.text(message, "bold red") for message in report.messages]
    parts += [_header(report), tables.text(""), _figures(report, used)]
    for section in (_labels(report, narrow), _ends(report), _hosts(used), _most_used(report, narrow)):
        parts += [tables.text(""), *section] if section else []
    command = "iris report --html report.html" if report.jobs else "iris launch -- COMMAND"
    return [*parts, tables.text(""), tables.next_line(command)]


def _header(report: figures.Report) -> Text:
    span = f"{tables.clock_time(report.since)} to {tables.clock_time(report.at)} UTC"
    return Text.assemble(
        tables.text(report.name, "bold"),
        "  ",
        span,
        (f" ({tables.duration(report.at - report.since)})", "dim"),
    )


def _figures(report: figures.Report, used: Sequence[figures.Use]) -> Table:
    if not report.jobs:
        return tables.facts([("jobs", "none")])
    everything = figures.total(report.jobs)
    retries = sum(job.retries for job in report.jobs)
    preemptions = sum(job.tries - job.retries for job in report.jobs)
    older = f"; {count(report.older, 'older job')} not shown" if report.older else ""
    wasted_share = share(everything.wasted, everything.chip_seconds)
    share_words = share_of_available(everything.chip_seconds, used)
    chips = everything.chip_seconds or any(use.worker.chips for use in used)
    median, longest = map(tables.duration, (everything.waited_median, everything.waited_most))
    waited = f"per job: median {median}, longest {longest}"
    attempts = count(sum(use.attempts for use in used), "attempt")
    retry_words = f"{retries:,} after failures, {preemptions:,} after lost hosts"
    wasted = f"{hours(everything.wasted)} chip-hours, {wasted_share} of those used" if wasted_share else ""
    return tables.facts(
        [
            ("jobs", f"{_jobs_in_words(report)}{older}"),
            ("chip-hours", f"{hours(everything.chip_seconds)} used, {share_words}" if chips else ""),
            ("wasted", wasted),
            ("task-hours", f"{hours(everything.task_seconds)} in {attempts}"),
            ("waited", waited),
            ("retries", retry_words if retries + preemptions else "none"),
        ]
    )


def _jobs_in_words(report: figures.Report) -> str:
    """Return `3 running`, or `4 (1 failed, 3 running)`."""
    counts = state_counts(report)
    return f"{len(report.jobs):,} ({counts})" if ", " in counts else counts


def _labels(report: figures.Report, narrow: bool) -> list[Text | Table]:
    """Return the table with a row for each label; empty if no job has a label."""
    sums = figures.by_label(report.jobs)
    if not any(each.name for each in sums):
        return []
    headers = ("LABEL", "JOBS", "CHIP-HOURS", "WASTED", "TASK-HOURS", "MEDIAN WAIT", "LONGEST WAIT")
    only = ("LABEL", "JOBS", "CHIP-HOURS", "TASK-HOURS") if narrow else ()
    rows = [
        (
            each.name or "(no label)",
            f"{each.jobs:,}",
            *_hours_cells(each),
            tables.duration(each.waited_median),
            tables.duration(each.waited_most),
        )
        for each in sums[:_MAX_ROWS]
    ]
    return [tables.table(headers, rows, only=only, right=_RIGHT), *_more_words(len(sums), "label")]


def _hours_cells(each: figures.Sum) -> tuple[str, str, str]:
    """Return chip-hours, wasted chip-hours and task-hours."""
    return _hours_text(each.chip_seconds), _hours_text(each.wasted), _hours_text(each.task_seconds)


def _hours_text(seconds: float) -> str:
    """Return hours with two decimals, so that decimal points align in a column; '' for 0."""
    return f"{seconds / 3600:,.2f}" if seconds else ""


def _more_words(number: int, noun: str) -> Iterator[Text]:
    if number > _MAX_ROWS:
        yield tables.text(f"{count(number - _MAX_ROWS, f'more {noun}')} not shown: iris report --json", "dim")


def _ends(report: figures.Report) -> list[Text | Table]:
    rows = [
        (
            reason_words(each.reason),
            f"{each.attempts:,}",
            _hours_text(each.chip_seconds),
            _hours_text(each.task_seconds),
        )
        for each in figures.ends(report.jobs)
    ]
    headers = ("OUTCOME", "ATTEMPTS", "CHIP-HOURS", "TASK-HOURS")
    return [tables.table(headers, rows, right=_RIGHT)] if rows else []


def _hosts(used: Sequence[figures.Use]) -> list[Text | Table]:
    """Return the table of hosts, most lost attempts first. Hosts with equal rows share a row."""
    rows = tables.folded_rows(sorted(used, key=lambda use: -use.lost), lambda use: use.worker.id, _host_cells)
    each = " EACH" if len(rows) < len(used) else ""
    headers = ("HOST", "SLICE", "TIME IN USE", f"ATTEMPTS{each}", f"LOST ATTEMPTS{each}")
    parts: list[Text | Table] = [tables.table(headers, rows[:_MAX_ROWS], right=_RIGHT)] if rows else []
    return [*parts, *_more_words(len(rows), "host")]


def _host_cells(use: figures.Use) -> tables.Row:
    busy = share(use.busy_seconds, use.worker.seconds)
    return use.worker.slice or "", busy, f"{use.attempts:,}" if use.attempts else "", str(use.lost or "")


def _most_used(report: figures.Report, narrow: bool) -> list[Text | Table]:
    """Return the table of the jobs with the most chip-hours. If equal, the job with more task-hours is first."""
    costs = [(job, figures.total([job])) for job in report.jobs]
    costs.sort(key=lambda pair: (-pair[1].chip_seconds, -pair[1].task_seconds))
    headers = ("JOB", "STATE", "CHIP-HOURS", "WASTED", "TASK-HOURS", "WAITED", "RAN", "RETRIES", "WHY")
    only = ("JOB", "STATE", "CHIP-HOURS", "TASK-HOURS") if narrow else ()
    rows = [_job_cells(job, sums) for job, sums in costs[:_MAX_ROWS]]
    parts: list[Text | Table] = [tables.table(headers, rows, only=only, right=_RIGHT)] if rows else []
    return [*parts, *_more_words(len(costs), "job")]


def _job_cells(job: figures.JobLine, sums: figures.Sum) -> tables.Row:
    why = "; ".join(filter(None, (job.why, tables.resubmission_words(job.again, job.tried_again))))
    times = tables.duration(job.waited), tables.duration(job.ran)
    return job.id, word_of(job.display), *_hours_cells(sums), *times, str(job.tries or ""), why


def hours(seconds: float) -> str:
    """Return hours for a time in seconds, rounded: `1,204`, `12.3`, `0.25`."""
    number = seconds / 3600
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:,.1f}" if number >= 1 or not number else f"{number:.2g}"


def share(part: float, whole: float) -> str:
    """Return a percentage: `42 %`; '' if `whole` is 0."""
    return f"{100 * part / whole:.0f} %" if whole else ""


def share_of_available(chip_seconds: float, used: Iterable[figures.Use]) -> str:
    """Return the used share of the available chip-hours. All chips are available while their worker is configured."""
    available = sum(use.worker.chips * use.worker.seconds for use in used)
    return f"{share(chip_seconds, available)} of {hours(available)} available" if available else "no chips"


def state_counts(report: figures.Report) -> str:
    """Return the number of jobs per state: `1 failed, 2 running`."""
    states = [word_of(job.display).lower() for job in report.jobs]
    return ", ".join(f"{states.count(each):,} {each}" for each in sorted(set(states)))


class WrittenDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris report --html`. `size`: bytes. `older`: number of older jobs that are not listed."""

    file: Path
    size: int
    jobs: int
    older: int
    workers: int
    messages: Sequence[str]
    log_damage: Damage | None


def show_written(output: Output, report: figures.Report, path: Path, size: int) -> None:
    output.warnings(report.messages)
    if output.as_json:
        output.document(
            WrittenDocument(
                file=path,
                size=size,
                jobs=len(report.jobs),
                older=report.older,
                workers=len(report.workers),
                messages=report.messages,
                log_damage=report.log_damage,
            )
        )
    else:
        jobs, workers = count(len(report.jobs), "job"), count(len(report.workers), "worker")
        output.done(
            f"wrote {path}: {jobs} on {workers} since {tables.clock_time(report.since)} UTC, {format_memory(size)}"
        )
