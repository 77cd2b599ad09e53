"""What must hold of every cluster at every moment. One function says everything that doesn't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from iris_cli.core.cluster import Cluster
from iris_cli.core.constraints import TPU_NAME_ATTRIBUTE_KEY
from iris_cli.core.ids import AttemptId, WorkerId
from iris_cli.core.job import Job
from iris_cli.core.task import AttemptState, Task, TaskState
from iris_cli.core.worker import Claim, Worker


def breaches(cluster: Cluster) -> list[str]:
    """Every violated invariant, in words; empty for a sound cluster."""
    live: dict[WorkerId, set[AttemptId]] = {}
    for task in cluster.tasks.values():
        for attempt in task.attempts:
            if attempt.live:
                live.setdefault(attempt.worker, set()).add(AttemptId(task.id, attempt.number))
    return [
        *(
            breach
            for worker in cluster.workers.values()
            for breach in _worker(worker, live.get(worker.id, set()))
        ),
        *(breach for task in cluster.tasks.values() for breach in _task(cluster, task)),
        *(breach for job in cluster.jobs.values() if job.is_gang for breach in _gang(cluster, job)),
    ]


def _worker(worker: Worker, live: set[AttemptId]) -> Iterator[str]:
    if live != set(worker.claims):
        yield f"{worker.id}: claims of {sorted(map(str, worker.claims))}, live attempts {sorted(map(str, live))}"
    yield from _over_committed(worker, list(worker.claims.values()))


def _over_committed(worker: Worker, claims: list[Claim]) -> Iterator[str]:
    cpu = sum(claim.cpu_millis for claim in claims)
    if cpu > worker.cpu_millis:
        yield f"{worker.id}: {cpu} of {worker.cpu_millis} thousandths of a core are committed"
    memory = sum(claim.memory for claim in claims)
    if memory > worker.memory:
        yield f"{worker.id}: {memory} of {worker.memory} bytes of memory are committed"
    tenants = sum(claim.chips for claim in claims)
    if tenants > 1:
        yield f"{worker.id}: its chips have {tenants} tenants"
    for gpu, count in Counter(gpu for claim in claims for gpu in claim.gpus).items():
        if count > 1 or gpu >= worker.gpus:
            yield f"{worker.id}: GPU {gpu} is handed out {count} times, of {worker.gpus}"


def _task(cluster: Cluster, task: Task) -> Iterator[str]:
    if task.job not in cluster.jobs:
        yield f"{task.id}: its job does not exist"
        return
    if [attempt.number for attempt in task.attempts] != list(range(len(task.attempts))):
        yield f"{task.id}: attempt numbers {[attempt.number for attempt in task.attempts]}"
    live = [attempt for attempt in task.attempts if attempt.live]
    if len(live) > 1:
        yield f"{task.id}: {len(live)} live attempts"
    for attempt in live:
        claims = cluster.workers[attempt.worker].claims if attempt.worker in cluster.workers else {}
        if AttemptId(task.id, attempt.number) not in claims:
            yield f"{task.id}/attempt-{attempt.number}: lives, but holds nothing of {attempt.worker}"
        if attempt.state is not AttemptState.STOPPING and (
            task.state.terminal or task.state is TaskState.PENDING
        ):
            yield f"{task.id}: {task.state} with a live attempt that is {attempt.state}"
    if task.state.terminal != (task.end is not None):
        yield f"{task.id}: {task.state}, and its end is {task.end}"
    if task.state is TaskState.ASSIGNED and not live:
        yield f"{task.id}: ASSIGNED without a live attempt"


def _gang(cluster: Cluster, job: Job) -> Iterator[str]:
    """The round in flight stands on exactly its groups: all ranks of it or none."""
    assert job.coscheduling is not None
    if job.end is not None or job.rounds == job.settled_rounds:
        return
    ranks = [task.attempts[-1] for task in cluster.tasks_of(job.id) if task.attempts]
    placed = [attempt for attempt in ranks if attempt.round == job.rounds - 1]
    if len(placed) != job.replicas:
        yield f"{job.id}: {len(placed)} of {job.replicas} ranks are placed"
        return
    workers = [cluster.workers[attempt.worker] for attempt in placed if attempt.worker in cluster.workers]
    if len({attempt.worker for attempt in placed}) != job.replicas:
        yield f"{job.id}: two ranks share a worker"
    if len(workers) < job.replicas:
        return  # a forgotten worker takes its attributes with it
    groups: dict[object, set[WorkerId]] = {}
    for worker in workers:
        groups.setdefault(worker.attributes.get(job.coscheduling.group_by), set()).add(worker.id)
    if len(groups) != job.slices:
        yield f"{job.id}: stands on {len(groups)} groups of {job.coscheduling.group_by}, not on {job.slices}"
    if (
        job.coscheduling.group_by == TPU_NAME_ATTRIBUTE_KEY
        and len({len(group) for group in groups.values()}) > 1
    ):
        yield f"{job.id}: its slices carry unequal numbers of ranks"
