"""Random clusters for property tests: workers and jobs with earlier attempts, some of which have not ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st
from msgspec.structs import replace

from iris_cli.core.ids import AttemptId, JobId, TaskId, Token, WorkerId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job, MissingInputs
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import Attempt, AttemptState, End, EndReason, Task, TaskState
from iris_cli.core.model.worker import Claim, Ghost, Worker
from iris_cli.core.scheduling import Plan, plan
from tests.support.fleet import gang, job
from tests.support.phases import PHASES
from tests.support.random_fleet import NOW, Dice, a_fleet, a_job

_ENDED, _STOPPING = AttemptState.ENDED, AttemptState.STOPPING
_PENDING = TaskState.PENDING

Past = tuple[TaskState, AttemptState | None]
"""The state of a task and of its last attempt, None if it had none."""

_LIVE: list[Past] = [
    (TaskState.RUNNING, AttemptState.RUNNING),
    (TaskState.RUNNING, AttemptState.RUNNING),
    (TaskState.ASSIGNED, AttemptState.ASSIGNED),
    (_PENDING, _STOPPING),
    (TaskState.KILLED, _STOPPING),
    (TaskState.WORKER_FAILED, _STOPPING),
]

_OVER: list[Past] = [
    (_PENDING, _ENDED),
    (_PENDING, _ENDED),
    (TaskState.SUCCEEDED, _ENDED),
    (TaskState.FAILED, _ENDED),
    (TaskState.KILLED, None),
    (TaskState.WORKER_FAILED, _ENDED),
    (TaskState.UNSCHEDULABLE, None),
]


@dataclass(frozen=True)
class State:
    """The input of a plan."""

    cluster: Cluster
    without_secrets: dict[JobId, list[str]]
    gang_reserve_after: float
    limits: Limits = field(default_factory=lambda: Limits(backoff_max=300.0))

    def plan(self) -> Plan:
        return plan(
            self.cluster,
            NOW,
            limits=self.limits,
            gang_reserve_after=self.gang_reserve_after,
            missing=MissingInputs(secrets=self.without_secrets),
        )

    def __repr__(self) -> str:
        """Return one record per line."""
        tables = (self.cluster.workers, self.cluster.jobs, self.cluster.tasks, self.cluster.ghosts)
        lines = [repr(each) for table in tables for each in table.values()]
        return "\n".join([*lines, repr(self.without_secrets), repr(self.gang_reserve_after)])


def a_state(dice: Dice) -> State:
    """Return a consistent random cluster."""
    queue = [a_job(dice, number) for number in range(1 + dice.up_to(6))]
    names = [each.id for each in queue]
    queue = [_with_a_past(dice, each, names[:at]) for at, each in enumerate(queue)]
    cluster = Cluster(jobs=dict(_JOBS), tasks=dict(_TASKS))
    for each in queue:
        cluster.jobs[each.id] = each
        cluster.tasks.update((task.id, task) for task in _tasks(dice, each))
    for worker in a_fleet(dice):
        cluster.workers[worker.id] = _hosting(dice, cluster, worker)
        if dice.rarely(32):
            cluster.ghosts[worker.id] = (_GHOST,)
    secrets = {each.id: ["TOKEN"] for each in queue if dice.rarely(12)}
    return State(cluster, secrets, dice.pick([600.0, 600.0, 0.0]))


states = st.binary(min_size=400, max_size=400).map(Dice).map(a_state)


_GHOST = Ghost(attempt=AttemptId(TaskId(JobId("gone"), 0), 0), token=Token("0" * 32), boot_id="b")

# Jobs

_PAST: dict[str, Sequence[TaskState]] = {
    "succeeded": [TaskState.SUCCEEDED, TaskState.SUCCEEDED],
    "tolerated": [TaskState.SUCCEEDED, TaskState.FAILED],
    "runs": [TaskState.SUCCEEDED, TaskState.RUNNING],
    "waits": [TaskState.ASSIGNED, TaskState.FAILED],
    "failed": [TaskState.FAILED, TaskState.FAILED],
    "cancelled": [TaskState.RUNNING, TaskState.KILLED],
    "unschedulable": [TaskState.UNSCHEDULABLE, TaskState.RUNNING],
    "killed": [TaskState.SUCCEEDED, TaskState.KILLED],
    "lost": [TaskState.WORKER_FAILED, TaskState.RUNNING],
    "lost gang": [TaskState.WORKER_FAILED, TaskState.RUNNING],
    "old": [TaskState.SUCCEEDED],
}

_GOOD = [JobId(name) for name in ("succeeded", "succeeded", "succeeded", "tolerated", "runs", "waits")]
_BAD = [
    JobId(name) for name in ("failed", "cancelled", "unschedulable", "killed", "lost", "lost gang", "nobody")
]


def _past_job(name: str, replicas: int) -> Job:
    """Return a job on which others depend. It tolerates one failure if it is not a gang."""
    if name == "lost gang":
        return gang(name, replicas=replicas)
    return job(
        name, replicas=replicas, max_task_failures=1, cancelled=name == "cancelled", end=_ENDS.get(name)
    )


_ENDS = {"succeeded": End(reason=EndReason.OK, at=950.0), "tolerated": End(reason=EndReason.OK, at=300.0)}


_JOBS = {JobId(name): _past_job(name, len(states)) for name, states in _PAST.items()}
_TASKS = {
    each: Task(id=each, state=state)
    for name, states in _PAST.items()
    for each, state in zip(_JOBS[JobId(name)].task_ids, states, strict=True)
}


def _with_a_past(dice: Dice, asked: Job, earlier: list[JobId]) -> Job:
    after = dice.pick([[], [], [_GOOD], [_GOOD, [*earlier, *_GOOD]], [], [_GOOD, _BAD], [], [], []])
    asked = replace(asked, after=tuple(dict.fromkeys(dice.pick(names) for names in after)))
    match dice.up_to(23):
        case 1:
            return replace(asked, cancelled=True)
        case 2:
            return replace(asked, end=End(reason=EndReason.JOB_ENDED))
        case 3:
            return replace(asked, rounds=2, settled_rounds=dice.pick([1, 2]))
    return asked


# Tasks and attempts


def _tasks(dice: Dice, of: Job) -> Iterator[Task]:
    for each in of.task_ids:
        yield _task(each, *dice.pick(_OVER)) if dice.rarely(20) else Task(id=each)


def _task(name: TaskId, state: TaskState, last: AttemptState | None, on: str = "h0") -> Task:
    """Return a task. A live attempt has an earlier one that ended."""
    tried = [] if last is None else [last] if last is _ENDED else [_ENDED, last]
    attempts = tuple(
        Attempt(number=number, worker=WorkerId(on), token=Token(f"{number:032x}"), phase=PHASES[each])
        for number, each in enumerate(tried)
    )
    return Task(id=name, state=state, attempts=attempts)


def _hosting(dice: Dice, cluster: Cluster, worker: Worker) -> Worker:
    """Return the worker; its resources are held by attempts of the cluster."""
    claims: dict[AttemptId, Claim] = {}
    for claimed, claim in worker.claims.items():
        task = _task(_untouched(dice, cluster, claimed.task.job), *dice.pick(_LIVE), on=worker.id)
        cluster.tasks[task.id] = task
        claims[task.current_id] = claim
    return replace(worker, claims=claims)


def _untouched(dice: Dice, cluster: Cluster, name: JobId) -> TaskId:
    """Return a never placed task of the job, otherwise a new one of job `old`."""
    of = None if name in _PAST else cluster.jobs.get(name)
    if of is not None:
        for each in of.task_ids:
            if not cluster.tasks[each].attempts:
                if of.is_gang and not of.rounds:
                    cluster.jobs[name] = replace(of, rounds=1, settled_rounds=dice.up_to(1))
                return each
    old = cluster.jobs[JobId("old")]
    cluster.jobs[old.id] = replace(old, replicas=old.replicas + 1)
    return TaskId(old.id, old.replicas)
