"""A task of a lab that makes requests, as if a poll had just read them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from iris_cli.core.ids import AttemptId, JobId, RequestId, TaskId
from iris_cli.core.lifecycle import children
from iris_cli.core.lifecycle.children import SubmissionContext
from iris_cli.core.messages.requests import RegisterEndpoint
from iris_cli.core.model.job import JobRequest, Origin
from iris_cli.core.model.limits import Limits
from tests.support.lab import Lab

EVAL = JobRequest(command=("python", "eval.py"))


class Inside:
    """The current attempt of a task, which makes requests, each with a new id by default."""

    def __init__(self, lab: Lab, task: str = "train/task-0", **limits: Any) -> None:
        self.lab, self.limits, self.asked = lab, Limits(**limits), 0
        job, _, index = task.rpartition("/task-")
        self.task = TaskId(JobId(job), int(index))

    @property
    def attempt(self) -> AttemptId:
        return self.lab.cluster.tasks[self.task].current_id

    def _id(self, named: str | None) -> RequestId:
        self.asked += 1
        return RequestId(named or f"{self.asked:04}")

    def submit(
        self,
        wanted: JobRequest = EVAL,
        *,
        request: str | None = None,
        attempt: AttemptId | None = None,
        **asked: Any,
    ) -> tuple[str, bool]:
        wanted = replace(wanted, **asked)
        digest = str(replace(wanted, name=None).__repr__())
        origin = Origin(attempt or self.attempt, self._id(request), digest)
        fleet = [worker.attributes for worker in self.lab.cluster.workers.values()]
        by = SubmissionContext(possible_workers=fleet, defaults=JobRequest(cpu=0.5), limits=self.limits)
        with self.lab.transaction() as draft:
            return children.submit_child(draft, origin, wanted, by)

    def cancel(self, job: str, reason: str = "") -> bool:
        with self.lab.transaction() as draft:
            return children.cancel_visible(draft, self.attempt, JobId(job), reason)

    def register(self, name: str, port: int = 80, *, request: str | None = None, **metadata: str) -> None:
        wanted = RegisterEndpoint(name=name, port=port, metadata=metadata)
        with self.lab.transaction() as draft:
            children.register_endpoint(draft, self.attempt, self._id(request), wanted, self.limits)

    def remove(self, name: str, *, request: str | None = None) -> bool:
        with self.lab.transaction() as draft:
            return children.remove_endpoint(draft, self.attempt, self._id(request), name)

    def endpoints(self, job: str = "train") -> list[str]:
        found = self.lab.cluster.endpoints_of(JobId(job))
        return [f"{attempt.task} {each.name}:{each.port}" for attempt, each in found]
