"""Screens of a cluster or a job, fitted to the terminal: urgent jobs at the top, recent events at the bottom."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct, structs
from rich.cells import cell_len
from rich.text import Text

from iris_cli.core import JobState, count
from iris_cli.core.lifecycle.display import word_of
from iris_cli.core.model.waiting import format_overdue
from iris_cli.ops.session import Session
from iris_cli.ops.views.cycles import Cycles
from iris_cli.ops.views.inventory import SliceRow, WorkerRow
from iris_cli.ops.views.job_status import JobStatus, job_status
from iris_cli.ops.views.live_view import LiveJob, LiveView, TaskGroup, Urgency, live_view
from iris_cli.ops.views.status import ClusterStatus
from iris_cli.render import layout, tables
from iris_cli.render.console import Output
from iris_cli.render.views.job_tables import job_tables
from iris_cli.render.views.status import problem_lines, tasks, where_and_why, worker_counts
from iris_cli.render.watch.recent_events import RecentEvent
from iris_cli.render.workers import is_use_known, status_words

_MIN_LINES_FOR_GAPS = 16  # with fewer lines, a screen has no blank lines and headings
_MIN_LINES_FOR_SLICES = 10  # with fewer lines, a screen has no slices and hosts
_MAX_TASK_GROUPS = 4
_MIN_COLUMNS_FOR_NOTES = 90  # narrower screens omit the note of a state, such as `(1 of 3)`
_COARSE_SECONDS = 600  # longer durations are shown in whole minutes
_GAP = "  "
Row = tuple[Text, ...]
_HEADERS = ("JOB", "STATE", "TASKS", "IN STATE", "WHERE / WHY")
_JOB_STYLES = {Urgency.FAILING: "bold", Urgency.OVERDUE: "bold yellow", Urgency.ENDED: "dim"}


class ScreenInput(Struct, frozen=True, kw_only=True):
    """The changing input of a screen. `now`: seconds since the epoch. `events`: the newest event is the last.

    `trouble`: why no cycle could run; '' if the last cycle ran.
    """

    now: float
    events: Sequence[RecentEvent] = ()
    trouble: str = ""


DrawScreen = Callable[[ScreenInput, int, int], Sequence[Text]]
"""Function that returns the lines of a screen for its input, a number of columns and a number of lines."""


class _Section(Struct, frozen=True):
    """A section of the screen. The screen shows between `min_lines` and `max_lines` of its lines.

    `hidden_words(n)` describes the hidden lines, if the first n lines are shown. None: show the last lines.
    """

    lines: Sequence[Text]
    min_lines: int
    max_lines: int
    hidden_words: Callable[[int], str] | None = None


def draw_cluster(view: LiveView, screen_input: ScreenInput, width: int, height: int) -> list[Text]:
    """Return the lines of a screen: at most `height`, each at most `width` columns wide."""
    head = list(_header_lines(view.status, screen_input))[: max(1, height - 1)]
    has_gaps = height >= _MIN_LINES_FOR_GAPS
    events = [
        Text.assemble((f"{tables.clock_time(each.at)[11:]}{_GAP}", "dim"), layout.clean_line(each.text))
        for each in screen_input.events
    ]
    sections = [
        _jobs(view, screen_input.now, width, height),
        _counted_section(
            _slices(view.status, width), 8 if height >= _MIN_LINES_FOR_SLICES else 0, "slices and hosts"
        ),
        _counted_section(
            [_text(line, "yellow") for line in problem_lines(view.status.workers)], 4, "problems"
        ),
        _Section(events, 4 if has_gaps else 1, 10 if has_gaps else 3),
    ]
    sections = [section for section in sections if section.lines]
    room = height - len(head) - has_gaps * len(sections)
    parts = [part for part in _fit(sections, room) if part]
    lines = head
    for number, part in enumerate(parts, 1):
        if screen_input.events and 1 < number == len(parts):  # keep events at the bottom
            lines += [Text()] * (room - sum(map(len, parts)))
        lines += [*[Text()] * has_gaps, *part]
    return [_truncate(line, width) for line in lines[:height]]


def _counted_section(lines: Sequence[Text], max_lines: int, nouns: str) -> _Section:
    return _Section(
        lines, min(1, max_lines), max_lines, lambda shown: f"{len(lines) - shown} more {nouns}: iris status"
    )


def _fit(sections: Sequence[_Section], room: int) -> list[Sequence[Text]]:
    """Return the shown lines of each section, `room` lines in total.

    First give each section its `min_lines`. Then give the remaining lines to the sections in order, up to `max_lines`.
    """
    numbers = [0] * len(sections)
    for limits in ([each.min_lines for each in sections], [each.max_lines for each in sections]):
        for index, section in enumerate(sections):
            limit = min(len(section.lines), limits[index])
            numbers[index] += max(0, min(limit - numbers[index], room - sum(numbers)))
    return [_visible_lines(section, number) for section, number in zip(sections, numbers, strict=True)]


def _visible_lines(section: _Section, number: int) -> Sequence[Text]:
    """Return `number` lines of the section; the last line describes the hidden lines."""
    lines = section.lines
    if section.hidden_words is None:
        return lines[len(lines) - number :]
    if number < 2 or number >= len(lines):
        return lines[:number]
    return [*lines[: number - 1], _text(section.hidden_words(number - 1), "dim")]


def _header_lines(status: ClusterStatus, screen_input: ScreenInput) -> Iterator[Text]:
    """Yield the cluster's name and workers, what runs cycles, and problems of the log and of cycles."""
    now = screen_input.now
    time = _text(f"{tables.clock_time(now)[11:]} UTC", "dim")
    yield Text(_GAP).join([_text(status.name, "bold"), _text(worker_counts(status)), time])
    yield _cycles_line(status.cycles, now - status.at, now)
    for line in tables.banner(status.messages, status.cycles):
        yield _text(line.content, "bold red")
    if screen_input.trouble:
        yield _text(f"no cycle could be run: {screen_input.trouble}", "bold yellow")


def _cycles_line(cycles: Cycles | None, read_ago: float, now: float) -> Text:
    """Return what runs cycles, and the age of the last cycle. `read_ago`: seconds since `cycles` was read."""
    if cycles is not None and cycles.last is not None:
        cycles = structs.replace(cycles, last=float(max(0, int(cycles.last + read_ago))))
    return tables.cycle_words(cycles, now).__rich__()


# Jobs


def _jobs(view: LiveView, now: float, width: int, height: int) -> _Section:
    older = f"{count(view.status.older, 'older job')} not shown" if view.status.older else ""
    if not view.jobs:
        return _Section([_text(older or "no jobs: iris launch -- COMMAND", "dim")], 1, 1, str)
    rows: list[Row] = (
        [tuple(Text(header, style="dim") for header in _HEADERS)] if height >= _MIN_LINES_FOR_GAPS else []
    )
    first_rows = []  # the first row of each job
    for job in view.jobs[:height]:  # more jobs do not fit
        first_rows.append(len(rows))
        rows += _job_rows(view, job, now, width)
    columns = _shown_columns(width)
    lines = _align([tuple(row[column] for column in columns) for row in rows], width)

    def hidden_words(shown: int) -> str:
        hidden = view.jobs[sum(first_row < shown for first_row in first_rows) :]
        numbers = Counter(word_of(job.row.display).lower() for job in hidden)
        states = ", ".join(f"{number} {state}" for state, number in numbers.items())
        return f"{count(len(hidden), 'more job')}: {states}" if hidden else "…"

    if older and len(view.jobs) <= height:
        lines.append(_text(older, "dim"))
    return _Section(lines, 3, len(lines), hidden_words)


def _shown_columns(width: int) -> Sequence[int]:
    if width < 40:
        return (0, 1)
    if width < 60:
        return (0, 1, 4)
    return (0, 1, 3, 4) if width < 90 else (0, 1, 2, 3, 4)


def _job_rows(view: LiveView, job: LiveJob, now: float, width: int) -> Iterator[Row]:
    row, style = job.row, _JOB_STYLES.get(job.urgency, "")
    display = row.display if width >= _MIN_COLUMNS_FOR_NOTES else word_of(row.display)
    overdue = ""
    if job.overdue_since is not None:
        overdue = format_overdue(max(0.0, now - job.overdue_since), view.gang_reserve_after)
    yield (
        _text(row.id, style),
        _text(display, tables.style_of(display)),
        _text(tasks(row)),
        _text(_duration_words(job, now), "dim"),
        _text(where_and_why(row, overdue), style),
    )
    for group in job.task_groups[:_MAX_TASK_GROUPS]:
        yield _group_row(group, now)
    if len(job.task_groups) > _MAX_TASK_GROUPS:
        rest = job.task_groups[_MAX_TASK_GROUPS:]
        words = f"{sum(len(group.tasks) for group in rest)} more tasks in {len(rest)} groups"
        yield _text("  …"), Text(), Text(), Text(), _text(words, "dim")


def _group_row(group: TaskGroup, now: float) -> Row:
    names = tables.fold((f"task-{task.index}" for task in group.tasks), 3)
    hosts = tables.fold(group.workers, 3)
    return (
        _text(f"  {names}"),
        _text(word_of(group.state), tables.style_of(group.state)),
        _text(str(len(group.tasks))),
        _text(_time_since(group.changed_at, now), "dim"),
        _text(f"{group.why} ({hosts})" if group.why and hosts else group.why or hosts),
    )


def _duration_words(job: LiveJob, now: float) -> str:
    """Return the time since the job ended, was retried, began to stop, was started or was submitted."""
    row = job.row
    if row.state.terminal:
        return _time_since(row.ended_at, now)
    if row.retry or row.stopping:
        return _time_since(job.changed_at, now)
    return _time_since(row.started_at if row.state is JobState.RUNNING else row.submitted_at, now)


def _time_since(since: float | None, now: float) -> str:
    if since is None:
        return ""
    seconds = max(0, int(now - since))
    return tables.duration(float(seconds - seconds % 60 if seconds >= _COARSE_SECONDS else seconds))


# Slices, hosts and problems


def _slices(status: ClusterStatus, width: int) -> list[Text]:
    rows = [
        (*map(_text, row[:3]), _text(row[3], tables.STYLES.get(row[3], "")), _text(row[4]))
        for row in (
            *tables.folded_rows(status.slices, lambda each: each.name, _slice_cells, per_row=(2,)),
            *tables.folded_rows(
                [each for each in status.workers if each.slice is None],
                lambda each: each.id,
                _host_cells,
                per_row=(2,),
            ),
        )
    ]
    shown = (0, 3, 4) if width < tables.NARROW else (0, 1, 2, 3, 4)
    return _align([tuple(row[column] for column in shown) for row in rows], width)


def _slice_cells(row: SliceRow) -> tuple[str, ...]:
    return (
        row.type,
        f"{row.free}/{len(row.workers)} VMs free",
        status_words(row.status, "VM"),
        tables.fold(row.jobs),
    )


def _host_cells(row: WorkerRow) -> tuple[str, ...]:
    free = f"{row.cpu_free:g}/{row.cpu:g} cores free" if is_use_known(row) else ""
    return row.device, free, status_words(row.status), tables.fold(row.jobs)


# Text


def _text(content: str, style: str = "") -> Text:
    return Text(layout.clean_line(content), style=style, end="")


def _align(rows: Sequence[Row], width: int) -> list[Text]:
    """Return lines with aligned columns. The first column takes at most a third of `width`."""
    if not rows:
        return []
    widths = [max(cell_len(cell.plain) for cell in column) for column in zip(*rows, strict=True)]
    widths[0] = min(widths[0], max(10, width // 3))
    shown = [column for column, column_width in enumerate(widths) if column_width]
    lines = []
    for row in rows:
        cells = []
        for column in shown:
            cell = row[column].copy()
            if column != shown[-1]:
                cell.truncate(widths[column], overflow="ellipsis", pad=True)
            cells.append(cell)
        lines.append(Text(_GAP, end="").join(cells))
    return lines


def _truncate(line: Text, width: int) -> Text:
    line = line.copy()
    line.rstrip()
    line.truncate(max(1, width), overflow="ellipsis")
    line.end = "\n"
    return line


def loading_lines() -> list[Text]:
    """Return the lines to show until the first screen is ready."""
    return [Text("reading the log …", style="dim")]


def cluster_screen(session: Session, *, labels: Sequence[str] = (), states: Sequence[str] = ()) -> DrawScreen:
    """Return the screen of the cluster in its current state, with the jobs that match. Raises UsageError."""
    return partial(draw_cluster, live_view(session, labels=labels, states=states))


def job_screen(output: Output, session: Session, job: str, *, everything: bool = False) -> DrawScreen:
    """Return the screen of a job in its current state. `everything`: a line for each task. Raises NotFoundError."""
    return partial(_draw_job, output, job_status(session, job), everything)


def _draw_job(
    output: Output, status: JobStatus, everything: bool, screen_input: ScreenInput, width: int, height: int
) -> list[Text]:
    """Return the lines of `iris status JOB`, cut off after `height` lines."""
    console = output.console
    options = console.options.update(width=width, height=None)
    lines = [
        Text.assemble(*((segment.text, segment.style or "") for segment in line))
        for part in job_tables(status, width, everything=everything)
        for line in console.render_lines(part, options, pad=False)
    ]
    if screen_input.trouble:
        lines.insert(
            0, Text(f"no cycle could be run: {layout.clean_line(screen_input.trouble)}", style="bold yellow")
        )
    if len(lines) > height:
        lines = [
            *lines[: height - 1],
            Text(f"{len(lines) - height + 1} more lines: iris status {status.job.id}"),
        ]
    for line in lines:
        line.truncate(max(1, width), overflow="ellipsis")
    return lines
