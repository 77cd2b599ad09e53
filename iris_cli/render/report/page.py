"""The report as one HTML page: tables, and a chart drawn by a script from embedded data."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from html import escape
from importlib import resources
from itertools import islice
from typing import Any

from msgspec import Struct

from iris_cli import __version__
from iris_cli.core.lifecycle.display import word_of
from iris_cli.core.model.task import PROGRAM_FAILURES, EndReason
from iris_cli.core.units import count
from iris_cli.ops.outcomes.causes import reason_words
from iris_cli.ops.views import report as figures
from iris_cli.render.layout import clean_line
from iris_cli.render.report.summary import hours, share, share_of_available, state_counts
from iris_cli.render.tables import clock_time, duration, fold, resubmission_words

_MAX_ROWS = 100  # maximum number of labels, and of workers, in a table
_HEADERS = (
    *("Job", "State", "Why", "Submitted (UTC)", "Waited", "Ran", "Tasks", "Retries", "Lost hosts"),
    *("Chip-hours", "Wasted", "Task-hours", "Labels"),
)

_MAX_JOBS_WITH_LINES = 500
"""Maximum number of failed jobs with last log lines. It limits the size of the page. The newest jobs come first."""

_KINDS = {  # style classes of jobs; other jobs are `stopped`
    "SUCCEEDED": "ok",
    "RUNNING": "running",
    "FAILED": "failed",
    "UNSCHEDULABLE": "failed",
    "PENDING": "pending",
    "RETRYING": "pending",
}
_NUMERIC = ' class="n"'
_REASONS: tuple[EndReason | None, ...] = (None, *EndReason)
_LONG_REPORT = 36_000.0  # seconds; the unit of time in the chart is 1 s for a longer report, otherwise 0.01 s


def page(report: figures.Report) -> str:
    """Return the page as HTML without external references. Its security policy allows only the page's own script."""
    style, script = _asset("report.css"), _asset("report.js")
    used = figures.uses(report)
    policy = f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}"
    data = script_json(chart(report, used))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="iris {__version__}">
<link rel="icon" href="data:,">
<title>{escape_text(report.name)}: report of {clock_time(report.at)[:10]}</title>
<style>{style}</style>
</head>
<body>
{"".join(_sections(report, used))}
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return (resources.files("iris_cli") / "render" / "report" / name).read_text("utf-8")


def _hash(text: str) -> str:
    """Return the source expression of the content security policy that allows this text."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _sections(report: figures.Report, used: list[figures.Use]) -> Iterator[str]:
    yield _header(report)
    yield _tiles(report, used)
    yield _jobs(report)
    yield _CHART
    yield '<div class="pair">'
    yield _section("By label", _sums("Label", figures.by_label(report.jobs), "(no label)"))
    yield _section("By priority", _sums("Priority", figures.by_priority(report.jobs)))
    yield _section("How attempts ended", _ends(report))
    yield _section("Workers that lost work", _workers_with_losses(used))
    yield "</div>"
    yield _FOOTER


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape_text(title)}</h2>{content}</section>\n" if content else ""


def _header(report: figures.Report) -> str:
    span = f'{_time(report.since)} to {_time(report.at)} <span class="zone">UTC</span>'
    warnings = list(report.messages)
    if report.older:
        warnings.append(f"{count(report.older, 'older job')} not shown")
    warnings_html = "".join(f'<p class="warning">{escape_text(each)}</p>' for each in warnings)
    return f"<header><h1>{escape_text(report.name)}</h1><p>{span}, from the event log</p>{warnings_html}</header>\n"


def _time(at: float) -> str:
    """Return a time element in UTC; the page's script converts it to the reader's zone."""
    return f'<time data-at="{at:.0f}">{clock_time(at)}</time>'


def _tiles(report: figures.Report, used: list[figures.Use]) -> str:
    everything = figures.total(report.jobs)
    wasted_share = share(everything.wasted, everything.chip_seconds)
    tiles = [
        ("jobs", f"{len(report.jobs):,}", state_counts(report)),
        ("chip-hours", hours(everything.chip_seconds), share_of_available(everything.chip_seconds, used)),
        (
            "wasted",
            hours(everything.wasted),
            f"chip-hours, {wasted_share} of those used" if wasted_share else "",
        ),
        ("task-hours", hours(everything.task_seconds), count(sum(use.attempts for use in used), "attempt")),
        ("median wait", duration(everything.waited_median), f"longest {duration(everything.waited_most)}"),
        (
            "retries",
            f"{sum(job.retries for job in report.jobs):,}",
            f"after failures; {sum(job.tries - job.retries for job in report.jobs):,} after lost hosts",
        ),
    ]
    shown = "".join(
        f"<div><dt>{escape_text(name)}</dt><dd>{escape_text(figure)}</dd><dd>{escape_text(words)}</dd></div>"
        for name, figure, words in tiles
    )
    return f'<dl class="tiles">{shown}</dl>\n'


def _hours_cell(seconds: float) -> Cell:
    return Cell(hours(seconds) if seconds else "", seconds)


def _duration_cell(seconds: float | None) -> Cell:
    return Cell(duration(seconds), -1.0 if seconds is None else seconds)


def _number_cell(number: int) -> Cell:
    return Cell(f"{number:,}" if number else "", number)


def _sums(what: str, sums: list[figures.Sum], unnamed: str = "") -> str:
    if not sums:
        return ""
    headers = (what, "Jobs", "Chip-hours", "Wasted", "Task-hours", "Median wait", "Longest wait")
    rows = [
        (
            Cell(each.name or unnamed),
            _number_cell(each.jobs),
            _hours_cell(each.chip_seconds),
            _hours_cell(each.wasted),
            _hours_cell(each.task_seconds),
            _duration_cell(each.waited_median),
            _duration_cell(each.waited_most),
        )
        for each in sums[:_MAX_ROWS]
    ]
    return table(headers, rows) + _more_words(len(sums))


def _more_words(number: int) -> str:
    return f"<p>and {number - _MAX_ROWS:,} more</p>" if number > _MAX_ROWS else ""


def _ends(report: figures.Report) -> str:
    rows = [
        (
            Cell(reason_words(each.reason), kind=f"mark {style_class(each.reason)}"),
            _number_cell(each.attempts),
            _hours_cell(each.chip_seconds),
            _hours_cell(each.task_seconds),
        )
        for each in figures.ends(report.jobs)
    ]
    return table(("End", "Attempts", "Chip-hours", "Task-hours"), rows) if rows else ""


def _workers_with_losses(used: list[figures.Use]) -> str:
    """Return the table of workers that lost attempts. Workers with equal values share a row."""
    with_losses = sorted((use for use in used if use.lost), key=lambda use: -use.lost)
    alike: dict[tuple[Cell, ...], list[str]] = {}
    for use in with_losses:
        busy = use.busy_seconds / (use.worker.seconds or 1.0)
        cells = (
            Cell(use.worker.slice or ""),
            _number_cell(use.lost),
            _number_cell(use.attempts),
            Cell(f"{100 * busy:.0f} %", round(busy, 2)),
        )
        alike.setdefault(cells, []).append(use.worker.id)
    rows = [(Cell(fold(names)), *cells) for cells, names in alike.items()]
    headers = ("Worker", "Slice", "Lost", "Attempts", "In use")
    return table(headers, rows[:_MAX_ROWS]) + _more_words(len(rows)) if rows else ""


def _jobs(report: figures.Report) -> str:
    if not report.jobs:
        return _section("Jobs", "<p>No jobs yet.</p>")
    failed = (job.id for job in reversed(report.jobs) if job.last_lines)
    with_lines = set(islice(failed, _MAX_JOBS_WITH_LINES))
    rows = [_job(job, job.last_lines if job.id in with_lines else ()) for job in reversed(report.jobs)]
    return _section("Jobs", _FILTER + table(_HEADERS, rows, name="jobs"))


def _job(job: figures.JobLine, last_lines: tuple[str, ...]) -> tuple[Cell, ...]:
    sums = figures.total([job])
    return (
        Cell(job.id, kind="job"),
        Cell(job.display.lower(), kind=f"mark {_KINDS.get(word_of(job.display), 'stopped')}"),
        Cell(
            "; ".join(filter(None, (job.why, resubmission_words(job.again, job.tried_again)))),
            kind="why",
            lines=last_lines,
        ),
        Cell(clock_time(job.submitted_at), job.submitted_at, kind="at"),
        _duration_cell(job.waited),
        Cell(duration(job.ran), -1.0 if job.ran is None else job.ran, kind="ran"),
        Cell(f"{job.replicas:,}" + (" gang" if job.gang else ""), job.replicas),
        _number_cell(job.retries),
        _number_cell(job.preemptions),
        _hours_cell(sums.chip_seconds),
        _hours_cell(sums.wasted),
        _hours_cell(sums.task_seconds),
        Cell(" ".join(f"{key}={value}" for key, value in job.labels.items()), kind="labels"),
    )


_FILTER = """<p class="tools"><label>Filter jobs: <input type="search" id="find" size="24"></label>
<span id="found"></span></p>
"""

_CHART = """<section id="chart" hidden>
<h2>Slices and workers over time</h2>
<p class="tools"><span id="spans"></span> <button id="fold" type="button">Expand all</button>
<button id="chosen" type="button" hidden></button> <span id="seen"></span>
<span class="legend"><i class="mark ok">succeeded</i> <i class="mark running">running</i>
<i class="mark failed">failed</i>
<i class="mark lost">lost with its host</i> <i class="mark stopped">stopped</i></span></p>
<div id="rows" tabindex="0" role="img"
aria-label="Which job ran where and when; the table of jobs above has the same in words.">
<canvas id="canvas"></canvas><div id="height"></div></div>
<p class="hint">Pale: placed but not started. Drag to zoom in, double-click to zoom out; click
a slice to see its workers, a job to highlight it. Keys: arrows move, + and − zoom, 0 shows everything.</p>
<div id="tip" hidden></div>
</section>
<noscript><p class="warning">The chart needs JavaScript (included in this page); the tables do not.</p>
</noscript>
"""

_FOOTER = """<footer><p>Chip-hours: TPU chips and requested GPUs, from the placement of an attempt to the proof of its
end. Wasted: chip-hours of attempts that did not succeed. Waited: time from submission to the first start.
A gang's retries and lost hosts are counted once per round. This page has no commands, no environments and no logs,
except the last lines of the task that made a job fail.</p></footer>
"""


class Cell(Struct, frozen=True):
    """One cell of a table. `key`: sort key (default: `text`). `kind`: class in the style sheet.

    `lines`: log lines that appear after a click on the cell.
    """

    text: str
    key: float | None = None
    kind: str = ""
    lines: tuple[str, ...] = ()


def escape_text(text: str) -> str:
    """Return text escaped for content and attributes, with control characters made visible."""
    return escape(clean_line(text))


def table(headers: Sequence[str], rows: Iterable[Sequence[Cell]], *, name: str = "") -> str:
    """Return a table, without columns that have no text. A column with sort keys is numeric."""
    rows = list(rows)
    shown = [column for column in range(len(headers)) if any(row[column].text for row in rows)]
    numbers = {column for column in shown if any(row[column].key is not None for row in rows)}
    head = "".join(
        f'<th scope="col"{_NUMERIC if column in numbers else ""}>{escape_text(headers[column])}</th>'
        for column in shown
    )
    body = "\n".join(f"<tr>{''.join(_cell(row[column]) for column in shown)}</tr>" for row in rows)
    named = f' id="{name}"' if name else ""
    kind = "wide tall" if name else "wide"
    return f'<div class="{kind}"><table{named}><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def script_json(content: Any) -> str:
    """Return JSON for a script element, escaped so that no text can end the element or begin a comment."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    for each in "<>&":
        text = text.replace(each, f"\\u{ord(each):04x}")
    return text


def _cell(cell: Cell) -> str:
    kind = " ".join(filter(None, (cell.kind, "n" if cell.key is not None else "")))
    named = f' class="{kind}"' if kind else ""
    key = f' data-key="{cell.key:.10g}"' if cell.key is not None else ""
    text = escape_text(cell.text)
    if cell.lines:
        lines = "\n".join(map(escape_text, cell.lines))
        text = f"<details><summary>{text}</summary><pre>{lines}</pre></details>"
    return f"<td{named}{key}>{text}</td>"


def style_class(reason: EndReason | None) -> str:
    """Return the CSS class that colours the end of an attempt. None means a live attempt."""
    if reason is None:
        return "running"
    if reason is EndReason.OK:
        return "ok"
    if reason in figures.HOST_REASONS:
        return "lost"
    return "failed" if reason in PROGRAM_FAILURES or reason is EndReason.TIMEOUT else "stopped"


def chart(report: figures.Report, uses: Iterable[figures.Use]) -> dict[str, Any]:
    """Return the chart's data. `unit`: the unit of times in seconds. `jobs`: each job's name and `_attempt_numbers`."""
    unit = 1.0 if report.at - report.since > _LONG_REPORT else 0.01
    return {
        "since": report.since,
        "unit": unit,
        "length": _units(report.at - report.since, unit),
        "reasons": [["" if each is None else reason_words(each), style_class(each)] for each in _REASONS],
        "workers": [_worker_data(report, use, unit) for use in uses],
        "jobs": [
            [clean_line(job.id), list(_attempt_numbers(job.attempts, report.since, unit))]
            for job in report.jobs
        ],
    }


def _worker_data(report: figures.Report, use: figures.Use, unit: float) -> list[Any]:
    """Return a worker's name, slice, type, chips, configured and busy seconds, and the spans in the configuration."""
    worker = use.worker
    return [
        clean_line(worker.id),
        clean_line(worker.slice or ""),
        clean_line(worker.type),
        worker.chips,
        round(worker.seconds, 1),
        round(use.busy_seconds, 1),
        [_units(each - report.since, unit) for span in worker.configured_spans for each in span],
    ]


def _attempt_numbers(attempts: Iterable[figures.AttemptSpan], since: float, unit: float) -> Iterator[int]:
    """Yield seven numbers for each attempt: task, attempt, worker, placement, start, length, reason.

    The placement is relative to the previous placement. The start is relative to the placement; -1 if it never started.
    """
    previous = 0
    for each in attempts:
        placed = _units(each.placed_at - since, unit)
        started = -1 if each.started_at is None else _units(each.started_at - each.placed_at, unit)
        length = _units(each.seconds, unit)
        yield from (each.task, each.attempt, each.worker, placed - previous, started, length)
        yield _REASONS.index(each.reason)
        previous = placed


def _units(seconds: float, unit: float) -> int:
    return round(seconds / unit)
