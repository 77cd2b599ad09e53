"""Screens of a cluster or a job, fitted to the terminal: the most urgent jobs at the top, news at the bottom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from rich.text import Text

from iris_cli.core import JobState, count
from iris_cli.core.lifecycle.display import word_of
from iris_cli.core.model.waiting import overdue_words
from iris_cli.ops.session import Session
from iris_cli.ops.views.cycles import Cycles
from iris_cli.ops.views.inventory import SliceRow, WorkerRow
from iris_cli.ops.views.job_status import JobStatus, job_status
from iris_cli.ops.views.live_view import LiveJob, LiveView, TaskGroup, Urgency, live_view
from iris_cli.ops.views.status import ClusterStatus
from iris_cli.render.console import Output
from iris_cli.render.layout import clean_line
from iris_cli.render.tables import (
    NARROW,
    STYLES,
    banner,
    chain_words,
    clock_time,
    cycle_words,
    duration,
    fold,
    folded,
    style_of,
)
from iris_cli.render.views.job_tables import job_tables
from iris_cli.render.views.status import tasks, where, without_kind
from iris_cli.render.watch.news import News
from iris_cli.render.workers import is_use_known, status_words

_MIN_LINES_FOR_GAPS = 16  # lower screens have no blank lines and headings
_MIN_LINES_FOR_SLICES = 10  # lower screens have no slices and hosts
_MAX_TASK_GROUPS = 4
_MIN_COLUMNS_FOR_NOTES = 90  # narrower screens omit the note of a state, such as `(1 of 3)`
_COARSE_SECONDS = 600  # longer durations are shown in whole minutes
_GAP = "  "


class Moment(Struct, frozen=True, kw_only=True):
    """Input of a picture: the time `now` in seconds since the epoch, and the news (log entries), newest last.

    `trouble`: why no cycle could run, otherwise ''.
    """

    now: float
    news: Sequence[News] = ()
    trouble: str = ""


Picture = Callable[[Moment, int, int], Sequence[Text]]
"""Function that returns the lines of a screen for a moment, a number of columns and a number of lines."""


class _Section(Struct, frozen=True):
    """A section of the screen: `least` to `most` of its lines are shown. `rest(n)` describes all after the first n."""

    lines: Sequence[Text]
    least: int
    most: int
    rest: Callable[[int], str] | None = None  # None: show the last lines


def frame(board: LiveView, moment: Moment, width: int, height: int) -> list[Text]:
    """Return the lines of a screen: at most `height`, each at most `width` columns wide."""
    head = list(_header_lines(board.status, moment))[: max(1, height - 1)]
    has_gaps = height >= _MIN_LINES_FOR_GAPS
    sections = [
        _jobs(board, moment.now, width, height),
        _counted_section(
            _slices(board.status, width), 8 if height >= _MIN_LINES_FOR_SLICES else 0, "slices and hosts"
        ),
        _counted_section(list(_problems(board.status.workers)), 4, "problems"),
        _Section(list(map(_news_line, moment.news)), 4 if has_gaps else 1, 10 if has_gaps else 3),
    ]
    sections = [section for section in sections if section.lines]
    room = height - len(head) - has_gaps * len(sections)
    parts = [part for part in _fit(sections, room) if part]
    lines = head
    for number, part in enumerate(parts, 1):
        if moment.news and 1 < number == len(parts):  # keep news at the bottom
            lines += [Text()] * (room - sum(map(len, parts)))
        lines += [*[Text()] * has_gaps, *part]
    return [_cut(line, width) for line in lines[:height]]


def _counted_section(lines: Sequence[Text], most: int, nouns: str) -> _Section:
    return _Section(
        lines, min(1, most), most, lambda shown: f"{len(lines) - shown} more {nouns}: iris status"
    )


def _fit(sections: Sequence[_Section], room: int) -> list[Sequence[Text]]:
    """Return each section's lines. Each section gets `least` lines; earlier sections then get up to `most` first."""
    lines_of = [0] * len(sections)
    for most in (False, True):
        for place, section in enumerate(sections):
            limit = min(len(section.lines), section.most if most else section.least)
            lines_of[place] += max(0, min(limit - lines_of[place], room - sum(lines_of)))
    return [_first_lines(section, lines) for section, lines in zip(sections, lines_of, strict=True)]


def _first_lines(section: _Section, number: int) -> Sequence[Text]:
    """Return `number` lines of the section; the last line counts the hidden lines."""
    if section.rest is None or number < 2 or number >= len(section.lines):
        return (
            section.lines[len(section.lines) - number :] if section.rest is None else section.lines[:number]
        )
    return [*section.lines[: number - 1], _text(section.rest(number - 1), "dim")]


def _header_lines(status: ClusterStatus, moment: Moment) -> Iterator[Text]:
    """Yield the cluster's name and workers, the age of the data, and problems of the log and of cycles."""
    now = moment.now
    taking = sum(not worker.refuses for worker in status.workers)
    workers = count(len(status.workers), "worker")
    workers += f", {taking} accepting tasks" if taking != len(status.workers) else ""
    parts = [_text(status.name, "bold"), _text(workers), _text(f"{clock_time(now)[11:]} UTC", "dim")]
    yield Text(_GAP).join(parts)
    yield _age(status.cycles, now - status.at, now)
    for line in banner(status.messages, status.cycles):
        yield _text(line.content, "bold red")
    if moment.trouble:
        yield _text(f"no cycle: {moment.trouble}", "bold yellow")


def _age(cycles: Cycles | None, since: float, now: float) -> Text:
    """Return who runs cycles and the age of the last cycle. `since`: seconds since `cycles` was read."""
    if cycles is not None and cycles.last is not None:
        cycles = replace(cycles, last=float(max(0, int(cycles.last + since))))
    return cycle_words(cycles, now).__rich__()


# Jobs

Row = tuple[Text, ...]
_HEADERS = ("JOB", "STATE", "TASKS", "IN STATE", "WHERE / WHY")


def _jobs(board: LiveView, now: float, width: int, height: int) -> _Section:
    older = f"{count(board.status.older, 'older job')} not shown" if board.status.older else ""
    if not board.jobs:
        return _Section([_text(older or "no jobs: iris launch -- COMMAND", "dim")], 1, 1, str)
    rows: list[Row] = (
        [tuple(Text(header, style="dim") for header in _HEADERS)] if height >= _MIN_LINES_FOR_GAPS else []
    )
    begins = []  # the first row of each job
    for job in board.jobs[:height]:  # more jobs do not fit
        begins.append(len(rows))
        rows += _rows_of(board, job, now, width)
    columns = _columns(width)
    lines = _aligned([tuple(row[place] for place in columns) for row in rows], width)

    def rest(shown: int) -> str:
        hidden = board.jobs[sum(begin < shown for begin in begins) :]
        return f"{count(len(hidden), 'more job')}: {_in_words(hidden)}" if hidden else "…"

    if older and len(board.jobs) <= height:
        lines.append(_text(older, "dim"))
    return _Section(lines, 3, len(lines), rest)


def _in_words(jobs: Iterable[LiveJob]) -> str:
    """Return the number of jobs per state: `3 running, 1 pending`."""
    found = Counter(word_of(job.row.display) for job in jobs)
    return ", ".join(f"{number} {state.lower()}" for state, number in found.items())


def _columns(width: int) -> Sequence[int]:
    if width < 40:
        return (0, 1)
    if width < 60:
        return (0, 1, 4)
    return (0, 1, 3, 4) if width < 90 else (0, 1, 2, 3, 4)


def _rows_of(board: LiveView, job: LiveJob, now: float, width: int) -> Iterator[Row]:
    row, style = job.row, _JOB_STYLES.get(job.urgency, "")
    display = row.display if width >= _MIN_COLUMNS_FOR_NOTES else word_of(row.display)
    yield (
        _text(row.id, style),
        _text(display, style_of(display)),
        _text(tasks(row)),
        _text(_duration_words(job, now), "dim"),
        _text(_where_and_why(board, job, now), style),
    )
    for group in job.task_groups[:_MAX_TASK_GROUPS]:
        yield _group_row(group, now)
    if len(job.task_groups) > _MAX_TASK_GROUPS:
        rest = job.task_groups[_MAX_TASK_GROUPS:]
        words = f"{sum(len(group.tasks) for group in rest)} more in {len(rest)} ways"
        yield _text("  …"), Text(), Text(), Text(), _text(words, "dim")


_JOB_STYLES = {Urgency.FAILING: "bold", Urgency.OVERDUE: "bold yellow", Urgency.ENDED: "dim"}


def _group_row(group: TaskGroup, now: float) -> Row:
    names = fold((f"task-{task.index}" for task in group.tasks), 3)
    on = fold(group.workers, 3)
    return (
        _text(f"  {names}"),
        _text(word_of(group.state), style_of(group.state)),
        _text(str(len(group.tasks))),
        _text(_seconds(group.changed_at, now), "dim"),
        _text(f"{group.why} ({on})" if group.why and on else group.why or on),
    )


def _duration_words(job: LiveJob, now: float) -> str:
    """Return the time for which the job has been pending or running, or the time since its end."""
    row = job.row
    if row.state.terminal:
        return _seconds(row.ended_at, now)
    return _seconds(row.started_at if row.state is JobState.RUNNING else row.submitted_at, now)


def _seconds(since: float | None, now: float) -> str:
    if since is None:
        return ""
    seconds = max(0, int(now - since))
    return duration(float(seconds - seconds % 60 if seconds >= _COARSE_SECONDS else seconds))


def _where_and_why(board: LiveView, job: LiveJob, now: float) -> str:
    row, why = job.row, job.row.why
    if job.overdue_since is not None:
        why = f"{overdue_words(max(0.0, now - job.overdue_since), board.gang_reserve_after)}: {why}"
    elif row.workers and why and not row.state.terminal:
        why = f"waiting: {without_kind(why)}"
    chain = chain_words(row.again, row.tried_again)
    return "; ".join(filter(None, (where(row), why, row.quiet, row.retry, chain)))


# Slices, hosts and problems


def _slices(status: ClusterStatus, width: int) -> list[Text]:
    """Return the lines of slices and single hosts; equal rows are folded."""
    rows = [
        (*map(_text, row[:3]), _text(row[3], STYLES.get(row[3], "")), _text(row[4]))
        for row in (
            *folded(status.slices, lambda each: each.name, _slice_cells, each=(2,)),
            *folded(
                [each for each in status.workers if each.slice is None],
                lambda each: each.id,
                _host_cells,
                each=(2,),
            ),
        )
    ]
    shown = (0, 3, 4) if width < NARROW else (0, 1, 2, 3, 4)
    return _aligned([tuple(row[place] for place in shown) for row in rows], width)


def _slice_cells(row: SliceRow) -> tuple[str, ...]:
    return row.type, f"{row.free}/{len(row.workers)} VMs free", status_words(row.status, "VM"), fold(row.jobs)


def _host_cells(row: WorkerRow) -> tuple[str, ...]:
    free = f"{row.cpu_free:g}/{row.cpu:g} cores free" if is_use_known(row) else ""
    return row.device, free, status_words(row.status), fold(row.jobs)


def _problems(workers: Iterable[WorkerRow]) -> Iterator[Text]:
    """Yield a line for each obstacle or warning, with its workers."""
    alike: dict[str, list[str]] = {}
    for worker in workers:
        obstacles = worker.refuses[:1] if worker.status != "stopping" else ()
        for words in dict.fromkeys((*obstacles, *worker.warnings)):
            alike.setdefault(words, []).append(worker.id)
    for words, names in alike.items():
        yield _text(f"{fold(names)}: {words}", "yellow")


def _news_line(each: News) -> Text:
    return Text.assemble((f"{clock_time(each.at)[11:]}{_GAP}", "dim"), clean_line(each.text))


# Text


def _text(content: str, style: str = "") -> Text:
    return Text(clean_line(content), style=style, end="")


def _aligned(rows: Sequence[Row], width: int) -> list[Text]:
    """Return lines with aligned columns. The first column is at most a third of `width`; the last is not padded."""
    if not rows:
        return []
    widths = [max(cell_len(cell.plain) for cell in column) for column in zip(*rows, strict=True)]
    widths[0] = min(widths[0], max(10, width // 3))
    shown = [place for place, wide in enumerate(widths) if wide]
    lines = []
    for row in rows:
        cells = []
        for place in shown:
            cell = row[place].copy()
            if place != shown[-1]:
                cell.truncate(widths[place], overflow="ellipsis", pad=True)
            cells.append(cell)
        lines.append(Text(_GAP, end="").join(cells))
    return lines


def _cut(line: Text, width: int) -> Text:
    line = line.copy()
    line.rstrip()
    line.truncate(max(1, width), overflow="ellipsis")
    line.end = "\n"
    return line


def loading_lines() -> list[Text]:
    """Return the lines to show until the first picture is ready."""
    return [Text("reading the log …", style="dim")]


def of_cluster(session: Session, *, labels: Sequence[str] = (), states: Sequence[str] = ()) -> Picture:
    """Return the picture of the cluster now, with the matching jobs. Raises UsageError."""
    return partial(frame, live_view(session, labels=labels, states=states))


def of_job(output: Output, session: Session, job: str, *, everything: bool = False) -> Picture:
    """Return the picture of one job now. `everything`: a line for each task. Raises NotFoundError."""
    return partial(_job_frame, output, job_status(session, job), everything)


def _job_frame(
    output: Output, status: JobStatus, everything: bool, moment: Moment, width: int, height: int
) -> list[Text]:
    """Return the first lines of `iris status JOB` that fit into `height`."""
    console = output.console
    options = console.options.update(width=width, height=None)
    lines = [
        Text.assemble(*((segment.text, segment.style or "") for segment in line))
        for line in console.render_lines(job_tables(status, width, everything=everything), options, pad=False)
    ]
    if moment.trouble:
        lines.insert(0, Text(f"no cycle: {clean_line(moment.trouble)}", style="bold yellow"))
    if len(lines) > height:
        lines = [
            *lines[: height - 1],
            Text(f"{len(lines) - height + 1} more lines: iris status {status.job.id}"),
        ]
    for line in lines:
        line.truncate(max(1, width), overflow="ellipsis")
    return lines
