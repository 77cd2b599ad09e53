"""Print the cluster: jobs, slices, scale groups, hosts and problems."""

from collections.abc import Iterable, Iterator, Sequence

from iris_cli.core import JobState, TaskState, count
from iris_cli.core.lifecycle.display import DisplayWord, counts_in_words, word_of
from iris_cli.ops.views.inventory import SliceRow, WorkerRow
from iris_cli.ops.views.scaling_rows import CreatedSliceRow, ScaleGroupRow, Scaling
from iris_cli.ops.views.status import ClusterStatus, JobRow, in_display_order
from iris_cli.render import tables
from iris_cli.render.console import Output
from iris_cli.render.layout import Table, Text
from iris_cli.render.workers import cores, memory, status_words

MAX_LISTED = 100  # maximum number of ended jobs listed with --json or --quiet, unless all are requested
MAX_OPEN = 50
MAX_ENDED = 10
MAX_PROBLEMS = 5
MAX_UNMET = 5
_NARROW_FOR_TYPES = 90  # width in columns below which scale groups have no numbers of chips and VMs


def ended_jobs(output: Output) -> int:
    """Return the maximum number of ended jobs to list, unless all are requested."""
    return MAX_LISTED if output.as_json or output.quiet else MAX_ENDED


def open_jobs(output: Output) -> int | None:
    """Return the maximum number of open jobs to list, unless all are requested. None: all."""
    return None if output.as_json or output.quiet else MAX_OPEN


def show_cluster(
    output: Output,
    status: ClusterStatus,
    *,
    everything: bool = False,
    chosen: bool = False,
    states: Sequence[str] = (),
) -> None:
    """Print the cluster. `everything`: print all jobs.

    `chosen`: the user has selected jobs by label or state. `states`: the states that the user has given.
    """
    output.view(
        status,
        status.messages,
        (job.id for job in status.jobs),
        lambda: _parts(status, output.width, everything=everything, chosen=chosen, states=states),
    )


def _parts(
    status: ClusterStatus, width: int, *, everything: bool, chosen: bool, states: Sequence[str]
) -> list[Text | Table]:
    parts: list[Text | Table] = [*tables.banner(status.messages, status.cycles), header(status)]
    for part in (
        [*_jobs(status, width, everything, chosen), *_state_notes(status, states)],
        _slices(status, width),
        _groups(status.scaling, width),
        _hosts(status, width),
    ):
        parts += [tables.text(""), *part] if part else []
    if problems := problem_lines(status.workers):
        parts += [tables.text(""), *(tables.text(line, "yellow") for line in problems[:MAX_PROBLEMS])]
    if len(problems) > MAX_PROBLEMS:
        parts.append(tables.text(f"{len(problems) - MAX_PROBLEMS} more: iris workers", "dim"))
    return parts


def header(status: ClusterStatus) -> Text:
    """Return a header with the cluster's name, its workers, and what runs its cycles."""
    workers = worker_counts(status)
    return Text.assemble(
        tables.text(status.name, "bold"), "  ", workers, *tables.cycle_parts(status.cycles, status.at)
    )


def worker_counts(status: ClusterStatus) -> str:
    """Return `11 workers, 9 accepting tasks`. If all workers accept tasks, return `11 workers`."""
    accepting = sum(not worker.refuses for worker in status.workers)
    workers = count(len(status.workers), "worker")
    return workers if accepting == len(status.workers) else f"{workers}, {accepting} accepting tasks"


def _jobs(status: ClusterStatus, width: int, everything: bool, chosen: bool) -> list[Text | Table]:
    if not status.jobs:
        if chosen:
            return [] if status.messages else [tables.text("no such job", "dim")]
        is_new = not (status.past or status.messages)
        return [tables.text("no jobs: iris launch -- COMMAND" if is_new else "no jobs", "dim")]
    in_order = in_display_order(status.jobs)
    still_open = [job for job in in_order if not job.state.terminal]
    ended = [job for job in in_order if job.state.terminal]
    shown = [*still_open, *ended] if everything else [*still_open[:MAX_OPEN], *ended[:MAX_ENDED]]
    headers = ("JOB", "STATE", "TASKS", "AGE", "RAN", "WHERE / WHY")
    only = ("JOB", "STATE", "AGE", "WHERE / WHY") if width < tables.NARROW else ()
    cells = _short_job_cells if width < tables.NARROW else _job_cells
    parts: list[Text | Table] = [tables.table(headers, map(cells, shown), only=only)]
    hidden = [
        (max(0, len(still_open) - MAX_OPEN) + status.more_open, "more open job"),
        (max(0, len(ended) - MAX_ENDED) + status.older, "older job"),
    ]
    words = [count(number, noun) for number, noun in hidden if number > 0]
    if words and not everything:
        parts.append(tables.text(f"{' and '.join(words)} not shown: iris status --all", "dim"))
    return parts


def _state_notes(status: ClusterStatus, states: Sequence[str]) -> Iterator[Text]:
    """Yield which jobs `--state` finds besides the jobs that are in that state, if the screen lists such jobs."""
    wanted = {each.upper() for each in states}
    if DisplayWord.STOPPED in wanted and any(DisplayWord.STOPPED in job.task_displays for job in status.jobs):
        yield tables.text("--state STOPPED lists jobs with a STOPPED task", "dim")
    if DisplayWord.STOPPING in wanted and any(job.stopping and job.state.terminal for job in status.jobs):
        yield tables.text(
            "--state STOPPING also lists ended jobs with attempts that are still stopping", "dim"
        )


def _job_cells(job: JobRow) -> tables.Row:
    return (
        job.id,
        job.display,
        tasks(job),
        tables.duration(job.age),
        tables.duration(job.duration),
        where_and_why(job, job.overdue),
    )


def _short_job_cells(job: JobRow) -> tables.Row:
    """Return `_job_cells`, but move the note of a pending job's display to the last cell. Only this cell may wrap."""
    name, display, *cells, why = _job_cells(job)
    word, _, note = display.partition(" ")
    done = note.strip("()") if word == JobState.PENDING else ""
    return name, word, *cells, "; ".join(filter(None, (done, why)))


def tasks(job: JobRow) -> str:
    """Return the number of tasks: `4`, or `3 running, 1 pending` if the tasks do not all have the job's state."""
    uniform = list(job.task_displays) == [word_of(job.display)]
    return str(job.replicas) if uniform else counts_in_words(job.task_displays)


def where_and_why(job: JobRow, overdue: str) -> str:
    """Return the job's workers, why tasks are pending or why the job ended, its retry and its resubmissions."""
    where = f"{'stopping on ' if job.only_stops else ''}{tables.fold(job.workers)}" if job.workers else ""
    pending = job.tasks.get(TaskState.PENDING, 0)
    if job.only_stops and pending and not job.state.terminal:
        why = ""  # the pending tasks wait for the stops
    elif job.workers and job.why and pending:
        why = f"{pending} pending: {job.why}"
    else:
        why = ": ".join(filter(None, (overdue, job.why)))
    resubmissions = tables.resubmission_words(job.again, job.tried_again)
    return "; ".join(filter(None, (where, why, job.quiet, job.retry, resubmissions)))


def _slices(status: ClusterStatus, width: int) -> list[Text | Table]:
    cells = _short_slice_cells if width < tables.NARROW else _slice_cells
    rows = tables.folded_rows(status.slices, lambda each: each.name, cells, per_row=(2,))
    return [tables.table(("SLICE", "TYPE", "VMS FREE", "STATUS", "JOBS"), rows)] if rows else []


def _slice_cells(row: SliceRow) -> tables.Row:
    return row.type, f"{row.free}/{len(row.workers)}", status_words(row.status, "VM"), tables.fold(row.jobs)


def _short_slice_cells(row: SliceRow) -> tables.Row:
    """Return `_slice_cells` without numbers of chips and VMs, to leave room for the jobs."""
    return row.type.partition(" (")[0], *_slice_cells(row)[1:]


def _hosts(status: ClusterStatus, width: int) -> list[Text | Table]:
    if not status.workers:
        if status.past or status.scaling.groups:
            return []
        return [tables.text("no workers yet: iris doctor checks the hosts in cluster.yaml", "dim")]
    hosts = [worker for worker in status.workers if worker.slice is None]
    rows = tables.folded_rows(hosts, lambda each: each.id, _host_cells, per_row=(2, 3))
    only = ("HOST", "CORES FREE", "STATUS", "JOBS") if width < tables.NARROW else ()
    headers = ("HOST", "DEVICE", "CORES FREE", "MEMORY FREE", "STATUS", "JOBS")
    return [tables.table(headers, rows, only=only)] if rows else []


def _host_cells(row: WorkerRow) -> tables.Row:
    return row.device, cores(row), memory(row), status_words(row.status), tables.fold(row.jobs)


def problem_lines(workers: Iterable[WorkerRow]) -> list[str]:
    """Return a line for each warning, and for each reason why workers accept no tasks, except a stop of attempts."""
    problems: list[tuple[str, str]] = []
    for worker in workers:
        reasons = worker.refuses[:1] if worker.status != "stopping" else ()
        problems += [(worker.id, words) for words in dict.fromkeys((*reasons, *worker.warnings))]
    return [f"{tables.fold(names)}: {words}" for names, words in tables.group_by_text(problems)]


def _groups(scaling: Scaling, width: int) -> list[Text | Table]:
    """Return the scale groups, the state of their slices, and the unmet demand."""
    if not scaling.groups:
        return []
    headers = ("SCALE GROUP", "TYPE", "WHERE", "SLICES", "TO ADD", "NOW")
    only = ("SCALE GROUP", "SLICES", "TO ADD", "NOW") if width < tables.NARROW else ()
    rows = [_group_cells(each, short=width < _NARROW_FOR_TYPES) for each in scaling.groups]
    parts: list[Text | Table] = [tables.table(headers, rows, only=only)]
    parts += [
        tables.text(f"scale group {each.name} is backing off: {each.backing_off}", "yellow")
        for each in scaling.groups
        if each.backing_off
    ]
    parts += [tables.text(line, "yellow") for each in scaling.groups for line in each.by_hand]
    parts += [
        tables.text(f"no scale group serves {each.id}: {each.text}", "yellow")
        for each in scaling.unmet[:MAX_UNMET]
    ]
    if len(scaling.unmet) > MAX_UNMET:
        parts.append(tables.text(f"{len(scaling.unmet) - MAX_UNMET} more: iris autoscale --dry-run", "dim"))
    return parts


def _group_cells(row: ScaleGroupRow, *, short: bool) -> tables.Row:
    """Return the cells of a scale group. `short`: without the numbers of chips and VMs of its slices."""
    kind = row.type.partition(" (")[0] if short else row.type
    where = f"{row.region}{', preemptible' if row.preemptible else ''}".removeprefix(", ")
    minimum = f"min {row.min_slices}, " if row.min_slices else ""
    slices = f"{len(row.slices)} ({minimum}max {row.max_slices})"
    return row.name, kind, where, slices, str(row.wanted), "; ".join(map(_slice_state, row.slices))


def _slice_state(row: CreatedSliceRow) -> str:
    reason = f" ({row.reason})" if row.reason else ""
    return f"{row.name} {row.state} for {tables.duration(row.age)}{reason}"
