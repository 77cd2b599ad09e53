"""The failure card of a job: the first failed task, its peers, and a known cause. Reads only files on this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from iris_cli.core import Cluster, EndReason, Job, JobState, Task, TaskState, format_duration
from iris_cli.core.ids import AttemptId, JobId, TaskId, WorkerId, parent_of
from iris_cli.core.lifecycle.display import count_displays, counts_in_words, last_failures, task_displays
from iris_cli.core.lifecycle.resubmission import LAUNCH_AGAIN, resubmit_command
from iris_cli.core.model.task import INFRASTRUCTURE, PROGRAM_FAILURES, End, Fact, FactKind, fact_of
from iris_cli.core.text import pattern
from iris_cli.core.work_paths import relative_paths
from iris_cli.errors import NotWritableError
from iris_cli.ops.outcomes import causes
from iris_cli.ops.outcomes.causes import cause_of, end_words, exit_words, job_cause, who_failed
from iris_cli.ops.views.peers import PeerGroup, last_line, peer_groups, peers
from iris_cli.ops.views.task_rows import culprit_of
from iris_cli.ops.views.view import View

if TYPE_CHECKING:
    from iris_cli.core.known_causes import KnownCause
    from iris_cli.journal.state_dir import StateDir

_UNSET = pattern(
    r": '?([A-Za-z_][A-Za-z0-9_]*)(?:'$|: unbound variable|: parameter [a-z ]*not set)", re.MULTILINE
)
_MAX_CHILDREN = 8  # failed child jobs that the card names
DRAIN = "iris worker drain "
WHOLE_LOG = "iris logs {task} --tail 200"
_PYTHON_ERROR = "Traceback (most recent call last):"
_LONGEST_LINE = 600  # characters; longer lines are shortened in the middle
_FROM_EACH_STREAM = 32 << 10  # bytes read from each pulled stream
_FAILED_STATES = frozenset({JobState.FAILED, JobState.UNSCHEDULABLE})


class Explained(Struct, frozen=True, kw_only=True):
    """A known cause, its fix, and the page about it (`source`). `line` is the output of `task` that shows the cause."""

    name: str
    cause: str
    fix: str
    source: str
    task: TaskId
    line: str


class FailedChild(Struct, frozen=True):
    """A failed child job, and the cause of its failure."""

    job: JobId
    state: JobState
    cause: str


class FailureCard(Struct, frozen=True, kw_only=True):
    """The task that failed first: where it ran, why it ended, its last lines, and the ends of its peers.

    `counts` says how the tasks of a gang ended, such as `1 failed, 3 stopped with it`. `next` is the command to type
    next. `setup` is the set-up command if the set-up failed. `retries` says how many retries were used. `children` are
    the last failed child jobs. `more_children` is the number of further failed child jobs. `facts` are measurements of
    the task's worker. Only a proven fact is known to be related to the failure.
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
    others: tuple[PeerGroup, ...]
    known: Explained | None
    next: str
    counts: str = ""
    setup: str = ""
    retries: str = ""
    children: tuple[FailedChild, ...] = ()
    more_children: int = 0
    facts: tuple[Fact, ...] = ()


def failure_card(view: View, job: Job) -> FailureCard | None:
    """Return the failure card of a job; None if the job has not failed."""
    cluster = view.cluster
    culprit = _failed_culprit(cluster, job)
    if culprit is None or culprit.end is None:
        return None
    attempt, end = culprit.current, _end(culprit)
    output = _output_end(view.state, culprit)
    shown = _relative(culprit, output)
    log_lines = shown.rstrip().split("\n")[-causes.LOG_LINES :] if shown.strip() else []
    known, known_command = _explained(cluster, view.state, culprit, output)
    failed = _failed_children(cluster, job, end)
    children = tuple(
        FailedChild(child.id, cluster.job_state(child.id), cause_words(cluster, child, view.state))
        for child in failed[:_MAX_CHILDREN]
    )
    return FailureCard(
        headline=who_failed(job, culprit, _failures(cluster, job, culprit)),
        task=culprit.id,
        attempt=culprit.current_id if attempt is not None else None,
        worker=attempt.worker if attempt is not None else None,
        cause=_relative(culprit, end_words(culprit.end)),
        reason=end.reason,
        exit_code=end.exit_code,
        exit=exit_words(end),
        log_lines=tuple(map(_shortened, log_lines)),
        others=tuple(peer_groups(cluster, culprit, last_line(shown))),
        known=known,
        next=_next_command(cluster, culprit, output, known_command, failed),
        counts=counts_in_words(count_displays(task_displays(cluster, job.id))) if job.is_gang else "",
        setup=job.setup if end.reason is EndReason.SETUP_FAILED else "",
        retries=_retries(job, end),
        children=children,
        more_children=len(failed) - len(children),
        facts=_facts(end, known),
    )


def drain_command(view: View, job: Job) -> str:
    """Return the command that moves an open job away from a host with broken hardware, or ''."""
    cluster = view.cluster
    for task, number, end in last_failures(job, cluster.tasks_of(job.id)):
        worker = task.attempts[number].worker
        known = cause_of(view.state, AttemptId(task.id, number), end, end.log_tail)
        if known is None or not known.rule.next.startswith(DRAIN) or worker not in cluster.workers:
            continue
        commands = [] if cluster.workers[worker].draining else [known.rule.next.replace("{worker}", worker)]
        if any(attempt.worker == worker for _, attempt in cluster.live_attempts_of(job.id)):
            commands.append(f"iris retry {job.id}")
        return " && ".join(commands)
    return ""


def _facts(end: End, known: Explained | None) -> tuple[Fact, ...]:
    """Return the worker's facts, proven facts first. A full disk is proven if the program also reports a full disk."""
    proven_kind = FactKind.DISK if known is not None and known.name == "disk-full" else None
    facts = [structs.replace(each, proven=each.proven or each.kind is proven_kind) for each in end.facts]
    return tuple(sorted(facts, key=lambda fact: not fact.proven))


def cause_words(cluster: Cluster, job: Job, state: StateDir | None = None) -> str:
    """Return why a job ended: culprit, failure and known cause. `state` may have more output than the event log."""
    trigger = culprit_of(cluster, job)
    words = job_cause(job, trigger, _failures(cluster, job, trigger))
    culprit = _failed_culprit(cluster, job)
    if culprit is None:
        return words
    known, _ = _explained(cluster, state, culprit, _end(culprit).log_tail)
    if known is not None and known.line:
        if known.task != culprit.id:
            if job.is_gang:
                return causes.other_rank_words(known.task, known.cause, culprit.id, end_words(_end(culprit)))
            return f"{words}; task-{known.task.index}: {known.cause}"
        return words if known.line in words else f"{words}: {known.cause}"
    child = next(iter(_failed_children(cluster, job, _end(culprit))), None)
    return words + (f"; child job {child.id}: {cause_words(cluster, child, state)}" if child else "")


def _failures(cluster: Cluster, job: Job, culprit: Task | None) -> int:
    """Return the number of failed tasks; 1 if the job did not fail because of failed tasks."""
    if culprit is None or culprit.state is not TaskState.FAILED:
        return 1
    return sum(task.state is TaskState.FAILED for task in cluster.tasks_of(job.id))


def _failed_children(cluster: Cluster, job: Job, end: End) -> list[Job]:
    """Return the failed child jobs, latest first. The latest failure probably caused the parent's failure.

    `end`: the end of the parent's culprit. Return [] if that task was lost because of its host.
    """
    if end.reason in INFRASTRUCTURE:
        return []
    children = [
        child for child in cluster.children_of(job.id) if cluster.job_state(child.id) in _FAILED_STATES
    ]
    return sorted(children, key=lambda each: each.end.at if each.end else 0.0, reverse=True)


def _shortened(line: str) -> str:
    half = _LONGEST_LINE // 2
    return line if len(line) <= _LONGEST_LINE else f"{line[:half]} … {line[-half:]}"


def _retries(job: Job, end: End) -> str:
    """Return how many retries were used, in words; '' if the job has no retries for an end of this kind."""
    budget = job.max_retries_failure if end.reason in PROGRAM_FAILURES else 0
    if end.reason in INFRASTRUCTURE:
        budget = job.max_retries_preemption
    return f"{budget} of {budget} retries used" if budget else ""


def _next_command(
    cluster: Cluster, culprit: Task, output: str, known_command: str, failed_children: Sequence[Job]
) -> str:
    """Return the command to type next. `known_command`: the command for the known cause, or ''."""
    job = cluster.jobs[culprit.job]
    if job.tried_again:
        return f"iris status {job.tried_again[-1]}"
    if known_command.startswith(DRAIN) and parent_of(job.id) is None and not job.client:
        return f"{known_command} && {resubmit_command(cluster, job)}"
    if known_command or not failed_children:
        return known_command or _investigation(cluster, culprit, output)
    return f"iris status {failed_children[0].id}"


def _investigation(cluster: Cluster, task: Task, output: str) -> str:
    """Return the next command for an unknown cause. It submits the job again, or shows the worker or the log."""
    attempt, end = task.current, _end(task)
    if attempt is None:
        return f"iris history {task.job}"
    if end.reason is EndReason.DISPATCH_FAILED and attempt.worker in cluster.workers:
        return f"iris why {attempt.worker}"
    if end.reason in (*INFRASTRUCTURE, EndReason.DISPATCH_FAILED):
        return f"iris history {attempt.worker}"
    job = cluster.jobs[task.job]
    if end.exit_code == 1 and _PYTHON_ERROR in output and not (parent_of(job.id) or job.is_single_script):
        return f"{resubmit_command(cluster, job)} --workdir ."
    if not causes.all_is_shown(output):
        return _command(cluster, WHOLE_LOG, task)
    if attempt.worker in cluster.workers and attempt.reaped_at is None:
        return f"iris ssh {task.id}"  # the card already shows the whole output
    return f"iris history {task.id}"


def _failed_culprit(cluster: Cluster, job: Job) -> Task | None:
    """Return the failed task that caused the end of the job, or None."""
    culprit = culprit_of(cluster, job)
    failures = (TaskState.FAILED, TaskState.WORKER_FAILED)
    return culprit if culprit is not None and culprit.end is not None and culprit.state in failures else None


def _end(task: Task) -> End:
    """Return the end of the task's last attempt, with its log tail; without attempts, the end of the task."""
    attempt = task.current
    end = attempt.end if attempt is not None and attempt.end is not None else task.end
    assert end is not None
    return end


def _relative(task: Task, output: str) -> str:
    """Return output with paths relative to the attempt's work directory."""
    return relative_paths(output, task.current.token) if task.current is not None else output


def _output_end(state: StateDir | None, task: Task) -> str:
    """Return the last output of a task, from the pulled files if they are complete, otherwise from the event log."""
    kept, streams = _end(task).log_tail, ("out", "err")
    ended_at = task.current.ended_at if task.current is not None else None
    if state is None or ended_at is None:
        return kept
    logs, attempt = state.task_logs, task.current_id
    with suppress(NotWritableError):  # `iris doctor` reports unreadable files
        times = [at for name in streams if (at := logs.written_at(attempt, name)) is not None]
        if times and max(times) >= ended_at and not logs.is_incomplete(attempt):
            starts = {name: max(0, logs.size(attempt, name) - _FROM_EACH_STREAM) for name in streams}
            ends = [logs.read(attempt, name, start, _FROM_EACH_STREAM) for name, start in starts.items()]
            return b"".join(ends).decode("utf-8", "replace") or kept
    return kept


def _explained(
    cluster: Cluster, state: StateDir | None, culprit: Task, output: str
) -> tuple[Explained | None, str]:
    """Return the known cause (or None) and the next command for it (or '').

    If the culprit's error is an echo of another rank's failure, return the cause that a peer's output shows.
    """
    known = _known(state, culprit, output)
    if known is None:
        return None, ""
    origin = _origin(cluster, state, culprit) if known.rule.echo else None
    task, known = origin or (culprit, known)
    rule = known.rule
    explained = Explained(
        name=rule.name,
        cause=rule.cause,
        fix=rule.fix,
        source=rule.source,
        task=task.id,
        line=_relative(task, known.line),
    )
    template = rule.next
    if task is culprit and causes.all_is_shown(output) and (rule.all_shown or template == WHOLE_LOG):
        template = rule.all_shown
    if "{variable}" in template:
        names = _UNSET.findall(output if task is culprit else _end(task).log_tail)
        template = template.replace("{variable}", names[-1]) if names else ""
    return explained, _command(cluster, template, task) or ("" if task is culprit else f"iris logs {task.id}")


def _origin(cluster: Cluster, state: StateDir | None, culprit: Task) -> tuple[Task, KnownCause] | None:
    for peer in peers(cluster, culprit):
        known = _known(state, peer, _end(peer).log_tail) if peer.end is not None else None
        if known is not None and known.line and not known.rule.echo:
            return peer, known
    return None


def _known(state: StateDir | None, task: Task, output: str) -> KnownCause | None:
    attempt, end = task.current_id if task.current is not None else None, _end(task)
    known = cause_of(state, attempt, end, output)
    killed = end.reason is EndReason.SIGNAL and fact_of(end, FactKind.KILLED)
    if known is not None and not known.line and killed:
        return None  # the rule for SIGKILL suspects memory, but the worker found no OOM kill by the kernel
    return known


def _command(cluster: Cluster, template: str, task: Task) -> str:
    """Return a rule's command for the task; '' if its worker is gone, or if the job can't be launched again."""
    job, worker = cluster.jobs[task.job], task.current.worker if task.current is not None else None
    if "{worker}" in template and worker not in cluster.workers:
        return ""
    if template.startswith(LAUNCH_AGAIN):
        if parent_of(job.id) is not None or job.client:
            return ""
        template = template.replace(f"{LAUNCH_AGAIN}{{job}}", resubmit_command(cluster, job))
    longer = format_duration(2 * (job.setup_timeout if "--setup-timeout" in template else job.timeout or 0.0))
    values = {"{job}": task.job, "{task}": task.id, "{worker}": worker, "{longer}": longer}
    return re.sub(r"\{(job|task|worker|longer)\}", lambda match: str(values[match[0]]), template)
