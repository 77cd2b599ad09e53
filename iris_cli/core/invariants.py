"""What must hold of every cluster at every moment. One function says everything that doesn't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from iris_cli.core.cluster import Cluster
from iris_cli.core.constraints import TPU_VM_COUNT_ATTRIBUTE_KEY, AttributeValue
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
        *(breach for job in cluster.jobs.values() for breach in _job(cluster, job)),
    ]


def _worker(worker: Worker, live: set[AttemptId]) -> Iterator[str]:
    if live != set(worker.claims):
        claims = sorted(map(str, worker.claims))
        yield f"{worker.id}: claims of {claims}, live attempts {sorted(map(str, live))}"
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
    placed = task.state in (TaskState.ASSIGNED, TaskState.RUNNING)
    if placed and not live and not _in_flight(cluster.jobs[task.job]):
        yield f"{task.id}: {task.state} without a live attempt"


def _in_flight(job: Job) -> bool:
    """Whether a gang has a round without a verdict: the ranks that have ended wait for the others."""
    return job.end is None and job.rounds != job.settled_rounds


def _job(cluster: Cluster, job: Job) -> Iterator[str]:
    missing = [str(task) for task in job.task_ids if task not in cluster.tasks]
    if missing:
        yield f"{job.id}: {', '.join(missing)} do not exist"
        return
    still_open = [str(task.id) for task in cluster.tasks_of(job.id) if not task.state.terminal]
    if job.end is not None and still_open:
        yield f"{job.id}: has ended, but {', '.join(still_open)} not"
    if _in_flight(job):
        yield from _gang(cluster, job)


def _gang(cluster: Cluster, job: Job) -> Iterator[str]:
    """The round in flight stands on exactly its groups: all ranks of it or none."""
    assert job.coscheduling is not None
    ranks = [task.attempts[-1] for task in cluster.tasks_of(job.id) if task.attempts]
    placed = [attempt for attempt in ranks if attempt.round == job.rounds - 1]
    if len(placed) != job.replicas:
        yield f"{job.id}: {len(placed)} of {job.replicas} ranks are placed"
        return
    if len({attempt.worker for attempt in placed}) != job.replicas:
        yield f"{job.id}: two ranks share a worker"
    if not all(attempt.live and attempt.worker in cluster.workers for attempt in placed):
        return  # the host of a rank that has ended may be another one by now
    groups: dict[AttributeValue | None, list[Worker]] = {}
    for attempt in placed:
        worker = cluster.workers[attempt.worker]
        groups.setdefault(worker.attributes.get(job.coscheduling.group_by), []).append(worker)
    if len(groups) != job.slices or None in groups:
        names = ", ".join(str(key.value) if key else "no group" for key in groups)
        yield f"{job.id}: stands on {names}, not on {job.slices} groups of {job.coscheduling.group_by}"
    device = job.resources.device
    if device is not None and device.kind == "tpu":
        yield from (breach for group in groups.values() for breach in _slice(job, group))


def _slice(job: Job, members: list[Worker]) -> Iterator[str]:
    """A TPU gang takes whole slices: as many ranks on each as it has VMs."""
    share = job.replicas // job.slices
    vms = members[0].attributes.get(TPU_VM_COUNT_ATTRIBUTE_KEY, AttributeValue(share))
    if not len(members) == share == vms.value:
        names = ", ".join(member.id for member in members)
        yield f"{job.id}: {len(members)} ranks on {names}, of a slice of {vms.value} VMs"
