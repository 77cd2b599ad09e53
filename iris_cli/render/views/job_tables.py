"""Tables for one job: its first failure, its facts, its tasks and their earlier attempts."""

import shlex
from collections.abc import Iterable, Iterator

from iris_cli.core import JobState, TaskId, TaskState, count, group_pairs, parse_task_id
from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.messages.requests import EndpointPart
from iris_cli.core.model.task import PROGRAM_FAILURES
from iris_cli.ops.outcomes.causes import other_rank_words
from iris_cli.ops.views.failure import Explained, FailureCard
from iris_cli.ops.views.job_status import JobStatus
from iris_cli.ops.views.peers import PeerGroup
from iris_cli.ops.views.task_rows import AttemptRow, TaskRow
from iris_cli.render import layout, plans, tables
from iris_cli.render.console import Output

WIDE = 120  # columns; narrower tables omit times
MAX_GROUPS = 4  # maximum number of lines for groups of peers, and for failed child jobs


def show_job(output: Output, status: JobStatus, *, everything: bool = False) -> None:
    """Print one job. `everything`: a line for every task and attempt."""
    output.view(
        status,
        status.messages,
        (str(task.id) for task in status.tasks),
        lambda: job_tables(status, output.width, everything=everything),
    )


def job_tables(status: JobStatus, width: int, *, everything: bool) -> list[layout.Renderable]:
    """Return the view of a job for a terminal of `width` columns."""
    parts: list[layout.Renderable] = [*tables.banner(status.messages, status.cycles), _header(status)]
    if status.failure is not None:
        parts += [tables.text(""), *failure_card(status.failure)]
    parts += [tables.text(""), _facts(status), tables.text(""), _tasks(status.tasks, width, everything)]
    earlier = [attempt for task in status.tasks for attempt in task.attempts[:-1]]
    if earlier:
        parts += [tables.text(""), tables.text("earlier attempts", "dim"), _attempts(earlier, everything)]
    return [*parts, tables.text(""), tables.next_line(status.next)]


def _header(status: JobStatus) -> layout.Text:
    job = status.job
    size = ("a gang of " if job.gang else "") + count(job.replicas, "task")
    return layout.Text.assemble(
        tables.text(job.id, "bold"),
        "  ",
        tables.state(job.display),
        "  ",
        size,
        *tables.cycle_parts(status.cycles, status.at),
    )


def _run_time(status: JobStatus) -> str:
    """Return `ran 2h` for an ended job, `running for 2h` if the first attempts are running, else `ran for 2h so far`.

    If the only task of an open job has earlier attempts, the text ends with their number: `in 2 attempts`.
    """
    job, took = status.job, tables.duration(status.job.duration)
    if job.ended_at is not None:
        return f"ran {took}"
    attempts = max((len(task.attempts) for task in status.tasks), default=0)
    if job.display == JobState.RUNNING and attempts < 2:
        return f"running for {took}"
    return f"ran for {took} so far" + (f" in {attempts} attempts" if job.replicas == 1 < attempts else "")


def _facts(status: JobStatus) -> layout.Table:
    job = status.job
    times = f"submitted {tables.duration(job.age)} ago ({tables.clock_time(job.submitted_at)} UTC)"
    if job.duration is not None:
        times += f", {_run_time(status)}"
    if job.ended_at is not None:
        times += f", ended {tables.duration(max(0.0, status.at - job.ended_at))} ago"
    return tables.facts(
        [
            ("stopping on" if job.only_stops else "where", tables.fold(job.workers)),
            _reason(status),
            ("expected start", tables.expected_words(status.expected_start, status.at)),
            ("retry", job.retry.removeprefix("retry").lstrip(" ,")),
            ("output", job.quiet),
            ("when", times),
            ("command", shlex.join(status.command)),
            ("each task", status.needs),
            ("constraints", ", ".join(_constraints(status))),
            ("workspace", plans.workspace_words(status.workspace) if status.workspace is not None else ""),
            ("rounds", str(status.rounds) if status.rounds > 1 else ""),
            ("priority", job.priority if job.priority != "normal" else ""),
            ("labels", ", ".join(f"{key}={value}" for key, value in job.labels.items())),
            ("array indexes", "" if _has_default_indexes(status) else status.array),
            ("after", ", ".join(status.after)),
            ("submitted by", str(status.origin or "")),
            ("resubmission of", job.again or ""),
            ("resubmitted as", tables.fold(job.tried_again)),
            (
                "children",
                "; ".join(f"{tables.fold(jobs)} {word}" for word, jobs in status.child_displays.items()),
            ),
            *(("endpoint", _endpoint(each)) for each in status.endpoints),
        ]
    )


def _reason(status: JobStatus) -> tuple[str, str]:
    """Return a label, and why tasks are pending or the job ended; without reason if the failure card shows it."""
    job, pending = status.job, status.job.tasks.get(TaskState.PENDING, 0)
    if job.workers and job.why and pending and not (job.only_stops or job.state.terminal):
        return "pending", f"{count(pending, 'task')}: {job.why}"
    return "why", ": ".join(filter(None, (job.overdue, job.why))) if status.failure is None else ""


def _has_default_indexes(status: JobStatus) -> bool:
    """Return whether the array indexes are equal to the numbers of the tasks, 0 to N-1."""
    last = len(status.tasks) - 1
    return status.array in (f"0-{last}", "0" if last == 0 else "")


def _constraints(status: JobStatus) -> Iterator[str]:
    """Yield the constraints as typed. The text of an inherited constraint ends with the job that has set it."""
    for each in status.constraints:
        typed = format_constraint(each)
        source = status.inherited.get(typed)
        yield typed if source is None else f"{typed} (from {source})"


def _endpoint(row: EndpointPart) -> str:
    metadata = "".join(f" {key}={value}" for key, value in row.metadata.items())
    return f"{row.name} of task-{parse_task_id(row.task).index} at {row.address}:{row.port}{metadata}"


def _tasks(tasks: tuple[TaskRow, ...], width: int, everything: bool) -> layout.Table:
    """Return a table of tasks. `everything`: a row for each task.

    Otherwise tasks with the same state and reason share a row: only pending tasks, or above FOLD_ABOVE all tasks.
    """
    headers = ("TASK", "STATE", "WORKER", "ATTEMPT", "STARTED (UTC)", "ENDED (UTC)", "RAN", "WHY")
    narrow = width < tables.NARROW
    only = {"TASK", "STATE", "WORKER", "RAN", "WHY"}
    if len(tasks) > tables.FOLD_ABOVE and not everything:
        rows = _folded_tasks(tasks, 2 if narrow else tables.MAX_PARTS)
        return tables.table(headers, rows, only={"TASK", "STATE", "WHY"} if narrow else only)
    pending = [task for task in tasks if task.state is TaskState.PENDING and task.worker is None]
    folded = [] if everything else pending
    rows = [*(_task_cells(task) for task in tasks if task not in folded), *_folded_tasks(folded)]
    if width >= WIDE:
        return tables.table(headers, rows)
    return tables.table(headers, rows, only=only if narrow else {*only, "ATTEMPT"})


def _task_cells(task: TaskRow) -> tables.Row:
    return (
        f"task-{task.id.index}",
        task.display,
        task.worker or "",
        str(len(task.attempts) - 1) if task.attempts else "",
        tables.clock_time(task.started_at),
        tables.clock_time(task.ended_at),
        tables.duration(task.duration),
        _why(task),
    )


def _why(task: TaskRow) -> str:
    """Return the reason for the task's state, without the exit code that the display of the state already shows."""
    code_words = task.display.partition(" ")[2]
    more = task.why.removeprefix(code_words) if code_words else task.why
    return more[2:] if more[:2] in (": ", "; ") else more


def _folded_tasks(tasks: Iterable[TaskRow], max_parts: int = tables.MAX_PARTS) -> list[tables.Row]:
    alike = group_pairs(((task.display, _why(task)), task) for task in tasks)
    return [
        (
            tables.fold((f"task-{task.id.index}" for task in group), max_parts)
            + (f" ({len(group)})" if len(group) > 1 else ""),
            word,
            tables.fold((task.worker for task in group if task.worker), max_parts),
            "",
            "",
            "",
            tables.duration_range([task.duration for task in group if task.duration is not None]),
            why,
        )
        for (word, why), group in alike.items()
    ]


def _attempts(attempts: list[AttemptRow], everything: bool) -> layout.Table:
    """Return a table of attempts. Attempts with the same number and the same cause of their end share a row."""
    alike = group_pairs(((attempt.id.number, attempt.why), attempt) for attempt in attempts)
    lines = list(alike.items()) if everything else list(alike.items())[-tables.FOLD_ABOVE :]
    rows = [
        (
            str(number),
            tables.fold(f"task-{attempt.id.task.index}" for attempt in group),
            tables.fold(attempt.worker for attempt in group),
            tables.duration_range([attempt.duration for attempt in group if attempt.duration is not None]),
            why,
        )
        for (number, why), group in lines
    ]
    return tables.table(("ATTEMPT", "TASK", "WORKER", "RAN", "WHY"), rows)


# The failure card: the first failed task with its last log lines, its peers, and the known cause.


def failure_card(failure: FailureCard) -> list[layout.Renderable]:
    """Return the first failure: cause, worker, last log lines, peers, failed child jobs and the known cause."""
    where = f"{failure.attempt or failure.task}" + (f" on {failure.worker}" if failure.worker else "")
    counts = f"tasks: {failure.counts}" if failure.counts else ""
    card: list[layout.Renderable] = [
        tables.text(_headline(failure), "bold red"),
        tables.text("; ".join(filter(None, (", ".join(filter(None, (where, failure.retries))), counts)))),
    ]
    if failure.setup:
        card.append(tables.text(f"setup: {failure.setup}"))
    if failure.log_lines:
        from rich.padding import Padding

        card.append(Padding(tables.block("\n".join(failure.log_lines), "dim"), (0, 0, 0, 2), expand=False))
    elif failure.reason in PROGRAM_FAILURES:
        card.append(tables.text("  no output", "dim"))
    if failure.facts:
        card.append(
            tables.facts([("proven" if fact.proven else "a guess", fact.text) for fact in failure.facts])
        )
    card += [tables.text(line) for line in (*_peer_lines(failure), *_child_lines(failure))]
    if failure.known is not None:
        card += [tables.text(""), *_known_cause(failure.known, failure)]
    return card


def _headline(failure: FailureCard) -> str:
    known, is_gang = failure.known, bool(failure.counts)
    if is_gang and known is not None and known.task != failure.task:
        return other_rank_words(known.task, known.cause, failure.task, failure.cause)
    if failure.headline == "failed" and not failure.cause.startswith("exit "):
        return failure.cause
    return f"{failure.headline}: {failure.cause}"


def _peer_lines(failure: FailureCard) -> Iterator[str]:
    """Yield a line for each group of peers. Yield nothing if no peer failed and no peer wrote output."""
    if not any(group.line or group.failed for group in failure.others):
        return
    for group in failure.others[:MAX_GROUPS]:
        yield _peer_line(group, failure.task)
    if rest := failure.others[MAX_GROUPS:]:
        yield f"{sum(len(group.tasks) for group in rest)} more tasks ended in {len(rest)} other ways"


def _child_lines(failure: FailureCard) -> Iterator[str]:
    for child in failure.children[:MAX_GROUPS]:
        yield f"child job {child.job} {child.state}: {child.cause}"
    if more := len(failure.children[MAX_GROUPS:]) + failure.more_children:
        yield f"and {count(more, 'more child job')} failed"


def _peer_line(group: PeerGroup, first: TaskId) -> str:
    """Return `task-[0-1,3] stopped; last line of task-0: "step 42"`, or without `of task-0` for a single task."""
    who = tables.fold(f"task-{task.index}" for task in group.tasks)
    how = f"also failed, {group.how}" if group.failed else group.how
    if group.same:
        return f"{who} {how} with the same last line as task-{first.index}"
    if not group.line:
        return f"{who} {how} without output"
    of_task = f" of task-{group.tasks[0].index}" if len(group.tasks) > 1 else ""
    return f'{who} {how}; last line{of_task}: "{group.line}"'


def _known_cause(known: Explained, failure: FailureCard) -> Iterator[layout.Text | layout.Table]:
    who = "" if known.task == failure.task else f" (in the output of task-{known.task.index})"
    yield tables.text(f"known cause{who}: {known.cause}", "bold yellow")
    line = known.line if known.line not in failure.cause else ""
    yield tables.facts([("output line", line), ("fix", known.fix), ("source", known.source)])
