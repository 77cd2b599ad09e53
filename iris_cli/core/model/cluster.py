"""The state of a cluster: tables, the endpoints and outputs in them, and look-ups. Only `evolve` changes the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from iris_cli.core.ids import AttemptId, JobId, RequestId, TaskId, Token, WorkerId
from iris_cli.core.model.job import Job, JobState
from iris_cli.core.model.past import Past, in_memory
from iris_cli.core.model.slice import GroupRecord, Slice, SliceOwner
from iris_cli.core.model.task import Attempt, Task, TaskState
from iris_cli.core.model.worker import Ghost, Worker
from iris_cli.core.structs import Value

MOST_CHANGES = 1000  # how often an attempt may change its endpoints: each change stays in the log


class Endpoint(Value, frozen=True, kw_only=True):
    """A port of a task, on the host that it runs on. `metadata` is the task's own business."""

    name: str
    port: int
    metadata: Mapping[str, str] = field(default_factory=dict)


class Announced(Value, frozen=True, kw_only=True):
    """The endpoints of one attempt, and the requests that led to them: each counts once."""

    endpoints: tuple[Endpoint, ...] = ()
    requests: tuple[RequestId, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.endpoints)

    def plus(self, endpoint: Endpoint, request: RequestId) -> Announced:
        """With this one, in the place of the one of that name."""
        others = tuple(each for each in self.endpoints if each.name != endpoint.name)
        return Announced(endpoints=(*others, endpoint), requests=(*self.requests, request))

    def minus(self, name: str, request: RequestId) -> Announced:
        """Without the one of that name."""
        left = tuple(each for each in self.endpoints if each.name != name)
        return Announced(endpoints=left, requests=(*self.requests, request))


BATCH = 32  # the most attempts that are reaped in one call


class Outputs(Struct, frozen=True, kw_only=True):
    """Attempts in the order of their ends, in batches, so that adding one copies few; and the last call to reap."""

    full: tuple[tuple[AttemptId, ...], ...] = ()
    last: tuple[AttemptId, ...] = ()
    asked_at: float | None = None

    @property
    def first(self) -> tuple[AttemptId, ...]:
        """The oldest ones, no more than are reaped at a time."""
        return self.full[0] if self.full else self.last

    @property
    def attempts(self) -> tuple[AttemptId, ...]:
        return (*(attempt for batch in self.full for attempt in batch), *self.last)

    def plus(self, attempt: AttemptId) -> Outputs:
        """With one more, which has ended last."""
        if len(self.last) < BATCH:
            return Outputs(full=self.full, last=(*self.last, attempt), asked_at=self.asked_at)
        return Outputs(full=(*self.full, self.last), last=(attempt,), asked_at=self.asked_at)

    def minus(self, count: int) -> Outputs:
        """Without so many of the `first` ones."""
        rest = self.first[count:]
        if not self.full:
            return Outputs(last=rest, asked_at=self.asked_at)
        full = (*((rest,) if rest else ()), *self.full[1:])
        return Outputs(full=full, last=self.last, asked_at=self.asked_at)


NO_OUTPUTS = Outputs()


class Cluster(Struct, kw_only=True, eq=False):
    """What the log says, as tables of immutable records. Jobs stand in the order of their submission.

    `ghosts` are the attempts that were taken for dead and may still run, by worker; they outlast its being
    forgotten. `outputs` are those that have ended for certain and whose files are still there.

    The tables are complete for whoever looks something up. But where a snapshot was read, jobs that are over for good
    wait there until they are looked up (`past`), so going through all of a table may take long: what is done
    again and again goes through `open_jobs` and `pending_tasks`.
    """

    name: str = ""
    seq: int = 0  # of the last transaction that is in here
    at: float = 0.0  # its time
    jobs: dict[JobId, Job] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    workers: dict[WorkerId, Worker] = field(default_factory=dict)
    ghosts: dict[WorkerId, tuple[Ghost, ...]] = field(default_factory=dict)
    outputs: dict[WorkerId, Outputs] = field(default_factory=dict)
    children: dict[JobId, tuple[JobId, ...]] = field(default_factory=dict)  # the direct ones, by their parent
    endpoints: dict[AttemptId, Announced] = field(default_factory=dict)  # of live attempts that have some
    slices: dict[str, Slice] = field(default_factory=dict)  # of scale groups, until nothing of them is left
    scale_groups: dict[str, GroupRecord] = field(default_factory=dict)
    keeper: SliceOwner | None = None  # of the slices; None: nobody has made any yet
    past: Past | None = None

    def __eq__(self, other: object) -> bool:
        """Whether the tables say the same, wherever they have it from."""
        if not isinstance(other, Cluster):
            return NotImplemented
        said = (name for name in self.__struct_fields__ if name != "past")
        return all(getattr(self, name) == getattr(other, name) for name in said)

    def __ne__(self, other: object) -> bool:
        return not self == other  # a Struct has its own, which does not ask `__eq__`

    __hash__ = None  # type: ignore[assignment]  # it changes

    def copy(self) -> Cluster:
        """A draft with tables of its own; the records in them are shared, for they never change."""
        return Cluster(
            name=self.name,
            seq=self.seq,
            at=self.at,
            jobs=self.jobs.copy(),
            tasks=self.tasks.copy(),
            workers=self.workers.copy(),
            ghosts=self.ghosts.copy(),
            outputs=self.outputs.copy(),
            children=self.children.copy(),
            endpoints=self.endpoints.copy(),
            slices=self.slices.copy(),
            scale_groups=self.scale_groups.copy(),
            keeper=self.keeper,
            past=self.past,
        )

    def open_jobs(self) -> list[Job]:
        """The jobs that aren't over for good, in order: not ended, or something of them lives or may still run."""
        held = {attempt.task.job for worker in self.workers.values() for attempt in worker.claims}
        held |= {ghost.attempt.task.job for ghosts in self.ghosts.values() for ghost in ghosts}
        return [job for job in in_memory(self.jobs) if job.end is None or job.id in held]

    def pending_tasks(self) -> Iterator[Task]:
        """The tasks that wait to be placed, job by job."""
        return (task for task in in_memory(self.tasks) if task.state is TaskState.PENDING)

    def last_ended(self, most: int) -> list[Job]:
        """So many of the jobs that have ended, or all: those that ended last, the last one first."""
        known = {job.id: job for job in in_memory(self.jobs) if job.end is not None}
        for job in self.past.last_ended(most) if self.past is not None else ():
            known[job] = self.jobs[job]
        return sorted(known.values(), key=_when_ended)[:most]

    def tasks_of(self, job: JobId) -> list[Task]:
        """The tasks of a job, by index."""
        return [self.tasks[task] for task in self.jobs[job].task_ids]

    def attempt(self, attempt: AttemptId) -> Attempt:
        """One attempt. Raises KeyError for one that never was."""
        attempts = self.tasks[attempt.task].attempts
        if attempt.number >= len(attempts):
            raise KeyError(str(attempt))
        return attempts[attempt.number]

    def foreign(self, tokens: Iterable[Token]) -> tuple[Token, ...]:
        """Those of the tokens that no attempt ever had, whatever became of it."""
        known = {attempt.token for task in in_memory(self.tasks) for attempt in task.attempts}
        unknown = tuple(token for token in tokens if token not in known)
        return self.past.foreign(unknown) if self.past is not None and unknown else unknown

    def live_attempts(self) -> Iterator[tuple[AttemptId, Attempt]]:
        """Every attempt that isn't ENDED, worker by worker."""
        for worker in self.workers.values():
            yield from self.live_on(worker.id)

    def live_on(self, worker: WorkerId) -> Iterator[tuple[AttemptId, Attempt]]:
        """The attempts on a worker that aren't ENDED, in the order of their assignment."""
        for attempt_id in self.workers[worker].claims:
            yield attempt_id, self.attempt(attempt_id)

    def live_of(self, job: JobId) -> list[tuple[AttemptId, Attempt]]:
        """The attempts of a job that aren't ENDED, by task index."""
        return [
            (AttemptId(task.id, attempt.number), attempt)
            for task in self.tasks_of(job)
            for attempt in task.attempts[-1:]
            if attempt.live
        ]

    def endpoints_of(self, job: JobId) -> list[tuple[AttemptId, Endpoint]]:
        """What the tasks of a job have made known, by task index and name."""
        found = (
            ((attempt_id, self.endpoints.get(attempt_id)) for attempt_id, _ in self.live_of(job))
            if self.endpoints
            else ()
        )
        return [
            (attempt_id, endpoint)
            for attempt_id, announced in found
            if announced is not None
            for endpoint in sorted(announced.endpoints, key=lambda each: each.name)
        ]

    def children_of(self, job: JobId) -> list[Job]:
        return [self.jobs[child] for child in self.children.get(job, ())]

    def job_state(self, job_id: JobId) -> JobState:
        """The state of a job, derived from its tasks."""
        return state_of(self.jobs[job_id], self.tasks_of(job_id))


def state_of(job: Job, tasks: Sequence[Task]) -> JobState:
    """The state of a job with these tasks: the first rule that holds decides."""
    states = [task.state for task in tasks]
    over = all(state.terminal for state in states)
    may_end_early = over or not job.keep_going
    if may_end_early and TaskState.UNSCHEDULABLE in states:
        return JobState.UNSCHEDULABLE
    if job.cancelled:
        return JobState.KILLED
    failed = states.count(TaskState.FAILED)
    if may_end_early and failed > job.max_task_failures:
        return JobState.FAILED
    if job.is_gang and TaskState.WORKER_FAILED in states:
        return JobState.FAILED
    if over:
        only_tolerated = failed + states.count(TaskState.SUCCEEDED) == len(states)
        return JobState.SUCCEEDED if only_tolerated else JobState.FAILED
    started = any(attempt.started_at is not None for task in tasks for attempt in task.attempts)
    return JobState.RUNNING if started else JobState.PENDING


def _when_ended(job: Job) -> tuple[float, int]:
    """For sorting: the last one first, and the one that was submitted last of those that ended together."""
    assert job.end is not None
    return -job.end.at, -job.order
