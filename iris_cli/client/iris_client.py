"""`IrisClient` and the jobs it returns."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from msgspec.structs import replace

from iris_cli.client.fields import Constraints, JobFields, job_request, without_inheritance
from iris_cli.client.records import (
    ANSWER_TIMEOUT,
    BOTH,
    Endpoint,
    HasId,
    JobStatus,
    LogLine,
    Sink,
    TaskStatus,
)
from iris_cli.core import JobId, JobState, TaskId, parse_job_id, parse_task_id
from iris_cli.core.work_paths import PULL_DIRECTORY
from iris_cli.errors import ExitCode, IrisError, NotFoundError, UsageError
from iris_cli.ops.cluster_handle import ClusterHandle

if TYPE_CHECKING:
    from iris_cli.client.outbox import Outbox
    from iris_cli.client.state_directory import StateDirectory
    from iris_cli.ops.logs.log_reading import LogLine as OpsLine


class WaitTimeoutError(IrisError, TimeoutError):
    """A `wait` has reached its timeout. The job continues."""

    exit_code = ExitCode.FAILED


class IrisClient:
    """A client that submits and manages jobs. It is thread-safe, and a program may use several clients.

    On the operator's machine the client uses the same files as the `iris` command. `state_dir`, `config` and
    `lock_timeout` (seconds) are like its options. Inside a task, without `state_dir` and `config`, the client sends
    requests, and the cluster's cycles answer them. `answer_timeout`: seconds to wait for an answer (None: unlimited).
    The client reads no file before the first call. All methods raise IrisError with the `message`, `hint` and
    `exit_code` of the `iris` command.
    """

    def __init__(
        self,
        state_dir: str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | None = None,
        *,
        answer_timeout: float | None = ANSWER_TIMEOUT,
        lock_timeout: float | None = None,
    ) -> None:
        if lock_timeout is not None and not lock_timeout >= 0:  # also true for NaN
            raise UsageError(f"lock_timeout={lock_timeout} is not a number of seconds to wait")
        handle = ClusterHandle(
            config_path=None if config is None else Path(config),
            state_path=None if state_dir is None else Path(state_dir),
            lock_timeout=lock_timeout,
            shared=True,
        )
        self._backend: Outbox | StateDirectory
        if handle.is_in_task:
            from iris_cli.client.outbox import Outbox

            self._backend = Outbox(Path(os.environ["IRIS_TASK_DIR"]), answer_timeout)
        else:
            from iris_cli.client.state_directory import open_directory

            self._backend = open_directory(handle)

    @classmethod
    def with_backend(cls, backend: Outbox | StateDirectory) -> IrisClient:
        """Return a client that uses this backend."""
        client = cls.__new__(cls)
        client._backend = backend
        return client

    def submit(
        self,
        command: Sequence[str] | str,
        *,
        constraints: Constraints | None = None,
        inherit_constraints: bool = True,
        request_id: str | None = None,
        schedule: bool = True,
        **fields: Unpack[JobFields],
    ) -> Job:
        """Submit a command as a job. The job is in the log when this method returns.

        `command` is the argument vector, or one text that is split into words as in a shell. No other shell syntax is
        supported. `fields` are the fields of a job file (see JobFields). Inside a task, the job becomes a child of the
        task's job: `constraints=None` inherits the parent's constraints, `[]` inherits none, and other constraints are
        merged with the parent's. With `inherit_constraints=False` only the given constraints apply.

        `request_id` (1 to 64 letters, digits, '.', '_' and '-') makes a submission from inside a task idempotent: a
        second call with the same id gets the answer to the first call, even after a restart of this program. On the
        operator's machine, the method runs a cycle to start the job, unless `schedule` is false.

        Raises UsageError, UnschedulableError, and NotFoundError if a job in `after` does not exist.
        """
        request = job_request(command, constraints, fields)
        if not inherit_constraints:
            request = without_inheritance(request)
        return Job(self, self._backend.submit(request, request_id=request_id, schedule=schedule))

    def job(self, job_id: str) -> Job:
        """Return the job with this id. A method of the job fails if the job does not exist. Raises UsageError."""
        return Job(self, parse_job_id(job_id))

    def status(self, job: str | HasId) -> JobStatus:
        """Return the status of a job and its tasks. Raises NotFoundError."""
        return self._backend.status(_id(job))

    def wait(
        self,
        job: str | HasId,
        timeout: float | None = None,
        stream_logs_from: int | str | Sequence[int] | None = None,
        on_line: Sink | None = None,
    ) -> JobState:
        """Wait until a job has ended: see `Job.wait`."""
        job_id = _id(job)
        ranks = _ranks(job_id, stream_logs_from)
        call = on_line or _print_line
        state = self._backend.wait(job_id, timeout, ranks, lambda line: call(_log_line(line)))
        if state is None:
            raise WaitTimeoutError(
                f"{job_id} has not ended after {timeout:g} s", hint="wait longer, or cancel it"
            )
        return state

    def wait_all(self, jobs: Iterable[str | HasId], timeout: float | None = None) -> list[JobState]:
        """Wait until all jobs have ended, and return their states in the same order.

        Raises WaitTimeoutError after `timeout` seconds. The jobs continue. See also `Job.wait`.
        """
        ids = list(map(_id, jobs))
        unique = list(dict.fromkeys(ids))
        found = dict(zip(unique, self._backend.wait_all(unique, timeout) if ids else [], strict=True))
        states = [state for job in ids if (state := found[job]) is not None]
        if len(states) < len(ids):
            not_ended = " ".join(job for job, state in found.items() if state is None)
            raise WaitTimeoutError(
                f"not ended after {timeout or 0:g} s: {not_ended}", hint="wait longer, or cancel them"
            )
        return states

    def list_tasks(self, job: str | HasId) -> list[TaskStatus]:
        """Return the tasks of a job, ordered by index. Raises NotFoundError."""
        return list(self.status(job).tasks)

    def task_status(self, task: str) -> TaskStatus:
        """Return one task by its id, `JOB/task-INDEX`. Raises NotFoundError, UsageError."""
        wanted = parse_task_id(str(task))
        for found in self.status(wanted.job).tasks:
            if found.id == str(wanted):
                return found
        raise NotFoundError(f"no task {str(wanted)!r}", hint=f"list_tasks({wanted.job!r}) lists them")

    def task_logs(
        self, task: str, *, tail: int | None = None, attempt: int | None = None, streams: Sequence[str] = BOTH
    ) -> list[LogLine]:
        """Return the output that a task has written so far, one stream after the other.

        `tail`: number of last lines of each stream (default: all lines). `attempt`: number of the attempt (default: the
        last attempt). `streams`: `"out"`, `"err"` or both. Raises NotFoundError, UnreachableError, UsageError.
        """
        return self._logs(str(parse_task_id(str(task))), tail, attempt, streams)

    def logs(
        self,
        job: str | HasId,
        *,
        tail: int | None = None,
        attempt: int | None = None,
        streams: Sequence[str] = BOTH,
    ) -> list[LogLine]:
        """Return the output that the tasks of a job have written so far, one task after the other: see `task_logs`."""
        return self._logs(_id(job), tail, attempt, streams)

    def _logs(
        self, what: str, tail: int | None, attempt: int | None, streams: Sequence[str]
    ) -> list[LogLine]:
        chosen = (streams,) if isinstance(streams, str) else tuple(streams)
        if not chosen or not set(chosen) <= set(BOTH):
            raise UsageError(f"streams must be {' or '.join(map(repr, BOTH))} or both, not {streams!r:.80}")
        if tail is not None and tail < 0:
            raise UsageError(f"tail={tail} is not a number of lines", hint="None returns all lines")
        return list(map(_log_line, self._backend.logs(what, tail=tail, attempt=attempt, streams=chosen)))

    def pull(self, job: str | HasId, directory: str | os.PathLike[str] = PULL_DIRECTORY) -> Path:
        """Fetch the files in IRIS_OUTPUT_DIR of all tasks of a job.

        Returns `directory/JOB`, which contains the files as `task-N/attempt-M/...`. Unchanged files are not fetched
        again. Not available inside a task. Raises UnreachableError if a worker does not answer, and IrisError if a file
        can't be fetched. In both cases the method fetches all other files first.
        """
        return self._backend.pull(_id(job), Path(directory))

    def cancel(self, job: str | HasId, reason: str = "") -> bool:
        """Cancel a job and its children. Return False if it had already ended. Raises NotFoundError."""
        return self._backend.cancel(_id(job), reason)

    def retry(self, what: str | HasId) -> int:
        """Stop the running attempts of a job or a task, and schedule the tasks again, uncharged.

        A gang is stopped as a whole. Returns the number of stopped attempts. Not available inside a task. Raises
        NotFoundError, and UsageError for a job or a task that has ended.
        """
        return self._backend.retry(what if isinstance(what, str) else what.id)

    def again(
        self,
        job: str | HasId,
        command: Sequence[str] | str | None = None,
        *,
        failed: bool = False,
        constraints: Constraints | None = None,
        schedule: bool = True,
        **fields: Unpack[JobFields],
    ) -> Job:
        """Submit an ended job again as a new job. `command` and `fields` override the values of the ended job.

        `failed`: submit only the unsuccessful tasks of an array, with the same indexes. The new job has no `after`. Not
        available inside a task. Raises NotFoundError, and UsageError if the job has not ended or its workspace was
        deleted. See also `submit`.
        """
        request = job_request(command or (), constraints, fields, method="again")
        request = replace(
            request, command=request.command or None, again=_id(job), failed=True if failed else None
        )
        return Job(self, self._backend.submit(request, request_id=None, schedule=schedule))

    def endpoints(self, job: str | HasId | None = None) -> list[Endpoint]:
        """Return the endpoints of a job's tasks. Inside a task, None means this task's job. Raises NotFoundError."""
        return list(self._backend.endpoints(None if job is None else _id(job)))

    def register_endpoint(self, name: str, port: int, metadata: Mapping[str, str] | None = None) -> None:
        """Register a port of this task under a name until the task's attempt ends. Only inside a task.

        Replaces an endpoint with the same name. Raises UsageError.
        """
        self._backend.register_endpoint(name, port, dict(metadata or {}))

    def remove_endpoint(self, name: str) -> bool:
        """Remove an endpoint of this task. Return False if the task has no such endpoint. Only inside a task."""
        return self._backend.remove_endpoint(name)

    def close(self) -> None:
        """Close all connections. Idempotent. Later calls open new connections."""
        self._backend.close()

    def __enter__(self) -> IrisClient:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()


class Job:
    """A submitted job: its id and its client."""

    __slots__ = ("_client", "id")

    def __init__(self, client: IrisClient, job_id: JobId) -> None:
        self._client = client
        self.id = job_id

    def status(self) -> JobStatus:
        """Return the status of the job and its tasks."""
        return self._client.status(self.id)

    def wait(
        self,
        timeout: float | None = None,
        stream_logs_from: int | str | Sequence[int] | None = None,
        on_line: Sink | None = None,
    ) -> JobState:
        """Wait until the job has ended, and return its state.

        `stream_logs_from` selects the tasks whose output is streamed: an index, several indexes, a task id, or `"all"`.
        The method calls `on_line` with each line (default: print it with control characters replaced). On the
        operator's machine this method runs cycles. Inside a task, it waits even if no cycles are running.

        Raises WaitTimeoutError (a TimeoutError) after `timeout` seconds. The job continues.
        """
        return self._client.wait(self.id, timeout, stream_logs_from, on_line)

    def tasks(self) -> list[TaskStatus]:
        """Return the tasks, ordered by index."""
        return self._client.list_tasks(self.id)

    def logs(
        self, *, tail: int | None = None, attempt: int | None = None, streams: Sequence[str] = BOTH
    ) -> list[LogLine]:
        """Return the output that the tasks have written so far: see `IrisClient.logs`."""
        return self._client.logs(self.id, tail=tail, attempt=attempt, streams=streams)

    def pull(self, directory: str | os.PathLike[str] = PULL_DIRECTORY) -> Path:
        """Fetch the files of the tasks and return their directory: see `IrisClient.pull`."""
        return self._client.pull(self.id, directory)

    def cancel(self, reason: str = "") -> bool:
        """Cancel the job and its children. Return False if it had already ended."""
        return self._client.cancel(self.id, reason)

    def retry(self, index: int | None = None) -> int:
        """Stop the running attempts of the job, or of one task, and schedule them again: see `IrisClient.retry`."""
        return self._client.retry(self.id if index is None else TaskId(self.id, index))

    def again(
        self,
        command: Sequence[str] | str | None = None,
        *,
        failed: bool = False,
        constraints: Constraints | None = None,
        schedule: bool = True,
        **fields: Unpack[JobFields],
    ) -> Job:
        """Submit the ended job again as a new job: see `IrisClient.again`."""
        return self._client.again(
            self.id, command, failed=failed, constraints=constraints, schedule=schedule, **fields
        )

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints of the tasks."""
        return self._client.endpoints(self.id)

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    def __str__(self) -> str:
        return self.id


def _id(job: str | HasId) -> JobId:
    return parse_job_id(job) if isinstance(job, str) else job.id


def _ranks(job: JobId, chosen: int | str | Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the selected indexes; () for all tasks, None for no task. Raises UsageError."""
    if chosen is None:
        return None
    if isinstance(chosen, str):
        if chosen == "all":
            return ()
        task = parse_task_id(chosen)
        if task.job != job:
            raise UsageError(f"{chosen[:80]} is not a task of {job}")
        return (task.index,)
    ranks = (chosen,) if isinstance(chosen, int) else tuple(chosen)
    if not ranks or not all(type(rank) is int and rank >= 0 for rank in ranks):
        raise UsageError(
            f"stream_logs_from={chosen!r:.80} is not a task",
            hint='write a task index, a list of indexes, a task id, or "all"',
        )
    return ranks


def _log_line(line: OpsLine) -> LogLine:
    attempt = line.attempt
    return LogLine(task=str(attempt.task), attempt=attempt.number, stream=line.stream, text=line.text)


def _print_line(line: LogLine) -> None:
    """Print one line. Replace unprintable characters, because the text is untrusted."""
    shown = "".join(each if each.isprintable() else "�" for each in line.text.replace("\t", " "))
    sys.stdout.write(f"[{line.task.rpartition('-')[2]}] {shown}\n")
    sys.stdout.flush()
