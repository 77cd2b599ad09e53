"""The part of a plan that is carried out while some workers have not answered yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job, Priority
from iris_cli.core.model.worker import Worker, WorkerCondition
from iris_cli.core.scheduling import Assignment, independent_assignments, plan, unaffected_jobs
from tests.support.fleet import gang, host, job, pending, tpu_slice
from tests.support.random_cluster import State, states
from tests.support.random_fleet import NOW

MANY = settings(max_examples=60, deadline=None)
STRICT, LENIENT = True, False


def cluster_of(workers: Iterable[Worker], *jobs: Job) -> Cluster:
    return Cluster(
        jobs={each.id: replace(each, order=at) for at, each in enumerate(jobs)},
        tasks={task.id: task for task in pending(jobs)},
        workers={each.id: each for each in workers},
    )


def silenced(cluster: Cluster, unheard: Iterable[WorkerId]) -> Cluster:
    suspect = {
        name: replace(cluster.workers[name], condition=WorkerCondition.SUSPECT)
        for name in unheard
        if cluster.workers[name].condition is WorkerCondition.HEALTHY
    }
    return replace(cluster, workers={**cluster.workers, **suspect})


def kept(cluster: Cluster, *unheard: str, strict: bool) -> list[str]:
    missing = [WorkerId(name) for name in unheard]
    made = plan(silenced(cluster, missing), 0.0)
    found = independent_assignments(made, cluster, missing, 0.0, only_unaffected=strict)
    return [f"{each.task} {each.worker}" for each in found.assignments]


@pytest.mark.parametrize("strict", [STRICT, LENIENT])
def test_a_job_that_the_unheard_worker_can_not_serve_is_placed(strict: bool) -> None:
    cluster = cluster_of([host("w0", rack="a"), host("w1", rack="b")], job("train", "rack=b"))
    assert kept(cluster, "w0", strict=strict) == ["train/task-0 w1"]


@pytest.mark.parametrize("strict", [STRICT, LENIENT])
def test_a_worker_that_is_too_small_has_nothing_to_do_with_the_job(strict: bool) -> None:
    cluster = cluster_of([host("w0", cpu=2), host("w1")], job("train", cpu=4))
    assert kept(cluster, "w0", strict=strict) == ["train/task-0 w1"]


def test_a_job_that_the_unheard_worker_could_serve_goes_elsewhere_only_after_a_while() -> None:
    cluster = cluster_of([host("w0"), host("w1")], job("train"))
    assert kept(cluster, "w0", strict=STRICT) == []
    assert kept(cluster, "w0", strict=LENIENT) == ["train/task-0 w1"]


def test_tasks_that_do_not_fit_on_the_others_wait_for_the_answer() -> None:
    cluster = cluster_of([host("w0", cpu=4), host("w1", cpu=4)], job("train", cpu=2, replicas=3))
    assert kept(cluster, "w0", strict=LENIENT) == ["train/task-0 w1", "train/task-1 w1"]


@pytest.mark.parametrize("strict", [STRICT, LENIENT])
def test_nobody_takes_a_worker_from_a_gang_ahead_that_waits_for_the_answer(strict: bool) -> None:
    workers = [*tpu_slice("a", vms=4), host("w")]
    cluster = cluster_of(workers, gang("big"), job("next", "device-type=tpu"), job("cpu", "device-type=cpu"))
    assert kept(cluster, "a-0", strict=strict) == ["cpu/task-0 w"]


def test_a_job_ahead_of_the_gang_is_placed() -> None:
    workers = [*tpu_slice("a", vms=4), host("w")]
    urgent = job("urgent", priority=Priority.HIGH)
    cluster = cluster_of(workers, gang("big"), urgent)
    assert kept(cluster, "a-0", strict=LENIENT) == ["urgent/task-0 w"]


def test_a_worker_that_was_never_probed_could_serve_what_is_not_known_to_be_impossible() -> None:
    new = replace(host("w0", rack="a"), condition=WorkerCondition.UNPROBED, attributes={}, cpu=0, memory=0)
    known = replace(new, attributes=host("w0", rack="a").attributes)
    other = host("w1", rack="b")
    train = job("train", "rack=b")
    assert unaffected_jobs(cluster_of([new, other], train), [WorkerId("w0")], 0.0) == []
    assert unaffected_jobs(cluster_of([known, other], train), [WorkerId("w0")], 0.0) == ["train"]


def test_workers_of_one_slice_are_looked_at_together() -> None:
    """Which of them goes first depends on what runs on the others."""
    workers = tpu_slice("a", vms=2)
    cluster = cluster_of(workers, job("train", "tpu-worker-id=1"))
    assert unaffected_jobs(cluster, [WorkerId("a-0")], 0.0) == []


# Whatever the answer


def answered(worker: Worker, way: int) -> Worker:
    """The worker after one of the answers that it may give."""
    if worker.condition in (WorkerCondition.UNPROBED, WorkerCondition.UNTRUSTED):
        return replace(worker, condition=WorkerCondition.HEALTHY, cpu=64, memory=1 << 40) if way else worker
    return (
        worker,
        replace(worker, claims={}),
        replace(worker, condition=WorkerCondition.HEALTHY),
        replace(worker, condition=WorkerCondition.HEALTHY, claims={}),
    )[way]


def by_job(assignments: Iterable[Assignment], jobs: Iterable[JobId]) -> list[Assignment]:
    wanted = set(jobs)
    return [each for each in assignments if each.task.job in wanted]


@given(states, st.sets(st.integers(0, 11), max_size=3), st.integers(0, 3))
@MANY
def test_strictly_no_answer_changes_what_was_placed(state: State, chosen: set[int], way: int) -> None:
    cluster = state.cluster
    unheard = [name for at, name in enumerate(sorted(cluster.workers)) if at in chosen]
    early = dataclasses.replace(state, cluster=silenced(cluster, unheard)).plan()
    found = independent_assignments(early, cluster, unheard, NOW, only_unaffected=STRICT)
    told = {name: answered(cluster.workers[name], way) for name in unheard}
    later = dataclasses.replace(state, cluster=replace(cluster, workers={**cluster.workers, **told})).plan()
    free = [each for each in cluster.jobs if each not in found.dependent]
    assert list(found.assignments) == by_job(early.assignments, free)
    assert by_job(later.assignments, free) == by_job(early.assignments, free)


@given(states, st.sets(st.integers(0, 11), max_size=4), st.booleans())
@MANY
def test_what_is_kept_is_part_of_the_plan_on_workers_that_answered_and_gangs_are_whole(
    state: State, chosen: set[int], strict: bool
) -> None:
    cluster = state.cluster
    unheard = [name for at, name in enumerate(sorted(cluster.workers)) if at in chosen]
    made = dataclasses.replace(state, cluster=silenced(cluster, unheard)).plan()
    found = independent_assignments(made, cluster, unheard, NOW, only_unaffected=strict)
    assert [each for each in made.assignments if each in found.assignments] == list(found.assignments)
    assert not {each.worker for each in found.assignments}.intersection(unheard)
    for each in found.assignments:
        if cluster.jobs[each.task.job].is_gang:
            assert by_job(found.assignments, [each.task.job]) == by_job(made.assignments, [each.task.job])


def test_without_a_missing_answer_everything_is_kept() -> None:
    cluster = cluster_of([host("w0"), host("w1")], job("a"), job("b", replicas=2))
    assert len(kept(cluster, strict=STRICT)) == len(kept(cluster, strict=LENIENT)) == 3
