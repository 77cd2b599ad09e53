"""Copy the output of ended attempts to the state directory, and search it for known causes.

An attempt's output is due from the cycle that records the attempt's end until the output is copied. If a stream has
more than `limits.keep_logs` bytes, iris copies only its last 512 KiB.
"""

from collections.abc import Container, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from iris_cli.core import AttemptId, Cluster, JobId, Token, WorkerId, group_pairs
from iris_cli.core.messages.observations import Silence
from iris_cli.core.model.task import PROGRAM_FAILURES, Attempt, End, EndReason, TaskState
from iris_cli.errors import NotWritableError
from iris_cli.journal.files.pulled_logs import MAX_EXCERPT
from iris_cli.ops.outcomes.causes import MAX_LOG_TAIL, cause_in
from iris_cli.ops.secret_values import mask, values_to_mask
from iris_cli.ops.session import Session
from iris_cli.ops.views.cycles import find_kept_attempt, logs_to_copy

if TYPE_CHECKING:
    from iris_cli.remote.output_calls import LogChunk

_MAX_SEARCHED = 4
"""Maximum number of a job's failed attempts whose output is searched per cycle. After twice as many failures,
iris searches no more output of the job."""

_MAX_PER_WORKER = 64  # attempts whose output is copied per cycle
_MAX_PER_CALL = 8  # attempts whose output one call reads, in total at most 8 MiB
_STREAMS = ("out", "err")
_SEARCHED = {"out": 16 << 10, "err": 48 << 10}  # bytes from the end
_BEFORE, _AFTER = 2000, 1000  # bytes kept before and after the line that shows the cause
_PATIENCE = 3.0  # after these seconds without an answer, the next cycle copies the rest
_MAX_AGE = 86_400.0  # seconds since the end of an attempt; older output is not copied

Due = tuple[AttemptId, Attempt]


def copy_logs(session: Session, ended: Mapping[Token, AttemptId]) -> None:
    """Copy the output of attempts that have just ended, and output that is still due from an earlier cycle."""
    if not session.limits.keep_logs:
        return
    if ended:
        session.state.logs_due.add(ended)
    by_worker: dict[WorkerId, list[Due]] = {}
    for attempt_id, attempt in _attempts_due(session):
        attempts = by_worker.setdefault(attempt.worker, [])
        if len(attempts) < _MAX_PER_WORKER:
            attempts.append((attempt_id, attempt))
    if not by_worker:
        return
    _ = session.runner  # creates the runner before the threads use it
    to_search = _attempts_to_search(
        session.cluster, [due for attempts in by_worker.values() for due in attempts]
    )
    act = partial(_copy_output, session, to_search)
    for _batch in session.fan_out(list(by_worker.values()), act, what="copying logs", patience=_PATIENCE):
        pass


def _attempts_due(session: Session) -> list[Due]:
    """Return the attempts whose output is due, earliest end first. Forget attempts that ended more than a day ago."""
    cluster, files = session.cluster, session.state.logs_due
    due = files.all()
    for token, attempt_id in due.items():
        attempt = find_kept_attempt(cluster, attempt_id, token)
        if attempt is None or not 0 <= session.clock.now() - (attempt.ended_at or 0.0) <= _MAX_AGE:
            files.remove(token)
    return sorted(logs_to_copy(cluster, due), key=lambda each: (each[1].ended_at or 0.0, each[0]))


def _copy_output(session: Session, to_search: Container[AttemptId], due: Sequence[Due]) -> None:
    """Copy output of attempts on one worker, a few attempts at a time. Runs in its own thread."""
    for first in range(0, len(due), _MAX_PER_CALL):
        batch = due[first : first + _MAX_PER_CALL]
        listed_at = session.clock.now()
        found = _read(session, due[0][1].worker, [attempt.token for _, attempt in batch])
        if found is None:
            return
        for attempt_id, attempt in batch:
            values = values_to_mask(session.cluster.jobs[attempt_id.task.job])
            streams = {name: found[attempt.token, name] for name in _STREAMS}
            kept = {name: (offset, mask(data, values)) for name, (offset, data) in streams.items()}
            try:
                _write(session, attempt_id, kept, listed_at)
                if attempt_id in to_search and attempt.end is not None:
                    output = b"".join(kept[name][1][-size:] for name, size in _SEARCHED.items())
                    _keep_cause(session, attempt_id, attempt.end, output)
                session.state.logs_due.remove(attempt.token)
            except NotWritableError:
                return  # the cycle reports a full disk when it writes the log


def _read(
    session: Session, worker_id: WorkerId, tokens: Sequence[Token]
) -> dict[tuple[Token, str], tuple[int, bytes]] | None:
    """Return the offset and the bytes of both streams of each attempt, or None if the worker does not answer."""
    from iris_cli.remote.output_calls import MAX_LOG_PIECE, LogPiece

    target = session.target(session.cluster.workers[worker_id])

    def pieces(starts: Sequence[tuple[Token, str, int]]) -> "tuple[LogChunk, ...] | None":
        wanted = [
            LogPiece(token=token, stream=name, offset=offset, limit=MAX_LOG_PIECE)
            for token, name, offset in starts
        ]
        answer = session.runner.pieces(target, wanted)
        return None if isinstance(answer, Silence) else answer

    streams = [(token, name) for token in tokens for name in _STREAMS]
    ends = pieces([(token, name, -MAX_LOG_PIECE) for token, name in streams])
    if ends is None:
        return None
    found = {}
    for (token, name), end in zip(streams, ends, strict=True):
        start, read = 0 if end.size <= session.limits.keep_logs else end.offset, b""
        while (offset := start + len(read)) < end.offset:
            more = pieces([(token, name, offset)])
            if more is None or not more[0].data:
                return None
            read += more[0].data[: end.offset - offset]
        found[token, name] = (start, read + end.data)
    return found


def _write(
    session: Session, attempt_id: AttemptId, streams: Mapping[str, tuple[int, bytes]], listed_at: float
) -> None:
    logs = session.state.task_logs
    for name, (offset, data) in streams.items():
        if offset:
            logs.put_end(attempt_id, name, offset, data)
        elif data:
            logs.put(attempt_id, name, 0, data)
    if not any(offset for offset, _ in streams.values()):
        logs.finish(attempt_id, listed_at)


def _attempts_to_search(cluster: Cluster, ended: Sequence[Due]) -> frozenset[AttemptId]:
    """Return the failed attempts whose output is searched for a cause.

    Their output is longer than the log tail in the event log, and no log tail of their job shows a cause.
    """
    of_job = group_pairs((each[0].task.job, each) for each in ended if _has_failed(each[1]))
    chosen: list[AttemptId] = []
    for job, failed in of_job.items():
        ends = [(each, attempt.end) for each, attempt in failed if attempt.end is not None]
        is_known = any(cause_in(end.log_tail.encode("utf-8", "replace"), end) for _, end in ends)
        if not is_known and _failed_before(cluster, job, failed) < 2 * _MAX_SEARCHED:
            long = [
                each for each, end in ends if len(end.log_tail.encode("utf-8", "replace")) >= MAX_LOG_TAIL
            ]
            chosen += long[:_MAX_SEARCHED]
    return frozenset(chosen)


def _has_failed(attempt: Attempt) -> bool:
    end = attempt.end
    return end is not None and (end.reason in PROGRAM_FAILURES or end.reason is EndReason.TIMEOUT)


def _failed_before(cluster: Cluster, job_id: JobId, failed: Sequence[Due]) -> int:
    """Return the number of a job's failures without these failed attempts. A failed round of a gang is one failure."""
    tasks = cluster.tasks_of(job_id)
    if cluster.jobs[job_id].is_gang:
        rounds = {attempt.round for task in tasks for attempt in task.attempts if _has_failed(attempt)}
        return len(rounds - {attempt.round for _, attempt in failed})
    return sum(task.failures + (task.state is TaskState.FAILED) for task in tasks) - len(failed)


def _keep_cause(session: Session, attempt: AttemptId, end: End, output: bytes) -> None:
    """Save an excerpt of the output around the line that shows the cause, if the excerpt alone shows a cause, too."""
    found = cause_in(output, end)
    if found is None:
        return
    line = found.line.strip("…").encode("utf-8", "replace")
    at = max(0, output.find(line))
    lines = output[max(0, at - _BEFORE) : at + len(line) + _AFTER][:MAX_EXCERPT]
    if cause_in(lines, end) is not None:
        session.state.task_logs.keep_excerpt(attempt, lines)
