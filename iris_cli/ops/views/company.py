"""What the other tasks did when one failed: in the same place, elsewhere, or failed too."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from iris_cli.core.ids import TaskId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job
from iris_cli.core.model.outcome import PROGRAM_FAILURES, End, EndReason
from iris_cli.core.model.task import Attempt, Task
from iris_cli.core.patterns import pattern
from iris_cli.ops.outcomes.causes import end_words

_STOPPED = frozenset({EndReason.SIBLING, EndReason.CANCELLED, EndReason.JOB_ENDED})
_LONGEST_LINE = 300
_NUMBER = pattern(r"0x[0-9a-fA-F]+|[0-9]+")
_OF_A_SHELL = pattern(r"(?:.{0,200}: line [0-9]+: +[0-9]+ )?(?:Terminated|Killed|Hangup)(?: .*)?")


class Company(Struct, frozen=True, kw_only=True):
    """Other tasks that ended in the same way, with the same last line except for numbers.

    `line` is that of the first of them, '' if unknown. `same`: the task that failed first ended with the same line.
    """

    tasks: tuple[TaskId, ...]
    how: str
    failed: bool
    line: str
    same: bool


def company(cluster: Cluster, job: Job, culprit: Task) -> Iterator[Task]:
    """The other tasks that were in it: of a gang all that were placed, else those that failed themselves."""
    for task in cluster.tasks_of(job.id):
        if task.id != culprit.id and task.current is not None and (job.is_gang or has_failed(task.current)):
            yield task


def has_failed(attempt: Attempt) -> bool:
    """Whether it ended badly by itself: no host took it along, and nobody stopped it."""
    return attempt.end is not None and attempt.end.reason in (*PROGRAM_FAILURES, EndReason.TIMEOUT)


def others(cluster: Cluster, job: Job, culprit: Task, last: str) -> list[Company]:
    """What the others did, alike together: those that failed too first, then the largest groups."""
    alike: dict[tuple[str, str], list[Task]] = {}
    lines: dict[TaskId, str] = {}
    for task in company(cluster, job, culprit):
        assert task.current is not None
        lines[task.id] = _last_words(task.current.end)
        alike.setdefault((_how(task.current), _shape(lines[task.id])), []).append(task)
    groups = [
        Company(
            tasks=tuple(task.id for task in tasks),
            how=how,
            failed=tasks[0].current is not None and has_failed(tasks[0].current),
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
    return "stopped" if attempt.end.reason in _STOPPED else end_words(attempt.end)


def _last_words(end: End | None) -> str:
    """The last line of a task. What a shell says of its own end is where it was stopped, not where it was."""
    said = end.log_tail if end is not None else ""
    line = last_line(said)
    if end is not None and end.reason in _STOPPED and _OF_A_SHELL.fullmatch(line):
        return last_line(said.rstrip().rpartition("\n")[0])
    return line


def last_line(said: str) -> str:
    """The last line that is not empty, cut to a bearable length."""
    return said.rstrip().rpartition("\n")[2].strip()[:_LONGEST_LINE]


def _shape(line: str) -> str:
    """A line without its numbers: ranks, times and steps differ where nothing else does."""
    return _NUMBER.sub("#", line)
