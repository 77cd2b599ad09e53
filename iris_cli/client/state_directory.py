"""The operations of a client on the operator's machine. They do the same as the commands of `iris`."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from iris_cli.client.records import Endpoint, JobStatus, TaskStatus
from iris_cli.core import JobId, JobRequest, JobState
from iris_cli.errors import IrisError, UnreachableError, UsageError
from iris_cli.files import signature_of
from iris_cli.ops.cluster_handle import ClusterHandle

if TYPE_CHECKING:
    from iris_cli.ops.logs.log_reading import LogLine
    from iris_cli.ops.session import Session
    from iris_cli.ops.views.task_rows import TaskRow


OpenSession = Callable[[str], "Session"]
"""Function that returns a new session for a call of the client. The argument is the name of the call."""


def open_directory(handle: ClusterHandle) -> StateDirectory:
    """Return the operations on a state directory. All calls share connections, but each call has its own session.

    A call reads the configuration again if the file has changed since the last call.
    """
    lock = threading.Lock()
    signature: tuple[int, ...] = ()

    def open_session(command: str) -> Session:
        nonlocal signature
        with lock:
            found = signature_of(handle.config_file)
            if found != signature:
                handle.__dict__.pop("config", None)
                signature = found
            call_handle = ClusterHandle(handle.config_path, handle.state_path, handle.lock_timeout)
            call_handle.config_file, call_handle.config = handle.config_file, handle.config
            call_handle.clock, call_handle.transport = handle.clock, handle.transport
        return call_handle.session(f"iris client {command}")

    def close() -> None:
        with lock:
            transport = handle.__dict__.pop("transport", None)
        if transport is not None:
            transport.close()

    return StateDirectory(open_session, close)


class StateDirectory:
    """The operations of a client on the operator's machine. Each call is an invocation, like a command."""

    def __init__(self, open_session: OpenSession, close: Callable[[], None] = lambda: None) -> None:
        self._open_session = open_session
        self._close = close

    def submit(self, request: JobRequest, *, request_id: str | None, schedule: bool) -> JobId:
        from iris_cli.ops.cycle import cycle
        from iris_cli.ops.jobs.launch import launch
        from iris_cli.ops.loop.foreground import TRANSIENT_ERRORS

        if request_id is not None:
            raise UsageError("request_id is only available inside a task", hint="use name")
        session = self._open_session("submit")
        job = launch(session, request)
        if schedule:
            # The job is already in the log. If no cycle can run now, a later cycle starts it.
            with suppress(*TRANSIENT_ERRORS):
                cycle.run(session, job=job)
        return job

    def status(self, job: str) -> JobStatus:
        from iris_cli.ops.views.job_status import job_status

        found = job_status(self._open_session("status"), job)
        return JobStatus(
            id=found.job.id,
            state=found.job.state,
            display=found.job.display,
            why=found.job.why,
            tasks=tuple(map(_task, found.tasks)),
            children=found.children,
        )

    def wait(
        self, job: str, timeout: float | None, follow: Sequence[int] | None, sink: Callable[[LogLine], None]
    ) -> JobState | None:
        from iris_cli.ops.logs.follow import Follower
        from iris_cli.ops.logs.log_reading import Query
        from iris_cli.ops.loop.foreground import wait_for
        from iris_cli.ops.names import find_job

        session = self._open_session("wait")
        job_id = find_job(session.view(), job)
        clock = session.clock
        until = math.inf if timeout is None else clock.monotonic() + timeout
        if follow is not None:
            query = Query(tail=None, ranks=tuple(follow))
            for step in Follower(session, job_id, query, until=until).steps():
                for line in step.lines:
                    sink(line)
        remaining = None if timeout is None else max(0.0, until - clock.monotonic())
        result = wait_for(session, [job_id], timeout=remaining)
        return None if result.open else result.states[job_id]

    def wait_all(self, jobs: Sequence[JobId], timeout: float | None) -> list[JobState | None]:
        from iris_cli.ops.loop.foreground import wait_for
        from iris_cli.ops.names import find_jobs

        session = self._open_session("wait")
        found = find_jobs(session.view(), [*jobs])
        states = wait_for(session, found, timeout=timeout).states
        return [states[job] if states[job].terminal else None for job in found]

    def pull(self, job: JobId, directory: Path) -> Path:
        from iris_cli.ops.files.pull import pull

        pulled = pull(self._open_session("pull"), job, directory)
        for each in pulled.attempts:
            if each.problems:
                kind = UnreachableError if each.silent else IrisError
                raise kind(f"{each.attempt}: {'; '.join(each.problems)}", hint=f"iris pull {job}")
        return pulled.directory

    def logs(
        self, what: str, *, tail: int | None, attempt: int | None, streams: tuple[str, ...]
    ) -> list[LogLine]:
        from iris_cli.ops.logs.log_reading import Query
        from iris_cli.ops.logs.logs import fetch

        found = fetch(self._open_session("logs"), what, Query(tail=tail, attempt=attempt, streams=streams))
        for log in found:
            if log.silence is not None and not log.lines:
                raise UnreachableError(
                    f"{log.task}: {log.note}", hint=f"iris worker probe {log.silence.worker}"
                )
        return [line for log in found for line in log.lines]

    def cancel(self, job: str, reason: str) -> bool:
        from iris_cli.ops.jobs.change import cancel

        return bool(cancel(self._open_session("cancel"), [job], reason=reason).cancelled)

    def retry(self, what: str) -> int:
        from iris_cli.ops.jobs.change import retry

        return len(retry(self._open_session("retry"), what).retried)

    def endpoints(self, job: str | None) -> tuple[Endpoint, ...]:
        from iris_cli.ops.views.job_status import job_status

        if job is None:
            raise UsageError("outside a task, name the job", hint="endpoints(JOB)")
        return tuple(
            Endpoint(
                name=each.name,
                task=each.task,
                host=each.address,
                port=each.port,
                metadata=dict(each.metadata),
            )
            for each in job_status(self._open_session("endpoints"), job).endpoints
        )

    def register_endpoint(self, name: str, port: int, metadata: Mapping[str, str]) -> None:  # noqa: ARG002 - as in Outbox
        _reject_outside_task()

    def remove_endpoint(self, name: str) -> bool:  # noqa: ARG002 - as in Outbox
        _reject_outside_task()

    def close(self) -> None:
        self._close()


def _reject_outside_task() -> NoReturn:
    raise UsageError(
        "endpoints can only be registered from inside a task", hint="call it from a program inside a task"
    )


def _task(row: TaskRow) -> TaskStatus:
    last = row.attempts[-1] if row.attempts else None
    return TaskStatus(
        id=str(row.id),
        state=row.state,
        display=row.display,
        attempt=last.id.number if last is not None else None,
        worker=row.worker,
        exit_code=last.exit_code if last is not None else None,
        why=row.why,
    )
