"""Conditions that every state of a cluster must meet. `breaches` reports all violations."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from iris_cli.core import AttemptState, Claim, Cluster, EndReason, Job, SliceState, Task, TaskState, Worker
from iris_cli.core.constraints import TPU_VM_COUNT_ATTRIBUTE_KEY, AttributeValue
from iris_cli.core.ids import AttemptId, JobId, WorkerId, parent_of


def breaches(cluster: Cluster) -> list[str]:
    """Return a text for every violated condition; empty for a valid cluster. Attempts presumed gone count as ended."""
    live: dict[WorkerId, set[AttemptId]] = {}
    for task in cluster.tasks.values():
        for attempt in task.attempts:
            if attempt.live:
                live.setdefault(attempt.worker, set()).add(AttemptId(task.id, attempt.number))
    workers, tasks, jobs = cluster.workers.values(), cluster.tasks.values(), cluster.jobs.values()
    checks = (
        *(_check_worker(cluster, worker, live.get(worker.id, set())) for worker in workers),
        *(_check_tokens(cluster), _check_ghosts(cluster), _check_outputs(cluster)),
        *(_check_child_jobs(cluster), _check_resubmissions(cluster)),
        *(_check_endpoints(cluster), _check_slices(cluster)),
        *(_check_task(cluster, task) for task in tasks),
        *(_check_job(cluster, job) for job in jobs),
    )
    return list(chain.from_iterable(checks))


def _check_worker(cluster: Cluster, worker: Worker, live: set[AttemptId]) -> Iterator[str]:
    if live != set(worker.claims):
        claims = sorted(map(str, worker.claims))
        yield f"{worker.id}: claims of {claims}, but live attempts {sorted(map(str, live))}"
    yield from _check_sums_of_claims(worker)
    for attempt_id, claim in worker.claims.items():
        job = cluster.jobs.get(attempt_id.task.job)
        if attempt_id not in live or job is None:
            continue
        expected = Claim.of(job.resources, cluster.attempt(attempt_id).gpus)
        if claim != expected:
            yield f"{worker.id}: {attempt_id} holds {claim}, not {expected}"


def _check_tokens(cluster: Cluster) -> Iterator[str]:
    tokens = Counter(attempt.token for task in cluster.tasks.values() for attempt in task.attempts)
    yield from (f"{count} attempts have the token {token}" for token, count in tokens.items() if count > 1)


def _check_ghosts(cluster: Cluster) -> Iterator[str]:
    for worker, ghosts in cluster.ghosts.items():
        if not ghosts:
            yield f"{worker}: has an empty list of ghosts"
        for ghost, times in Counter(ghosts).items():
            attempt = cluster.find_attempt(ghost.attempt, ghost.token)
            if times > 1 or attempt is None or attempt.worker != worker:
                yield f"{worker}: its ghost {ghost.attempt} is not an attempt on this worker"
            elif not attempt.presumed:
                yield f"{worker}: its ghost {ghost.attempt} was not presumed gone"


def _check_outputs(cluster: Cluster) -> Iterator[str]:
    """Check that attempts whose files will be deleted have ended with proof, and are not listed twice."""
    ghosts = {ghost.attempt for ghosts in cluster.ghosts.values() for ghost in ghosts}
    for worker, outputs in cluster.outputs.items():
        for attempt_id, times in Counter(outputs.attempts).items():
            attempt = cluster.attempt(attempt_id)
            ended = not attempt.live and attempt_id not in ghosts
            if times > 1 or worker not in cluster.workers or attempt.worker != worker or not ended:
                yield f"{worker}: its output of {attempt_id} must not be deleted"
            elif attempt.reaped_at is not None:
                yield f"{worker}: its output of {attempt_id} is already deleted"


def _check_child_jobs(cluster: Cluster) -> Iterator[str]:
    """Check that each child job was submitted by an attempt of its parent, and ends no later than the parent."""
    children: dict[JobId, list[JobId]] = {}
    for job in cluster.jobs.values():
        parent = parent_of(job.id)
        if parent is None or parent not in cluster.jobs:
            yield from [f"{job.id}: has no parent"] * (parent is not None or job.origin is not None)
            continue
        children.setdefault(parent, []).append(job.id)
        if cluster.jobs[parent].order > job.order:
            yield f"{job.id}: was submitted before its parent"
        if job.end is None and cluster.jobs[parent].end is not None:
            yield f"{job.id}: is open, but its parent has ended"
        for origin in filter(None, (job.origin, job.adopted)):
            if cluster.find_attempt(origin.attempt) is None or origin.attempt.task.job != parent:
                yield f"{job.id}: was submitted by {origin.attempt}, which is not an attempt of its parent"
    if cluster.children and children != {parent: [*known] for parent, known in cluster.children.items()}:
        yield "the table of child jobs does not match the parents of jobs"
    origins = [origin for job in cluster.jobs.values() for origin in (job.origin, job.adopted) if origin]
    for (attempt, request), count in Counter((each.attempt, each.request) for each in origins).items():
        if count > 1:
            yield f"{attempt}: its request {request} submitted {count} jobs"


def _check_resubmissions(cluster: Cluster) -> Iterator[str]:
    """Check that resubmitted jobs and their predecessors refer to each other, in the order of submission."""
    pairs = [(job.again, job.id) for job in cluster.jobs.values() if job.again is not None]
    known = [(job.id, next_job) for job in cluster.jobs.values() for next_job in job.tried_again]
    if sorted(pairs) != sorted(known):
        yield "the resubmitted jobs do not match the jobs that name a predecessor"
    for before, after in pairs:
        if before not in cluster.jobs or cluster.jobs[before].end is None:
            yield f"{after}: resubmits {before}, which has not ended"
        elif cluster.jobs[before].order > cluster.jobs[after].order:
            yield f"{after}: was submitted before {before}, which it resubmits"


def _check_endpoints(cluster: Cluster) -> Iterator[str]:
    """Check that only live attempts have endpoints, with unique names."""
    for attempt_id, existing in cluster.endpoints.items():
        attempt = cluster.find_attempt(attempt_id)
        if attempt is None or not attempt.live:
            yield f"{attempt_id}: has endpoints, but is not live"
        for listed in (existing.names, existing.requests):
            if len(set(listed)) != len(listed):
                yield f"{attempt_id}: an endpoint, or a request for one, is listed twice"


def _check_slices(cluster: Cluster) -> Iterator[str]:
    """Check that each slice is counted in its group, and has the data that its state requires."""
    counts = Counter(each.group for each in cluster.slices.values() if each.requested_at)
    for group, count in counts.items():
        record = cluster.scale_groups.get(group)
        if record is None or record.requested < count:
            yield f"scale group {group}: {count} slices, but {record.requested if record else 0} were requested"
    for name, each in cluster.slices.items():
        is_started = each.state in (SliceState.BOOTING, SliceState.READY)
        if name != each.name or (is_started and not each.hosts) or (is_started and each.started_at is None):
            yield f"slice {name}: is {each.state} with {len(each.hosts)} hosts, started at {each.started_at}"
        if (each.state is SliceState.DELETING) != (each.deleting_at is not None):
            yield f"slice {name}: is {each.state}, with its deletion requested at {each.deleting_at}"
    machines = Counter(each.incarnation for each in cluster.slices.values() if each.incarnation)
    for incarnation, count in machines.items():
        if count > 1:
            yield f"{count} slices have the incarnation {incarnation}"


def _check_sums_of_claims(worker: Worker) -> Iterator[str]:
    """Check that the claims fit the host's size. Claims that are older than a reduction of that size may exceed it."""
    claims = list(worker.claims.values())
    newer = [claim for attempt, claim in worker.claims.items() if attempt not in worker.placed_before_change]
    cpu = sum(claim.cpu_millis for claim in claims)
    if cpu > worker.cpu_millis and any(claim.cpu_millis for claim in newer):
        yield f"{worker.id}: {cpu} of {worker.cpu_millis} thousandths of a core are committed"
    memory = sum(claim.memory for claim in claims)
    if memory > worker.memory and any(claim.memory for claim in newer):
        yield f"{worker.id}: {memory} of {worker.memory} bytes of memory are committed"
    tenants = sum(claim.chips for claim in claims)
    if tenants > 1:
        yield f"{worker.id}: {tenants} attempts hold its chips"
    newer_gpus = {gpu for claim in newer for gpu in claim.gpus}
    for gpu, count in Counter(gpu for claim in claims for gpu in claim.gpus).items():
        if count > 1 or (gpu >= worker.gpus and gpu in newer_gpus):
            yield f"{worker.id}: GPU {gpu} is assigned {count} times, of {worker.gpus} GPUs"


def _check_task(cluster: Cluster, task: Task) -> Iterator[str]:
    if task.job not in cluster.jobs:
        yield f"{task.id}: its job does not exist"
        return
    if [attempt.number for attempt in task.attempts] != list(range(len(task.attempts))):
        yield f"{task.id}: attempt numbers {[attempt.number for attempt in task.attempts]}"
    for attempt in task.attempts:
        if attempt.refused and attempt.started_at is not None:
            yield f"{task.id}/attempt-{attempt.number}: started, but is marked as refused"
    live = [attempt for attempt in task.attempts if attempt.live]
    placed = task.state in (TaskState.ASSIGNED, TaskState.RUNNING)
    if len(live) > 1:
        yield f"{task.id}: {len(live)} live attempts"
    if any(attempt is not task.attempts[-1] for attempt in live):
        yield f"{task.id}: a live attempt is not the last attempt"
    for attempt in live:
        claims = cluster.workers[attempt.worker].claims if attempt.worker in cluster.workers else {}
        if AttemptId(task.id, attempt.number) not in claims:
            yield f"{task.id}/attempt-{attempt.number}: is live, but has no claim on {attempt.worker}"
        if attempt.state is not AttemptState.STOPPING and not placed:
            yield f"{task.id}: {task.state} with a live attempt that is {attempt.state}"
        if attempt.state is AttemptState.RUNNING and task.state is TaskState.ASSIGNED:
            yield f"{task.id}: ASSIGNED, but its attempt is running"
    if task.state.terminal != (task.end is not None):
        yield f"{task.id}: {task.state}, but its end is {task.end}"
    job = cluster.jobs[task.job]
    if placed and not live and not _has_open_round(job):
        yield f"{task.id}: {task.state} without a live attempt"
    ended_well = any(attempt.end and attempt.end.reason is EndReason.OK for attempt in task.attempts[-1:])
    if task.state is TaskState.SUCCEEDED and not ended_well:
        yield f"{task.id}: SUCCEEDED, but its last attempt did not"
    if task.failures > job.max_retries_failure:  # each retry is charged before it starts
        yield f"{task.id}: {task.failures} failures charged, {job.max_retries_failure} allowed"
    if task.preemptions > job.max_retries_preemption:
        yield f"{task.id}: {task.preemptions} lost hosts charged, {job.max_retries_preemption} allowed"


def _has_open_round(job: Job) -> bool:
    """Return whether a gang has a round without a verdict. Ended ranks of this round wait for the other ranks."""
    return job.end is None and job.rounds != job.settled_rounds


def _check_job(cluster: Cluster, job: Job) -> Iterator[str]:
    missing = [str(task) for task in job.task_ids if task not in cluster.tasks]
    if missing:
        yield f"{job.id}: {', '.join(missing)} do not exist"
        return
    still_open = [task.id for task in cluster.tasks_of(job.id) if not task.state.terminal]
    if job.end is not None and still_open:
        yield f"{job.id}: has ended, but not {', '.join(still_open)}"
    if job.end is None and cluster.job_state(job.id).terminal:
        yield f"{job.id}: is {cluster.job_state(job.id)}, but has no end"
    unknown = [after for after in job.after if after not in cluster.jobs]
    if unknown:
        yield f"{job.id}: waits for {', '.join(unknown)}, which does not exist"
    if job.is_gang:
        yield from _check_rounds(cluster, job)
    if _has_open_round(job):
        yield from _check_gang(cluster, job)


def _check_rounds(cluster: Cluster, job: Job) -> Iterator[str]:
    """Check that a round begins only after the previous one has a verdict and no live attempts."""
    if not 0 <= job.rounds - job.settled_rounds <= 1:
        yield f"{job.id}: {job.settled_rounds} of {job.rounds} rounds have a verdict"
    if job.failed_rounds + job.preempted_rounds > job.settled_rounds:
        yield f"{job.id}: {job.failed_rounds + job.preempted_rounds} of {job.settled_rounds} rounds are charged"
    tasks = cluster.tasks_of(job.id)
    if len({attempt.round for task in tasks for attempt in task.attempts if attempt.live}) > 1:
        yield f"{job.id}: attempts of several rounds are live"
    for task in tasks:
        rounds = [attempt.round for attempt in task.attempts]
        if rounds != sorted(set(rounds)) or (rounds and rounds[-1] >= job.rounds):
            yield f"{task.id}: attempts of rounds {rounds}, of {job.rounds} rounds"
    states = {task.state for task in tasks}
    if TaskState.SUCCEEDED in states and len(states) > 1:
        yield f"{job.id}: some of its ranks SUCCEEDED, others did not"
    if job.end is None and not _has_open_round(job) and states != {TaskState.PENDING}:
        yield f"{job.id}: between two rounds, but its ranks are {', '.join(sorted(states))}"


def _check_gang(cluster: Cluster, job: Job) -> Iterator[str]:
    """Check that all ranks of the current round are placed, on different workers of the right number of groups."""
    assert job.coscheduling is not None
    tasks = cluster.tasks_of(job.id)
    ranks = [task.attempts[-1] for task in tasks if task.attempts]
    placed = [attempt for attempt in ranks if attempt.round == job.rounds - 1]
    if len(placed) != job.replicas:
        yield f"{job.id}: {len(placed)} of {job.replicas} ranks are placed"
        return
    if len({attempt.worker for attempt in placed}) != job.replicas:
        yield f"{job.id}: two ranks share a worker"
    if not all(attempt.live and attempt.worker in cluster.workers for attempt in placed):
        return  # the host of an ended rank may have been replaced since
    if any(
        task.current_id in cluster.workers[task.attempts[-1].worker].placed_before_change for task in tasks
    ):
        return  # an attribute of its workers was changed since
    groups: dict[AttributeValue | None, list[Worker]] = {}
    for attempt in placed:
        worker = cluster.workers[attempt.worker]
        groups.setdefault(worker.all_attributes.get(job.coscheduling.group_by), []).append(worker)
    if len(groups) != job.slices or None in groups:
        names = ", ".join(str(key.value) if key else "no group" for key in groups)
        yield f"{job.id}: is on {names}, not on {job.slices} groups of {job.coscheduling.group_by}"
    share = job.replicas // max(1, job.slices)
    for members in groups.values() if job.resources.device_type == "tpu" else ():
        vms = members[0].attributes.get(TPU_VM_COUNT_ATTRIBUTE_KEY, AttributeValue(share))
        if not len(members) == share == vms.value:  # the ranks of a TPU gang use every VM of a slice
            names = ", ".join(member.id for member in members)
            yield f"{job.id}: {len(members)} ranks on {names}, of a slice of {vms.value} VMs"
