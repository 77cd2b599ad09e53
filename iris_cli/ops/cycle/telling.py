"""The lines that tell why something failed, where they are further up in its output than the event log keeps.

A cycle that has seen an attempt end reads more of it, once, and keeps the few lines that gave a known cause away: who
looks at the failure later asks no worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from iris_cli.core.events.events import AttemptEnded
from iris_cli.core.ids import AttemptId, JobId, WorkerId
from iris_cli.core.messages.observations import Silence
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.task import PROGRAM_FAILURES, End, EndReason, TaskState
from iris_cli.errors import NotWritableError
from iris_cli.journal.files.pulled_logs import MOST_TELLING
from iris_cli.ops.outcomes.causes import KEPT, cause_in
from iris_cli.ops.session import Session

MOST_OF_A_JOB = 4
"""How many attempts of a job are read in a cycle, those that failed first; and for how many rounds, or tasks."""

_MOST = 16  # attempts in a cycle
_READ = {"out": 16 << 10, "err": 48 << 10}  # bytes from the end
_BEFORE, _BEHIND = 2000, 1000  # bytes around the line that gave it away
_PATIENCE = 3.0  # seconds without an answer, after which the cause is done without: starts wait for us


def keep_telling(session: Session, ended: Sequence[AttemptEnded]) -> None:
    """Look for what brought down the attempts that have just ended: once, what fails is not repeated."""
    chosen = _chosen(session.cluster, ended) if any(map(_may_say_more, ended)) else []
    by_worker: dict[WorkerId, list[AttemptEnded]] = {}
    for event in chosen[:_MOST]:
        by_worker.setdefault(session.cluster.attempt(event.attempt_id).worker, []).append(event)
    if not by_worker:
        return
    _ = session.runner  # made once, before any thread asks for it
    act = partial(_read, session, by_worker)
    for _batch in session.fan_out(list(by_worker), act, patience=_PATIENCE):
        pass


def _may_say_more(event: AttemptEnded) -> bool:
    failed = event.end.reason in PROGRAM_FAILURES or event.end.reason is EndReason.TIMEOUT
    return failed and len(event.end.log_tail.encode("utf-8", "replace")) >= KEPT


def _chosen(cluster: Cluster, ended: Sequence[AttemptEnded]) -> list[AttemptEnded]:
    """Those to read: of each job the first that failed, unless the end of one of them has told the cause already."""
    of_job: dict[JobId, list[AttemptEnded]] = {}
    for event in ended:
        attempt = cluster.attempt(event.attempt_id)
        if event.end.reason not in (EndReason.OK, EndReason.SIBLING) and attempt.worker in cluster.workers:
            of_job.setdefault(event.task.job, []).append(event)
    chosen = []
    for job, events in of_job.items():
        told = any(cause_in(event.end.log_tail.encode("utf-8", "replace"), event.end) for event in events)
        if not told and _failed_before(cluster, job, len(events)) < 2 * MOST_OF_A_JOB:
            chosen += sorted(filter(_may_say_more, events), key=lambda event: event.end.at)[:MOST_OF_A_JOB]
    return chosen


def _failed_before(cluster: Cluster, job_id: JobId, now: int) -> int:
    """How often it had failed before `now` tasks did: who fails again and again does so for the same cause."""
    job = cluster.jobs[job_id]
    if job.is_gang:
        return job.failed_rounds
    return sum(task.failures + (task.state is TaskState.FAILED) for task in cluster.tasks_of(job_id)) - now


def _read(
    session: Session, by_worker: Mapping[WorkerId, Sequence[AttemptEnded]], worker_id: WorkerId
) -> None:
    """In a thread of its own: one call to a worker."""
    from iris_cli.remote.log_pieces import LogPiece

    worker, events = session.cluster.workers[worker_id], by_worker[worker_id]
    wanted = [
        LogPiece(token=session.cluster.attempt(event.attempt_id).token, stream=name, offset=-most, limit=most)
        for event in events
        for name, most in _READ.items()
    ]
    answer = session.runner.pieces(session.target(worker), wanted)
    if isinstance(answer, Silence):
        return
    for number, event in enumerate(events):
        out, err = answer[len(_READ) * number : len(_READ) * (number + 1)]
        try:
            _keep(session, event.attempt_id, event.end, out.data + err.data)
        except NotWritableError:
            return  # who can't write its log here has other worries than this


def _keep(session: Session, attempt: AttemptId, end: End, output: bytes) -> None:
    found = cause_in(output, end)
    if found is None:
        return
    line = found.line.strip("…").encode("utf-8", "replace")
    at = max(0, output.find(line))
    lines = output[max(0, at - _BEFORE) : at + len(line) + _BEHIND][:MOST_TELLING]
    if cause_in(lines, end) is not None:
        session.state.task_logs.keep_telling(attempt, lines)
