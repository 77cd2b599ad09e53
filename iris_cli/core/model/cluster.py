"""The state of a cluster, as tables of records. Only `evolve` changes the tables.

Most jobs of a long log have ended. The tables of a cluster from a snapshot read ended jobs only on demand: a look-up
reads one entry, and an iteration over a table reads all entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field

from iris_cli.core.ids import AttemptId, JobId, RequestId, TaskId, Token, WorkerId
from iris_cli.core.model.job import Job, JobState
from iris_cli.core.model.slice import GroupRecord, Slice, SliceOwner
from iris_cli.core.model.task import Attempt, Stopping, Task, TaskState
from iris_cli.core.model.worker import Ghost, Worker
from iris_cli.core.structs import Value

K = TypeVar("K")
V = TypeVar("V")
Found = TypeVar("Found", covariant=True)

if TYPE_CHECKING:  # the definition of a Protocol takes longer than a look-up
    from typing import Protocol

    class StoredTable(Protocol[K, Found]):
        """One table as stored in a snapshot."""

        def find(self, key: K) -> Found | None:
            """Return a stored entry; None if there is no such entry."""
            ...

        def all_entries(self) -> Iterable[tuple[K, Found]]:
            """Yield all stored entries in the order of the table, including entries that are in memory."""
            ...


class Past:
    """Queries about all stored jobs that are answered without reading each job."""

    def last_ended(self, limit: int) -> Sequence[JobId]:
        """Return up to `limit` of the jobs that ended last, in any order."""
        raise NotImplementedError

    def unknown_tokens(self, tokens: Iterable[Token]) -> tuple[Token, ...]:
        """Return the tokens that no attempt of a stored job had."""
        raise NotImplementedError


class Table(dict[K, V]):
    """A dict that reads missing entries from the stored table `kept`, and keeps them in memory. No value is None.

    `missing` is the number of entries that are not in memory, `dropped` are the keys of deleted stored entries. The
    function `values_in_memory` returns the entries in memory. Look up an existing entry before you replace it, because
    otherwise `len` counts it twice.
    Threads may read a table at the same time if it has a reentrant `lock`, which is held while stored entries are read.
    """

    __slots__ = ("_missing", "dropped", "kept", "lock")

    def __init__(
        self,
        loaded: Mapping[K, V],
        kept: StoredTable[K, V] | None,
        missing: int,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        super().__init__(loaded)
        self.kept = kept
        self._missing = missing
        self.lock = lock or nullcontext()
        self.dropped: frozenset[K] = frozenset()

    def get(self, key: Any, default: Any = None) -> Any:
        if (value := super().get(key)) is None:
            with self.lock:
                value = super().get(key)  # another thread may have read it
                if value is None and self.kept is not None and key not in self.dropped:
                    value = self.kept.find(key)
                    if value is not None:
                        self[key] = value
                        self._missing -= 1
        return default if value is None else value

    def __missing__(self, key: K) -> V:
        if (value := self.get(key)) is None:
            raise KeyError(key)
        found: V = value
        return found

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        with self.lock:
            return super().__len__() + self._missing

    def __iter__(self) -> Iterator[K]:
        """Read all entries into memory, and iterate over them in the order of the whole table."""
        with self.lock:
            if self.kept is not None:
                loaded = dict(dict.items(self))
                stored = self.kept.all_entries()
                entries = {key: value for key, value in stored if key not in self.dropped} | loaded
                super().clear()
                super().update(entries)
                self.kept, self._missing = None, 0
        return super().__iter__()

    def __delitem__(self, key: K) -> None:
        self[key]  # reads the entry; raises KeyError
        super().__delitem__(key)
        self.dropped |= {key}

    def pop(self, key: Any, *default: Any) -> Any:
        if key not in self and default:
            return default[0]
        value = self[key]
        del self[key]
        return value

    def copy(self) -> Table[K, V]:
        """Copy only the entries in memory."""
        with self.lock:
            table = Table(dict(dict.items(self)), self.kept, self._missing, self.lock)
            table.dropped = self.dropped
        return table

    def __ne__(self, other: object) -> bool:
        return not self == other

    # The methods of dict ignore stored entries. The methods of Mapping call only the methods above and `self[key]`.
    __eq__ = Mapping.__eq__
    keys, values, items = Mapping.keys, Mapping.values, Mapping.items  # type: ignore[assignment]  # typed for any Mapping
    setdefault = MutableMapping.setdefault
    __hash__ = None  # as for any dict

    # The following methods of dict would make `len` wrong. iris does not use them.
    __or__ = __ior__ = __reversed__ = update = clear = popitem = None  # type: ignore[assignment]  # so that a call fails


def values_in_memory(table: dict[K, V]) -> list[V]:
    """Return the entries of a table that are in memory. For a plain dict these are all entries."""
    # A copy, because a look-up, also in another thread, adds entries to the table.
    with table.lock if isinstance(table, Table) else nullcontext():
        return list(dict.values(table))


MAX_ENDPOINT_CHANGES = 1000  # maximum for one attempt, because each change stays in the log


class Endpoint(Value, frozen=True, kw_only=True):
    """A port of a task on the task's host. iris does not interpret `metadata`."""

    name: str
    port: int
    metadata: Mapping[str, str] = field(default_factory=dict)


class Announced(Value, frozen=True, kw_only=True):
    """The endpoints of one attempt. `requests` are the ids of its applied requests: iris applies each request once."""

    endpoints: tuple[Endpoint, ...] = ()
    requests: tuple[RequestId, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.endpoints)

    def plus(self, endpoint: Endpoint, request: RequestId) -> Announced:
        """Return a copy with this endpoint. An endpoint of the same name is replaced."""
        others = self.minus(endpoint.name, request)
        return Announced(endpoints=(*others.endpoints, endpoint), requests=others.requests)

    def minus(self, name: str, request: RequestId) -> Announced:
        left = tuple(each for each in self.endpoints if each.name != name)
        return Announced(endpoints=left, requests=(*self.requests, request))


BATCH = 32  # maximum number of attempts reaped in one call


class Outputs(Struct, frozen=True, kw_only=True):
    """The ended attempts whose files are on one worker, in the order of their ends, in batches of `BATCH`.

    `full` are the full batches, `last` is the newest batch. `asked_at`: time of the last call to delete files.
    """

    full: tuple[tuple[AttemptId, ...], ...] = ()
    last: tuple[AttemptId, ...] = ()
    asked_at: float | None = None

    @property
    def oldest_batch(self) -> tuple[AttemptId, ...]:
        return self.full[0] if self.full else self.last

    @property
    def attempts(self) -> tuple[AttemptId, ...]:
        return (*(attempt for batch in self.full for attempt in batch), *self.last)

    def plus(self, attempt: AttemptId) -> Outputs:
        """Return a copy to which the attempt is added as the newest."""
        if len(self.last) < BATCH:
            return Outputs(full=self.full, last=(*self.last, attempt), asked_at=self.asked_at)
        return Outputs(full=(*self.full, self.last), last=(attempt,), asked_at=self.asked_at)

    def minus(self, count: int, asked_at: float) -> Outputs:
        """Return a copy without the first `count` attempts of the oldest batch, after a call at `asked_at`."""
        rest = self.oldest_batch[count:]
        if not self.full:
            return Outputs(last=rest, asked_at=asked_at)
        full = (*((rest,) if rest else ()), *self.full[1:])
        return Outputs(full=full, last=self.last, asked_at=asked_at)


NO_OUTPUTS = Outputs()

_PENDING = TaskState.PENDING


class Cluster(Struct, kw_only=True, eq=False):
    """The state derived from the log, as tables of immutable records. Jobs are in the order of submission.

    `ghosts`: for each worker, the attempts that were presumed gone and may still run. Ghosts remain after their
    worker is forgotten. `outputs`: for each worker, its ended attempts whose files were not deleted yet.

    iris reads an ended job from the snapshot when it is looked up. An iteration over a whole table reads all ended
    jobs, so frequent loops use `open_jobs` and `pending_tasks`.
    """

    name: str = ""
    seq: int = 0  # number of the last applied transaction
    at: float = 0.0  # time of the last applied transaction
    jobs: dict[JobId, Job] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    workers: dict[WorkerId, Worker] = field(default_factory=dict)
    ghosts: dict[WorkerId, tuple[Ghost, ...]] = field(default_factory=dict)
    outputs: dict[WorkerId, Outputs] = field(default_factory=dict)
    children: dict[JobId, tuple[JobId, ...]] = field(default_factory=dict)  # the direct child jobs, by parent
    endpoints: dict[AttemptId, Announced] = field(default_factory=dict)  # only of live attempts
    slices: dict[str, Slice] = field(default_factory=dict)  # all slices that are not deleted yet
    scale_groups: dict[str, GroupRecord] = field(default_factory=dict)
    slice_owner: SliceOwner | None = None  # None: no slice was created yet
    past: Past | None = None

    def __eq__(self, other: object) -> bool:
        """Return whether all tables are equal, whether or not their entries are in memory."""
        if not isinstance(other, Cluster):
            return NotImplemented
        fields = (name for name in self.__struct_fields__ if name != "past")
        return all(getattr(self, name) == getattr(other, name) for name in fields)

    def __ne__(self, other: object) -> bool:
        return not self == other  # Struct defines its own `__ne__`, which does not call `__eq__`

    __hash__ = None  # type: ignore[assignment]  # mutable

    def copy(self) -> Cluster:
        """Return a copy with its own tables, which share the records."""
        copied = copy(self)
        for name in self.__struct_fields__:
            table = getattr(self, name)
            if isinstance(table, dict):
                setattr(copied, name, table.copy())
        return copied

    def open_jobs(self) -> list[Job]:
        """Return the jobs that have not ended, or have live attempts or ghosts, in the order of submission."""
        jobs_with_claims = {attempt.task.job for worker in self.workers.values() for attempt in worker.claims}
        jobs_with_claims |= {ghost.attempt.task.job for ghosts in self.ghosts.values() for ghost in ghosts}
        return [job for job in values_in_memory(self.jobs) if job.end is None or job.id in jobs_with_claims]

    def pending_tasks(self) -> list[Task]:
        """Return the pending tasks, job by job."""
        return [task for task in values_in_memory(self.tasks) if task.state is _PENDING]

    def last_ended(self, limit: int) -> list[Job]:
        """Return up to `limit` ended jobs, the latest end first."""
        ended = {job.id: job for job in values_in_memory(self.jobs) if job.end is not None}
        for job in self.past.last_ended(limit) if self.past is not None else ():
            ended[job] = self.jobs[job]
        return nsmallest(limit, ended.values(), key=_by_latest_end)

    def tasks_of(self, job: JobId) -> list[Task]:
        return [self.tasks[task] for task in self.jobs[job].task_ids]

    def attempt(self, attempt: AttemptId) -> Attempt:
        """Return one attempt. Raises KeyError if it does not exist."""
        attempts = self.tasks[attempt.task].attempts
        if attempt.number >= len(attempts):
            raise KeyError(str(attempt))
        return attempts[attempt.number]

    def find_attempt(self, attempt_id: AttemptId, token: Token | None = None) -> Attempt | None:
        """Return the attempt, or None if it does not exist, or not with this token."""
        task = self.tasks.get(attempt_id.task)
        if task is None or attempt_id.number >= len(task.attempts):
            return None
        attempt = task.attempts[attempt_id.number]
        return attempt if token in (None, attempt.token) else None

    def unknown_tokens(self, tokens: Iterable[Token]) -> tuple[Token, ...]:
        """Return the tokens that no attempt ever had."""
        known = {attempt.token for task in values_in_memory(self.tasks) for attempt in task.attempts}
        unknown = tuple(token for token in tokens if token not in known)
        return self.past.unknown_tokens(unknown) if self.past is not None and unknown else unknown

    def live_attempts(self) -> Iterator[tuple[AttemptId, Attempt]]:
        """Yield every attempt that isn't ENDED, worker by worker."""
        for worker in self.workers.values():
            yield from self.live_attempts_on(worker.id)

    def live_attempts_on(self, worker: WorkerId) -> Iterator[tuple[AttemptId, Attempt]]:
        """Yield the attempts on a worker that aren't ENDED, in the order of their assignment."""
        for attempt_id in self.workers[worker].claims:
            yield attempt_id, self.attempt(attempt_id)

    def live_attempts_of(self, job: JobId) -> list[tuple[AttemptId, Attempt]]:
        """Return the attempts of a job that aren't ENDED, by task index."""
        return [
            (AttemptId(task.id, attempt.number), attempt)
            for task in self.tasks_of(job)
            for attempt in task.attempts[-1:]
            if attempt.live
        ]

    def stopping_jobs(self) -> dict[WorkerId, list[JobId]]:
        """Return the workers with attempts that are being stopped, each with the job of every such attempt."""
        last_attempts = [task.attempts[-1] for task in values_in_memory(self.tasks) if task.attempts]
        workers = {attempt.worker for attempt in last_attempts if type(attempt.phase) is Stopping}
        found: dict[WorkerId, list[JobId]] = {}
        for worker in [each for each in self.workers if each in workers]:
            for attempt_id, attempt in self.live_attempts_on(worker):
                if type(attempt.phase) is Stopping:
                    found.setdefault(worker, []).append(attempt_id.task.job)
        return found

    def endpoints_of(self, job: JobId) -> list[tuple[AttemptId, Endpoint]]:
        """Return the endpoints of a job's live attempts, by task index and name."""
        return [
            (attempt_id, endpoint)
            for attempt_id, _ in self.live_attempts_of(job)
            if attempt_id in self.endpoints
            for endpoint in sorted(self.endpoints[attempt_id].endpoints, key=lambda each: each.name)
        ]

    def children_of(self, job: JobId) -> list[Job]:
        return [self.jobs[child] for child in self.children.get(job, ())]

    def job_state(self, job_id: JobId) -> JobState:
        return state_of(self.jobs[job_id], self.tasks_of(job_id))


def state_of(job: Job, tasks: Sequence[Task]) -> JobState:
    """Return the state of a job, derived from its tasks. The first rule that matches counts."""
    states = [task.state for task in tasks]
    distinct = set(states)
    all_ended = all(state.terminal for state in distinct)
    may_end_early = all_ended or not job.keep_going
    if may_end_early and TaskState.UNSCHEDULABLE in distinct:
        return JobState.UNSCHEDULABLE
    if job.cancelled:
        return JobState.KILLED
    if may_end_early and states.count(TaskState.FAILED) > job.max_task_failures:
        return JobState.FAILED
    if job.is_gang and TaskState.WORKER_FAILED in distinct:
        return JobState.FAILED
    if all_ended:
        only_tolerated = distinct <= {TaskState.FAILED, TaskState.SUCCEEDED}
        return JobState.SUCCEEDED if only_tolerated else JobState.FAILED
    attempts = chain.from_iterable([task.attempts for task in tasks if task.attempts])
    started = any(attempt.started_at is not None for attempt in attempts)
    return JobState.RUNNING if started else JobState.PENDING


def _by_latest_end(job: Job) -> tuple[float, int]:
    """Return a sort key: the latest end first. Among equal ends, the job that was submitted last comes first."""
    assert job.end is not None
    return -job.end.at, -job.order
