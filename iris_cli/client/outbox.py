"""The client inside a task: requests in its outbox, carried to the log by whoever polls the cluster next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iris_cli.client.mailbox import Mailbox, result_of
from iris_cli.client.port import LogQuery, Sink
from iris_cli.client.records import Endpoint, JobStatus, LogLine, TaskStatus
from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.job import JobRequest, JobState
from iris_cli.core.requests import (
    Cancel,
    Endpoints,
    RegisterEndpoint,
    RemoveEndpoint,
    Status,
    Submit,
    Wait,
)
from iris_cli.core.task import TaskState


class Outbox:
    """The cluster as a task can reach it: its own job, and what that has submitted."""

    def __init__(self, task_dir: Path, answer_timeout: float | None) -> None:
        self._mail = Mailbox(task_dir)
        self._patience = answer_timeout

    def submit(self, request: JobRequest, *, request_id: str | None, schedule: bool) -> JobId:  # noqa: ARG002 - a cycle is run by whoever polls
        return JobId(self._mail.ask(Submit(job=request), self._patience, request_id)["job"])

    def status(self, job: str) -> JobStatus:
        return job_status(self._mail.ask(Status(job=JobId(job)), self._patience))

    def wait(
        self, job: str, timeout: float | None, follow: Sequence[int] | None, sink: Sink
    ) -> JobState | None:
        if follow is not None:
            raise NotImplementedError(sink)
        name = self._mail.put(Wait(job=JobId(job)))
        try:
            answer = self._mail.wait(name, timeout)
        finally:
            self._mail.drop(name)
        return None if answer is None else job_status(result_of(answer)).state

    def logs(self, what: str, query: LogQuery) -> list[LogLine]:
        raise NotImplementedError(what, query)

    def cancel(self, job: str, reason: str) -> bool:
        return bool(self._mail.ask(Cancel(job=JobId(job), reason=reason), self._patience)["cancelled"])

    def endpoints(self, job: str | None) -> tuple[Endpoint, ...]:
        asked = Endpoints(job=None if job is None else JobId(job))
        return tuple(map(endpoint, self._mail.ask(asked, self._patience)["endpoints"]))

    def register_endpoint(self, name: str, port: int, metadata: Mapping[str, str]) -> None:
        self._mail.ask(RegisterEndpoint(name=name, port=port, metadata=metadata), self._patience)

    def remove_endpoint(self, name: str) -> bool:
        return bool(self._mail.ask(RemoveEndpoint(name=name), self._patience)["removed"])

    def close(self) -> None:
        """Nothing is kept open."""


def job_status(said: Mapping[str, Any]) -> JobStatus:
    """A job as an answer tells it."""
    job = said["job"]
    return JobStatus(
        id=JobId(job["id"]),
        state=JobState(job["state"]),
        why=job.get("why", ""),
        tasks=tuple(map(_task, said["tasks"])),
        children=tuple(map(JobId, job.get("children", ()))),
    )


def _task(said: Mapping[str, Any]) -> TaskStatus:
    worker = said.get("worker")
    return TaskStatus(
        id=said["id"],
        state=TaskState(said["state"]),
        attempt=said.get("attempt"),
        worker=None if worker is None else WorkerId(worker),
        exit_code=said.get("exit_code"),
        why=said.get("why", ""),
    )


def endpoint(said: Mapping[str, Any]) -> Endpoint:
    """An endpoint as an answer tells it."""
    return Endpoint(
        name=said["name"],
        task=said["task"],
        host=said["address"],
        port=said["port"],
        metadata=said.get("metadata", {}),
    )
