"""Each breach, provoked by hand in a sound cluster, is found; and a sound cluster has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core import (
    Attempt,
    AttemptId,
    AttemptState,
    AttributeValue,
    Claim,
    Cluster,
    End,
    EndReason,
    JobId,
    JobState,
    Task,
    TaskId,
    TaskState,
    Token,
    WorkerId,
)
from iris_cli.core.ids import RequestId
from iris_cli.core.invariants import breaches
from iris_cli.core.model.cluster import Announced, Endpoint, Outputs
from iris_cli.core.model.job import Job, Origin
from iris_cli.core.model.worker import Ghost
from tests.support.lab import Lab
from tests.support.phases import ENDED

GANG, ONE = JobId("gang"), JobId("one")
RANK, SINGLE = TaskId(GANG, 0), TaskId(ONE, 0)
A0, A1, W = WorkerId("a-0"), WorkerId("a-1"), WorkerId("w")


@pytest.fixture(scope="module")
def sound() -> Cluster:
    """A gang and a single task, both running."""
    lab = Lab().slice("a").slice("b").worker("w", cpu=2, gpus=2)
    return lab.job("gang", tpu="v4-16").job("one", gpu="A100").schedule().reports("gang/* running").cluster


def change(cluster: Cluster, task_id: TaskId, **changes: Any) -> None:
    cluster.tasks[task_id] = replace(cluster.tasks[task_id], **changes)


def change_attempt(cluster: Cluster, task_id: TaskId, **changes: Any) -> None:
    attempts = cluster.tasks[task_id].attempts
    change(cluster, task_id, attempts=(*attempts[:-1], replace(attempts[-1], **changes)))


def change_worker(cluster: Cluster, worker: WorkerId, **changes: Any) -> None:
    cluster.workers[worker] = replace(cluster.workers[worker], **changes)


def claim_more(worker: WorkerId, claim: Claim) -> Callable[[Cluster], None]:
    def breach(cluster: Cluster) -> None:
        claims = {**cluster.workers[worker].claims, AttemptId(TaskId(ONE, 0), 5): claim}
        change_worker(cluster, worker, claims=claims)

    return breach


def second_attempt(cluster: Cluster, **changes: Any) -> None:
    first = cluster.tasks[SINGLE].attempts[0]
    change(cluster, SINGLE, attempts=(first, replace(first, **{"number": 1, **changes})))


def move(worker: WorkerId) -> Callable[[Cluster], None]:
    """The first rank stands elsewhere."""

    def breach(cluster: Cluster) -> None:
        claims = dict(cluster.workers[A0].claims)
        change_worker(cluster, A0, claims={})
        change_worker(cluster, worker, claims={**cluster.workers[worker].claims, **claims})
        change_attempt(cluster, RANK, worker=worker)

    return breach


def attribute(worker: WorkerId, key: str, value: str | int | None) -> Callable[[Cluster], None]:
    def breach(cluster: Cluster) -> None:
        attributes = {name: each for name, each in cluster.workers[worker].attributes.items() if name != key}
        if value is not None:
            attributes[key] = AttributeValue(value)
        change_worker(cluster, worker, attributes=attributes)

    return breach


def forget_job(cluster: Cluster) -> None:
    del cluster.jobs[ONE]


def forget_task(cluster: Cluster) -> None:
    del cluster.tasks[SINGLE]
    change_worker(cluster, W, claims={})


def forget_worker(cluster: Cluster) -> None:
    del cluster.workers[W]


def unplaced_rank(cluster: Cluster) -> None:
    change(cluster, RANK, attempts=(), state=TaskState.PENDING)
    change_worker(cluster, A0, claims={})


def change_job(cluster: Cluster, job: JobId, **changes: Any) -> None:
    cluster.jobs[job] = replace(cluster.jobs[job], **changes)


def claims_of(cluster: Cluster, worker: WorkerId) -> list[tuple[AttemptId, Claim]]:
    return list(cluster.workers[worker].claims.items())


def ghost(worker: WorkerId, task: TaskId) -> Callable[[Cluster], None]:
    def breach(cluster: Cluster) -> None:
        known = cluster.tasks.get(task)
        token = known.attempts[0].token if known else Token("0" * 32)
        cluster.ghosts[worker] = (Ghost(attempt=AttemptId(task, 0), token=token, boot_id="b"),)

    return breach


def output(worker: WorkerId, *tasks: TaskId) -> Callable[[Cluster], None]:
    def breach(cluster: Cluster) -> None:
        cluster.outputs[worker] = Outputs(last=tuple(AttemptId(task, 0) for task in tasks))

    return breach


def reaped(cluster: Cluster) -> None:
    change_worker(cluster, W, claims={})
    change_attempt(cluster, SINGLE, phase=replace(ENDED, reaped_at=2.0))
    output(W, SINGLE)(cluster)


def second_attempt_after_a_live_one(cluster: Cluster) -> None:
    second_attempt(cluster, phase=ENDED, token=Token("0" * 32))


def child(cluster: Cluster, job: str = "one/child", **changes: Any) -> None:
    """A job below `one`, submitted by its task, and sound if nothing is changed."""
    origin = Origin(AttemptId(SINGLE, 0), RequestId("r1"))
    made: dict[str, Any] = {"id": JobId(job), "command": ("true",), "origin": origin, "order": 9, **changes}
    cluster.jobs[JobId(job)] = Job(**made)
    cluster.tasks[TaskId(JobId(job), 0)] = Task(id=TaskId(JobId(job), 0))
    cluster.children[ONE] = (*cluster.children.get(ONE, ()), JobId(job))


def submitted_by(task: TaskId, number: int = 0) -> Callable[[Cluster], None]:
    return lambda cluster: child(cluster, origin=Origin(AttemptId(task, number), RequestId("r1")))


def two_children(cluster: Cluster) -> None:
    child(cluster)
    child(cluster, "one/other")


def child_of_what_is_over(cluster: Cluster) -> None:
    child(cluster)
    change_job(cluster, ONE, end=End(reason=EndReason.OK))


def announces(task: TaskId, *names: str, number: int = 0) -> Callable[[Cluster], None]:
    def breach(cluster: Cluster) -> None:
        endpoints = tuple(Endpoint(name=name, port=1) for name in names)
        cluster.endpoints[AttemptId(task, number)] = Announced(endpoints=endpoints)

    return breach


BREACHES: list[tuple[Callable[[Cluster], None], str]] = [
    (claim_more(W, Claim(cpu_millis=1001)), "w: 2001 of 2000 thousandths of a core are committed"),
    (claim_more(W, Claim(memory=1 << 40)), "bytes of memory are committed"),
    (claim_more(A0, Claim(chips=True)), "a-0: 2 attempts hold its chips"),
    (claim_more(W, Claim(gpus=(0,))), "w: GPU 0 is assigned 2 times"),
    (claim_more(W, Claim(gpus=(2,))), "w: GPU 2 is assigned 1 times, of 2 GPUs"),
    (claim_more(W, Claim()), "w: claims of ['one/task-0/attempt-0', 'one/task-0/attempt-5']"),
    (
        lambda cluster: change_worker(cluster, W, claims={}),
        "one/task-0/attempt-0: is live, but has no claim on w",
    ),
    (forget_worker, "one/task-0/attempt-0: is live, but has no claim on w"),
    (lambda cluster: change_attempt(cluster, SINGLE, phase=ENDED), "live attempts []"),
    (lambda cluster: second_attempt(cluster), "one/task-0: 2 live attempts"),
    (lambda cluster: second_attempt(cluster, number=0, phase=ENDED), "one/task-0: attempt numbers [0, 0]"),
    (
        lambda cluster: change(cluster, SINGLE, state=TaskState.FAILED, end=End(reason=EndReason.OK)),
        "one/task-0: FAILED with a live attempt that is ASSIGNED",
    ),
    (
        lambda cluster: change(cluster, RANK, state=TaskState.PENDING),
        "gang/task-0: PENDING with a live attempt that is RUNNING",
    ),
    (
        lambda cluster: change(cluster, SINGLE, end=End(reason=EndReason.OK)),
        "one/task-0: ASSIGNED, but its end is",
    ),
    (lambda cluster: change(cluster, SINGLE, attempts=()), "one/task-0: ASSIGNED without a live attempt"),
    (
        lambda cluster: change(cluster, SINGLE, attempts=(), state=TaskState.RUNNING),
        "one/task-0: RUNNING without a live attempt",
    ),
    (forget_job, "one/task-0: its job does not exist"),
    (forget_task, "one: one/task-0 do not exist"),
    (
        lambda cluster: cluster.jobs.update({ONE: replace(cluster.jobs[ONE], end=End(reason=EndReason.OK))}),
        "one: has ended, but not one/task-0",
    ),
    (unplaced_rank, "gang: 1 of 2 ranks are placed"),
    (lambda cluster: change_attempt(cluster, RANK, round=5), "gang: 1 of 2 ranks are placed"),
    (move(A1), "gang: two ranks share a worker"),
    (move(WorkerId("b-0")), "gang: is on b, a, not on 1 groups of tpu-name"),
    (move(W), "gang: is on no group, a, not on 1 groups of tpu-name"),
    (attribute(A0, "tpu-name", "z"), "gang: is on z, a, not on 1 groups of tpu-name"),
    (
        lambda cluster: change_attempt(cluster, SINGLE, token=cluster.tasks[RANK].attempts[0].token),
        "2 attempts have the token",
    ),
    (
        lambda cluster: change_worker(
            cluster, W, claims={key: replace(claim, gpus=(1,)) for key, claim in claims_of(cluster, W)}
        ),
        "w: one/task-0/attempt-0 holds Claim(",
    ),
    (ghost(A0, SINGLE), "a-0: its ghost one/task-0/attempt-0 is not an attempt on this worker"),
    (ghost(W, SINGLE), "w: its ghost one/task-0/attempt-0 was not presumed gone"),
    (ghost(W, TaskId(ONE, 7)), "w: its ghost one/task-7/attempt-0 is not an attempt on this worker"),
    (lambda cluster: cluster.ghosts.update({W: ()}), "w: has an empty list of ghosts"),
    (output(W, SINGLE), "w: its output of one/task-0/attempt-0 must not be deleted"),
    (output(A0, SINGLE), "a-0: its output of one/task-0/attempt-0 must not be deleted"),
    (reaped, "w: its output of one/task-0/attempt-0 is already deleted"),
    (
        lambda cluster: change_attempt(cluster, RANK, phase=replace(ENDED, refused=True)),
        "gang/task-0/attempt-0: started, but is marked as refused",
    ),
    (
        lambda cluster: change(cluster, RANK, state=TaskState.ASSIGNED),
        "gang/task-0: ASSIGNED, but its attempt is running",
    ),
    (lambda cluster: second_attempt_after_a_live_one(cluster), "a live attempt is not the last attempt"),
    (
        lambda cluster: change(cluster, SINGLE, state=TaskState.SUCCEEDED, end=End(reason=EndReason.OK)),
        "one/task-0: SUCCEEDED, but its last attempt did not",
    ),
    (lambda cluster: change(cluster, SINGLE, failures=1), "one/task-0: 1 failures charged, 0 allowed"),
    (
        lambda cluster: change(cluster, SINGLE, preemptions=101),
        "one/task-0: 101 lost hosts charged, 100 allowed",
    ),
    (lambda cluster: change_job(cluster, ONE, cancelled=True), "one: is KILLED, but has no end"),
    (
        lambda cluster: change_job(cluster, ONE, after=(JobId("gone"),)),
        "one: waits for gone, which does not exist",
    ),
    (lambda cluster: change_job(cluster, GANG, rounds=3), "gang: 0 of 3 rounds have a verdict"),
    (lambda cluster: change_job(cluster, GANG, failed_rounds=1), "gang: 1 of 0 rounds are charged"),
    (lambda cluster: change_attempt(cluster, RANK, round=5), "gang: attempts of several rounds are live"),
    (
        lambda cluster: change_attempt(cluster, RANK, round=5),
        "gang/task-0: attempts of rounds [5], of 1 rounds",
    ),
    (
        lambda cluster: change(cluster, RANK, state=TaskState.SUCCEEDED),
        "gang: some of its ranks SUCCEEDED, others did not",
    ),
    (
        lambda cluster: change_job(cluster, GANG, settled_rounds=1),
        "gang: between two rounds, but its ranks are RUNNING",
    ),
    (lambda cluster: child(cluster, "gone/child"), "gone/child: has no parent"),
    (lambda cluster: child(cluster, "root"), "root: has no parent"),
    (lambda cluster: child(cluster, order=-1), "one/child: was submitted before its parent"),
    (child_of_what_is_over, "one/child: is open, but its parent has ended"),
    (
        submitted_by(RANK),
        "one/child: was submitted by gang/task-0/attempt-0, which is not an attempt of its parent",
    ),
    (submitted_by(SINGLE, 1), "one/child: was submitted by one/task-0/attempt-1, which is not an attempt"),
    (
        submitted_by(TaskId(ONE, 1)),
        "one/child: was submitted by one/task-1/attempt-0, which is not an attempt",
    ),
    (two_children, "one/task-0/attempt-0: its request r1 submitted 2 jobs"),
    (lambda cluster: cluster.children.update({GANG: (ONE,)}), "the table of child jobs does not match"),
    (announces(SINGLE, "a", number=1), "one/task-0/attempt-1: has endpoints, but is not live"),
    (announces(TaskId(ONE, 1), "a"), "one/task-1/attempt-0: has endpoints, but is not live"),
    (announces(SINGLE, "a", "b", "a"), "one/task-0/attempt-0: an endpoint, or a request for one"),
    (attribute(A0, "tpu-vm-count", 4), "gang: 2 ranks on a-0, a-1, of a slice of 4 VMs"),
]


def test_a_sound_cluster_has_no_breaches(sound: Cluster) -> None:
    family = sound.copy()
    child(family)
    announces(SINGLE, "a", "b")(family)
    assert breaches(family) == []
    assert breaches(sound) == []
    assert breaches(Cluster()) == []


@pytest.mark.parametrize(("breach", "words"), BREACHES, ids=[words[:40] for _, words in BREACHES])
def test_a_breach_is_found(sound: Cluster, breach: Callable[[Cluster], None], words: str) -> None:
    broken = sound.copy()
    breach(broken)
    found = breaches(broken)
    assert any(words in each for each in found), found
    assert breaches(sound) == []


def test_two_slices_must_carry_equal_blocks() -> None:
    lab = Lab().slice("a").slice("b").job("gang", tpu="v4-16", slices=2).schedule()
    broken = lab.cluster.copy()
    attribute(A0, "tpu-name", "b")(broken)
    assert "gang: 1 ranks on a-1, of a slice of 2 VMs" in breaches(broken)
    assert "gang: 3 ranks on a-0, b-0, b-1, of a slice of 2 VMs" in breaches(broken)


def test_a_gang_on_no_slices_is_reported_like_other_breaches() -> None:
    broken = Lab().slice("a").job("gang", replicas=2, group_by="tpu-name").schedule().cluster
    change_job(broken, GANG, slices=0)
    assert breaches(broken) == ["gang: is on a, not on 0 groups of tpu-name"]


def test_a_rank_that_ended_may_lose_its_host() -> None:
    lab = Lab().slice("a").job("gang", tpu="v4-16").schedule().reports("gang/* running")
    lab.reports("gang/task-0 exited 0").configure("a-0")
    assert WorkerId("a-0") not in lab.cluster.workers
    assert breaches(lab.cluster) == []


def test_a_terminal_task_may_hold_what_is_being_stopped() -> None:
    lab = Lab().worker("w").job("one").schedule().cancel("one")
    assert [attempt.state for _, attempt in lab.cluster.live_attempts()] == [AttemptState.STOPPING]
    assert breaches(lab.cluster) == []


def test_what_breaks_at_once_is_reported_at_once(sound: Cluster) -> None:
    broken = sound.copy()
    claim_more(W, Claim(cpu_millis=1001))(broken)
    unplaced_rank(broken)
    assert len(breaches(broken)) >= 3


def test_tables_built_by_hand_are_judged_alike() -> None:
    task = Task(id=SINGLE, state=TaskState.RUNNING, attempts=(Attempt(number=1, worker=W, token="t"),))  # type: ignore[arg-type]  # the token doesn't matter
    assert "one/task-0: its job does not exist" in breaches(Cluster(tasks={SINGLE: task}))


def shrunk() -> Lab:
    """A probe finds less on a host than what runs there was promised."""
    lab = Lab().worker("w", cpu=4, gpus=2).job("one", gpu="A100:2", cpu=3.0).schedule()
    host = lab.hosts[W]
    host.facts = replace(host.facts, cpu=2.0, memory=1, gpus=1)
    return lab.probe("w")


@pytest.mark.parametrize("change", [{"rack": "r2"}, {"rack": None}, {"tpu-vm-count": 4}])
def test_a_changed_attribute_of_a_worker_is_no_breach_of_the_gang_that_runs_on_it(
    change: dict[str, str | int | None],
) -> None:
    lab = Lab().slice("a", "v4-16").worker("w", rack="r1").worker("v", rack="r1")
    lab.job("train", tpu="v4-16").job("mpi", replicas=2, group_by="rack").schedule()
    name = "a-0" if "tpu-vm-count" in change else "w"
    host = lab.hosts[WorkerId(name)]
    kept = {key: value for key, value in host.facts.attributes.items() if key not in change}
    new = {key: AttributeValue(value) for key, value in change.items() if value is not None}
    host.facts = replace(host.facts, attributes={**kept, **new})
    lab.probe(name)
    assert breaches(lab.cluster) == []
    assert lab.state_of("mpi") is lab.state_of("train") is JobState.PENDING


def test_a_host_that_shrank_under_its_tasks_is_no_breach_and_takes_nothing_new() -> None:
    lab = shrunk().job("more", cpu=1.0).schedule()
    assert lab.the_worker("w").cpu == 2.0
    assert breaches(lab.cluster) == []
    assert lab.task("more").state is TaskState.PENDING


@pytest.mark.parametrize(
    ("claim", "found"),
    [
        (Claim(cpu_millis=1), "w: 3001 of 2000 thousandths of a core are committed"),
        (Claim(memory=1), "bytes of memory are committed"),
        (Claim(gpus=(1,)), "w: GPU 1 is assigned 2 times, of 1 GPUs"),
        (Claim(gpus=(5,)), "w: GPU 5 is assigned 1 times, of 1 GPUs"),
    ],
)
def test_what_is_placed_on_a_host_after_it_shrank_is_a_breach(claim: Claim, found: str) -> None:
    cluster = shrunk().cluster
    claim_more(W, claim)(cluster)
    assert any(found in breach for breach in breaches(cluster))
