"""The operator in the test's process: `iris` without its command line, with real files and real SSH.

A test can make something happen just before or just after each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from iris_cli.cli.context import Context
from iris_cli.clock import SystemClock
from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.invariants import breaches
from iris_cli.core.messages.observations import Silence
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import JobRequest, JobState
from iris_cli.core.model.task import Attempt
from iris_cli.core.model.worker import Worker
from iris_cli.ops.cycle import cycle
from iris_cli.ops.jobs.change import cancel
from iris_cli.ops.jobs.launch import launch
from iris_cli.ops.session import Session
from iris_cli.remote.task_runner import TaskRunner
from tests.support.site import Site
from tests.support.waiting import until

Moment = tuple[str, str, str]
"""`("before" or "after", a call of the worker protocol, a worker)`."""


class ShiftedClock(SystemClock):
    """The time of this machine plus an offset."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return round(super().now() + self.ahead, 3)


class Interrupted(ShiftedClock):
    """A clock that calls `then` in place of each sleep."""

    def __init__(self, then: Callable[[], object], ahead: float = 0.0) -> None:
        super().__init__()
        self._then, self.ahead = then, ahead

    def sleep(self, seconds: float) -> None:
        self._then()


class Desk:
    """Runs operations, each as an invocation with its own connections."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.clock = ShiftedClock()
        self.moments: dict[Moment, Callable[[], object]] = {}  # each is called once
        self.silences: list[Silence] = []  # calls without an answer

    @contextmanager
    def invocation(self, command: str = "iris test") -> Iterator[Session]:
        context = Context(config_path=self.site.directory / "cluster.yaml")
        context.clock = self.clock
        session = context.session(command)
        make, session.make_runner = session.make_runner, lambda name: self._watched(make(name))
        try:
            yield session
        finally:
            context.transport.close()

    def cycle(self) -> cycle.CycleResult:
        """Do the same as `iris schedule --once`, then audit the log."""
        with self.invocation("iris schedule") as session:
            result = cycle.run(session)
            assert breaches(session.view()) == []
            return result

    def launch(self, name: str, *command: str, **asked: Any) -> None:
        """Submit a job; send nothing."""
        with self.invocation("iris launch") as session:
            launch(session, JobRequest(name=name, command=command, cpu=0.01, memory_default=1 << 20, **asked))

    def cancel(self, job: str) -> None:
        with self.invocation("iris cancel") as session:
            cancel(session, [job])

    def until(self, happened: Callable[[], object], *, every: float = 0.0) -> None:
        """Run cycles until something has happened; the operator's clock moves between them."""

        def cycle() -> None:
            self.clock.ahead += every
            self.cycle()

        until(happened, between=cycle)

    @property
    def cluster(self) -> Cluster:
        with self.invocation() as session:
            return session.view()

    def state(self, job: str) -> JobState:
        return self.cluster.job_state(JobId(job))

    def attempts(self, job: str, index: int = 0) -> list[Attempt]:
        return list(self.cluster.tasks[TaskId(JobId(job), index)].attempts)

    def attempt(self, job: str, index: int = 0) -> Attempt:
        return self.attempts(job, index)[-1]

    def worker(self, name: str) -> Worker:
        return self.cluster.workers[WorkerId(name)]

    def _watched(self, runner: TaskRunner) -> TaskRunner:
        return cast("TaskRunner", _Watched(runner, self.moments, self.silences))


class _Watched:
    """The calls of a runner, with functions to call before and after them."""

    def __init__(
        self, runner: TaskRunner, moments: dict[Moment, Callable[[], object]], silences: list[Silence]
    ) -> None:
        self._runner = runner
        self._moments = moments
        self._silences = silences

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._runner, name)
        if not callable(call):
            return _Watched(call, self._moments, self._silences)  # a group of calls

        def watched(target: Any, *words: Any, **options: Any) -> Any:
            self._moments.pop(("before", name, target.worker), lambda: None)()
            answer = call(target, *words, **options)
            if isinstance(answer, Silence):
                self._silences.append(answer)
            self._moments.pop(("after", name, target.worker), lambda: None)()
            return answer

        return watched
