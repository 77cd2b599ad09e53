"""The peers of the task that failed first: the other ranks of its gang, or the other failed tasks of its job."""

from collections.abc import Iterator

from msgspec import Struct

from iris_cli.core import Cluster, EndReason, Task, group_pairs
from iris_cli.core.ids import TaskId
from iris_cli.core.model.task import PROGRAM_FAILURES, Attempt
from iris_cli.core.text import pattern
from iris_cli.core.work_paths import relative_paths
from iris_cli.ops.outcomes.causes import end_words

_STOPPED = frozenset({EndReason.SIBLING, EndReason.CANCELLED, EndReason.JOB_ENDED})
_LONGEST_LAST_LINE = 300  # characters
_NUMBER = pattern(r"0x[0-9a-fA-F]+|[0-9]+")
_SHELL_MESSAGE = pattern(r"(?:.{0,200}: line [0-9]+: +[0-9]+ )?(?:Terminated|Killed|Hangup)(?: .*)?")


class PeerGroup(Struct, frozen=True, kw_only=True):
    """Tasks that ended in the same way and whose last lines are equal except for numbers.

    `how` says how the tasks ended. `line` is the last line of the group's first task, or ''. `same`: the task that
    failed first has the same last line.
    """

    tasks: tuple[TaskId, ...]
    how: str
    failed: bool
    line: str
    same: bool


def peers(cluster: Cluster, culprit: Task) -> Iterator[Task]:
    """Yield the peers of the culprit: the other placed ranks of a gang, or the other failed tasks of another job."""
    job = cluster.jobs[culprit.job]
    for task in cluster.tasks_of(job.id):
        if task.id != culprit.id and task.current is not None and (job.is_gang or has_failed(task.current)):
            yield task


def has_failed(attempt: Attempt) -> bool:
    """Return True if the attempt failed by itself. Attempts that were stopped or lost with their host did not."""
    return attempt.end is not None and attempt.end.reason in (*PROGRAM_FAILURES, EndReason.TIMEOUT)


def peer_groups(cluster: Cluster, culprit: Task, culprit_line: str) -> list[PeerGroup]:
    """Return the peers grouped by end and last line. Failed groups come first, then large groups."""
    attempts = {task.id: task.attempts[-1] for task in peers(cluster, culprit)}
    by_end = group_pairs(
        ((_end_kind(attempt), _without_numbers(_last_line_of(attempt))), task)
        for task, attempt in attempts.items()
    )
    groups = [
        PeerGroup(
            tasks=tuple(tasks),
            how=how,
            failed=has_failed(attempts[tasks[0]]),
            line=_last_line_of(attempts[tasks[0]]),
            same=bool(line) and line == _without_numbers(culprit_line),
        )
        for (how, line), tasks in by_end.items()
    ]
    return sorted(groups, key=lambda group: (not group.failed, -len(group.tasks)))


def _end_kind(attempt: Attempt) -> str:
    if attempt.end is None:
        return "being stopped" if attempt.stop is not None else "still running"
    if attempt.end.reason is EndReason.OK:
        return "succeeded"
    return "stopped" if attempt.end.reason in _STOPPED else end_words(attempt.end)


def _last_line_of(attempt: Attempt) -> str:
    """Return the last line that an attempt printed, except a shell's message that it was stopped."""
    end = attempt.end
    output = relative_paths(end.log_tail, attempt.token) if end is not None else ""
    line = last_line(output)
    if end is not None and end.reason in _STOPPED and _SHELL_MESSAGE.fullmatch(line):
        return last_line(output.rstrip().rpartition("\n")[0])
    return line


def last_line(output: str) -> str:
    """Return the last nonempty line, cut to _LONGEST_LAST_LINE characters."""
    return output.rstrip().rpartition("\n")[2].strip()[:_LONGEST_LAST_LINE]


def _without_numbers(line: str) -> str:
    """Return a line without numbers (times, steps, addresses), which differ between ranks."""
    return _NUMBER.sub("#", line)
