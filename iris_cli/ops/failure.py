"""What brought a job down: who failed first and how, its last words, the others', and a known cause. All from here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from iris_cli.core.cluster import Cluster
from iris_cli.core.dataclass import dataclass
from iris_cli.core.ids import AttemptId, TaskId, WorkerId
from iris_cli.core.job import Job
from iris_cli.core.outcome import PROGRAM_FAILURES, End, EndReason
from iris_cli.core.patterns import pattern
from iris_cli.core.task import Attempt, Task, TaskState
from iris_cli.errors import NotWritableError
from iris_cli.ops.causes import end_words, exit_words, job_cause, who_failed
from iris_cli.ops.task_rows import culprit_of
from iris_cli.ops.view import View

if TYPE_CHECKING:
    from iris_cli.core.known_causes import KnownCause
    from iris_cli.journal.state_dir import StateDir

LOG_LINES = 20
"""How many of the last lines of its log a failure shows."""

_FROM_EACH_STREAM = 32 << 10  # bytes of what was pulled
_LONGEST_LINE = 300
_NUMBER = pattern(r"0x[0-9a-fA-F]+|[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """Other tasks that ended in the same way, with the same line but for numbers; `line` is that of the first.

    It is '' where nothing is known. `same`: the one that failed first ended with it, too.
    """

    tasks: tuple[TaskId, ...]
    how: str
    failed: bool
    line: str
    same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A cause that others have met before, the line of which task gave it away, what helps, and where that is told."""

    name: str
    cause: str
    fix: str
    source: str
    task: TaskId
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCard:
    """What failed first: the task, where it ran, why it ended, the last lines that it wrote; what the others did.

    `next` is the command that most probably tells more.
    """

    headline: str
    task: TaskId
    attempt: AttemptId | None
    worker: WorkerId | None
    cause: str
    reason: EndReason
    exit_code: int | None
    exit: str
    log_lines: tuple[str, ...]
    others: tuple[Company, ...]
    known: Explained | None
    next: str


def failure_card(view: View, job: Job) -> FailureCard | None:
    """What brought a failed job down; None for a job that has not failed."""
    culprit = _failed_first(view.cluster, job)
    if culprit is None or culprit.end is None:
        return None
    attempt, end = culprit.current, _end(culprit)
    said = _said(view.state, culprit)
    known, next_command = _explained(view.cluster, job, culprit, said)
    return FailureCard(
        headline=who_failed(job, culprit),
        task=culprit.id,
        attempt=culprit.current_id if attempt is not None else None,
        worker=attempt.worker if attempt is not None else None,
        cause=end_words(culprit.end),
        reason=end.reason,
        exit_code=end.exit_code,
        exit=exit_words(end.exit_code),
        log_lines=tuple(said.rstrip().split("\n")[-LOG_LINES:]) if said.strip() else (),
        others=tuple(_others(view.cluster, job, culprit, _last_line(said))),
        known=known,
        next=next_command,
    )


def cause_words(cluster: Cluster, job: Job) -> str:
    """Why a job ended, in a few words: who is to blame, what happened there, and what is behind it if it said so."""
    words = job_cause(job, culprit_of(cluster, job))
    culprit = _failed_first(cluster, job)
    if culprit is None:
        return words
    known, _ = _explained(cluster, job, culprit, _end(culprit).log_tail)
    if known is None or not known.line:
        return words
    return f"{words}: {known.cause}" if known.task == culprit.id else f"{words}; {known.task}: {known.cause}"


def _failed_first(cluster: Cluster, job: Job) -> Task | None:
    culprit = culprit_of(cluster, job)
    if culprit is None or culprit.state not in (TaskState.FAILED, TaskState.WORKER_FAILED):
        return None
    return culprit if culprit.end is not None else None


def _end(task: Task) -> End:
    """How its last attempt ended, with its last words; the end of the task where there was none."""
    attempt = task.current
    end = attempt.end if attempt is not None and attempt.end is not None else task.end
    assert end is not None
    return end


def _said(state: StateDir | None, task: Task) -> str:
    """The last that a task has written, `err` behind `out`: what was pulled if that is all, or what the log keeps."""
    attempt = task.current
    if state is not None and attempt is not None and attempt.ended_at is not None:
        with suppress(NotWritableError):  # that it can't be read is `iris doctor`'s to say
            if pulled := _pulled(state, task.current_id, attempt.ended_at):
                return pulled
    return _end(task).log_tail


def _pulled(state: StateDir, attempt: AttemptId, ended_at: float) -> str:
    logs = state.task_logs
    times = [at for name in ("out", "err") if (at := logs.written_at(attempt, name)) is not None]
    if not times or max(times) < ended_at or logs.cut_off(attempt):
        return ""
    ends = []
    for name in ("out", "err"):
        size = logs.size(attempt, name)
        ends.append(logs.read(attempt, name, max(0, size - _FROM_EACH_STREAM), _FROM_EACH_STREAM))
    return b"".join(ends).decode("utf-8", "replace")


def _explained(cluster: Cluster, job: Job, culprit: Task, said: str) -> tuple[Explained | None, str]:
    """What is known of the cause, and the command that tells more.

    Who only says that another rank failed may have been first to say so: then the cause is with another one.
    """
    from iris_cli.core.known_causes import known_cause

    task, known = culprit, known_cause(_end(culprit), said)
    if known is not None and known.echo:
        for other in _company(cluster, job, culprit):
            found = known_cause(_end(other), _end(other).log_tail) if other.end is not None else None
            if found is not None and found.line and not found.echo:
                task, known = other, found
                break
    if known is None:
        return None, f"iris logs {culprit.id}"
    explained = Explained(
        name=known.name, cause=known.cause, fix=known.fix, source=known.source, task=task.id, line=known.line
    )
    return explained, _command(known, task) or f"iris logs {task.id}"


def _command(known: KnownCause, task: Task) -> str:
    """The command of a rule, about that task; '' where there is none, or it is about a worker and there was none."""
    worker = task.current.worker if task.current is not None else None
    if "{worker}" in known.next and worker is None:
        return ""
    places = {"{job}": str(task.job), "{task}": str(task.id), "{worker}": str(worker)}
    return re.sub(r"\{(job|task|worker)\}", lambda match: places[match[0]], known.next)


def _company(cluster: Cluster, job: Job, culprit: Task) -> Iterator[Task]:
    """The other tasks that were in it: of a gang all that were placed, else those that failed themselves."""
    for task in cluster.tasks_of(job.id):
        if task.id != culprit.id and task.current is not None and (job.is_gang or _has_failed(task.current)):
            yield task


def _has_failed(attempt: Attempt) -> bool:
    return attempt.end is not None and attempt.end.reason in (*PROGRAM_FAILURES, EndReason.TIMEOUT)


def _others(cluster: Cluster, job: Job, culprit: Task, last: str) -> list[Company]:
    """What the others did, alike together: those that failed too first, then the largest groups."""
    alike: dict[tuple[str, str], list[Task]] = {}
    lines: dict[TaskId, str] = {}
    for task in _company(cluster, job, culprit):
        assert task.current is not None
        lines[task.id] = _last_line(task.current.end.log_tail) if task.current.end is not None else ""
        alike.setdefault((_how(task.current), _shape(lines[task.id])), []).append(task)
    groups = [
        Company(
            tasks=tuple(task.id for task in tasks),
            how=how,
            failed=tasks[0].current is not None and _has_failed(tasks[0].current),
            line=lines[tasks[0].id],
            same=bool(shape) and shape == _shape(last),
        )
        for (how, shape), tasks in alike.items()
    ]
    return sorted(groups, key=lambda group: (not group.failed, -len(group.tasks)))


def _how(attempt: Attempt) -> str:
    if attempt.end is None:
        return "being stopped" if attempt.stop is not None else "still running"
    if attempt.end.reason is EndReason.OK:
        return "ended well"
    return end_words(attempt.end) if _has_failed(attempt) else "stopped"


def _last_line(said: str) -> str:
    return said.rstrip().rpartition("\n")[2].strip()[:_LONGEST_LINE]


def _shape(line: str) -> str:
    """A line without its numbers: ranks, times and steps differ where nothing else does."""
    return _NUMBER.sub("#", line)
