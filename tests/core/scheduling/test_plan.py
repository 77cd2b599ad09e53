"""A plan for a whole cluster: what is held back, and what has no future."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import AttemptId, JobId, TaskId, Token, WorkerId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job, MissingInputs
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import Attempt, AttemptState, End, EndReason, Task, TaskState
from iris_cli.core.model.worker import Claim, Ghost, Worker
from iris_cli.core.scheduling import Plan, plan
from tests.support.fleet import gang, host, job, pending, tpu_slice
from tests.support.phases import PHASES

ENDED, STOPPING, ASSIGNED = AttemptState.ENDED, AttemptState.STOPPING, AttemptState.ASSIGNED


def cluster(workers: Iterable[Worker], jobs: Iterable[Job], *tasks: Task) -> Cluster:
    """A cluster whose tasks are pending but for those given; live attempts hold a core of their worker."""
    jobs = list(jobs)
    all_tasks = {task.id: task for task in (*pending(jobs), *tasks)}
    claims: dict[WorkerId, dict[AttemptId, Claim]] = {}
    for task in all_tasks.values():
        for attempt in task.attempts:
            if attempt.live:
                held = claims.setdefault(attempt.worker, {})
                held[AttemptId(task.id, attempt.number)] = Claim(cpu_millis=1000)
    return Cluster(
        jobs={each.id: each for each in jobs},
        tasks=all_tasks,
        workers={
            each.id: replace(each, claims={**each.claims, **claims.get(each.id, {})}) for each in workers
        },
    )


def task(name: str, state: TaskState, *attempts: AttemptState, index: int = 0, on: str = "w") -> Task:
    """A task of a job with its attempts, all on one worker."""
    tried = tuple(
        Attempt(number=number, worker=WorkerId(on), token=Token(f"{number:032x}"), phase=PHASES[each])
        for number, each in enumerate(attempts)
    )
    end = End(reason=EndReason.OK) if state.terminal else None
    return Task(id=TaskId(JobId(name), index), state=state, attempts=tried, end=end)


def kinds(found: Plan, name: str) -> list[str]:
    return [reason.kind.value for reason in found.reasons(JobId(name))]


def assigned(found: Plan) -> list[str]:
    return [str(each.task) for each in found.assignments]


def test_what_is_pending_is_planned_and_nothing_else() -> None:
    jobs = [job("new"), job("runs"), job("done")]
    running = task("runs", TaskState.RUNNING, AttemptState.RUNNING)
    found = plan(cluster([host("w")], jobs, running, task("done", TaskState.SUCCEEDED, ENDED)), 0.0)
    assert assigned(found) == ["new/task-0"]
    assert dict(found.waiting) == {}


def test_a_job_that_is_over_is_not_planned() -> None:
    cancelled = job("cancelled", cancelled=True)
    ended = job("ended", end=End(reason=EndReason.JOB_ENDED))
    found = plan(cluster([host("w")], [cancelled, ended]), 0.0)
    assert (assigned(found), dict(found.waiting)) == ([], {})


# Dependencies


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.ASSIGNED, TaskState.RUNNING])
def test_a_job_waits_until_all_it_comes_after_have_succeeded(state: TaskState) -> None:
    jobs = [job("first"), job("second"), job("last", after=(JobId("first"), JobId("second")))]
    first, second = task("first", TaskState.SUCCEEDED, ENDED), task("second", state)
    found = plan(cluster([host("w")], jobs, first, second), 0.0)
    assert [str(reason) for reason in found.reasons(JobId("last"))] == [
        "after: waiting for second to succeed"
    ]
    assert "last/task-0" not in assigned(found)
    later = plan(cluster([host("w")], jobs, first, task("second", TaskState.SUCCEEDED, ENDED)), 0.0)
    assert assigned(later) == ["last/task-0"]


@pytest.mark.parametrize(
    "state", [TaskState.FAILED, TaskState.KILLED, TaskState.WORKER_FAILED, TaskState.UNSCHEDULABLE]
)
def test_a_job_whose_dependency_did_not_succeed_has_no_future(state: TaskState) -> None:
    jobs = [job("first"), job("last", after=(JobId("first"),), replicas=2, scheduling_timeout=1.0)]
    found = plan(cluster([host("w")], jobs, task("first", state, ENDED)), 99.0)
    assert found.dependency_failed == (TaskId(JobId("last"), 0), TaskId(JobId("last"), 1))
    assert (assigned(found), dict(found.waiting), found.timed_out_tasks) == ([], {}, ())


def test_a_dependency_that_nobody_knows_can_never_succeed() -> None:
    found = plan(cluster([host("w")], [job("last", after=(JobId("gone"),))]), 0.0)
    assert found.dependency_failed == (TaskId(JobId("last"), 0),)


def test_a_secret_that_is_missing_does_not_hold_the_deadline_of_a_job() -> None:
    needy = job("needy", secrets=("TOKEN",), scheduling_timeout=10.0)
    found = plan(cluster([host("w")], [needy]), 11.0, missing=MissingInputs(secrets={needy.id: ["TOKEN"]}))
    assert found.timed_out_tasks == tuple(needy.task_ids)

    # Secrets
    (late,) = found.too_late.items()
    assert (str(late[0]), str(late[1])) == ("needy/task-0", "secret: secret TOKEN")


def test_a_job_whose_secrets_are_missing_takes_no_capacity() -> None:
    jobs = [job("needy", cpu=16, secrets=("TOKEN",), order=0), job("other", cpu=16, order=1)]
    found = plan(
        cluster([host("w")], jobs), 0.0, missing=MissingInputs(secrets={JobId("needy"): ["TOKEN: not set"]})
    )
    assert assigned(found) == ["other/task-0"]
    assert [str(reason) for reason in found.reasons(JobId("needy"))] == ["secret: secret TOKEN: not set"]


def test_reasons_to_hold_back_stand_in_order_of_precedence() -> None:
    jobs = [job("first"), job("j", after=(JobId("first"),))]
    waits = task("j", TaskState.PENDING, STOPPING)
    found = plan(
        cluster([host("w")], jobs, waits), 0.0, missing=MissingInputs(secrets={JobId("j"): ["TOKEN"]})
    )
    assert kinds(found, "j") == ["secret", "after", "stopping"]


# Old attempts


def test_a_task_is_not_placed_again_before_its_old_attempt_has_ended() -> None:
    stopping = task("j", TaskState.PENDING, ENDED, STOPPING, on="old")
    found = plan(cluster([host("w"), host("old")], [job("j", replicas=2)], stopping), 0.0)
    assert assigned(found) == ["j/task-1"]
    assert [str(reason) for reason in found.reasons(JobId("j"))] == [
        "stopping: waiting for j/task-0/attempt-1 to end on old"
    ]
    ended = task("j", TaskState.PENDING, ENDED, ENDED, on="old")
    assert assigned(plan(cluster([host("w")], [job("j")], ended), 0.0)) == ["j/task-0"]


def test_a_task_that_waits_for_its_old_attempt_takes_one_place_of_an_array_and_not_two() -> None:
    stopping = task("j", TaskState.PENDING, STOPPING, on="old")
    array = job("j", replicas=4, array="0-3", max_running=2)
    found = plan(cluster([host("w"), host("old")], [array], stopping), 0.0)
    assert assigned(found) == ["j/task-1"]
    assert [str(reason) for reason in found.waiting[stopping.id]] == [
        "stopping: waiting for j/task-0/attempt-0 to end on old"
    ]
    assert [each.kind.value for each in found.waiting[TaskId(JobId("j"), 2)]] == ["throttled"]


def round_over(*states: AttemptState) -> list[Task]:
    return [
        task("g", TaskState.PENDING, state, index=index, on=f"a-{index}")
        for index, state in enumerate(states)
    ]


def test_a_gang_is_not_placed_again_before_all_its_old_attempts_have_ended() -> None:
    bounced = gang("g", rounds=1, settled_rounds=1)
    fleet = [*tpu_slice("a"), *tpu_slice("b")]
    found = plan(cluster(fleet, [bounced], *round_over(ENDED, STOPPING, ENDED, ENDED)), 0.0)
    assert assigned(found) == []
    assert [str(reason) for reason in found.reasons(JobId("g"))] == [
        "stopping: waiting for g/task-1/attempt-0 to end on a-1"
    ]
    found = plan(cluster(fleet, [bounced], *round_over(ENDED, ENDED, ENDED, ENDED)), 0.0)
    assert len(found.assignments) == 4


def test_a_gang_is_not_placed_again_before_its_last_round_is_settled() -> None:
    unsettled = gang("g", rounds=1, settled_rounds=0)
    found = plan(cluster(tpu_slice("a"), [unsettled], *round_over(ENDED, ENDED, ENDED, ENDED)), 0.0)
    assert (assigned(found), kinds(found, "g")) == ([], ["stopping"])


def test_a_gang_of_which_a_rank_still_runs_is_held_by_that_rank() -> None:
    bounced = gang("g", rounds=1, settled_rounds=1)
    _, *others = round_over(ENDED, ENDED, ENDED, ENDED)
    running = task("g", TaskState.RUNNING, AttemptState.RUNNING, on="a-0")
    found = plan(cluster(tpu_slice("b"), [bounced], running, *others), 0.0)
    assert assigned(found) == []
    assert "g/task-0/attempt-0" in found.reasons(JobId("g"))[0].text


def test_a_worker_with_an_unconfirmed_stop_takes_nothing_new() -> None:
    gone = task("gone", TaskState.KILLED, STOPPING)
    found = plan(cluster([host("w")], [job("gone", cancelled=True), job("j")], gone), 0.0)
    assert (assigned(found), kinds(found, "j")) == ([], ["stopping"])
    alive = task("gone", TaskState.RUNNING, AttemptState.RUNNING)
    assert assigned(plan(cluster([host("w")], [job("gone"), job("j")], alive), 0.0)) == ["j/task-0"]


def test_a_worker_where_somebody_taken_for_dead_may_still_run_takes_nothing_new() -> None:
    state = cluster([host("w")], [job("j")])
    ghost = Ghost(attempt=AttemptId(TaskId(JobId("gone"), 0), 0), token=Token("0" * 32), boot_id="b")
    state.ghosts[WorkerId("w")] = (ghost,)
    found = plan(state, 0.0)
    assert (assigned(found), kinds(found, "j")) == ([], ["stopping"])


def test_the_end_of_a_job_that_is_being_stopped_makes_room_but_lays_no_ghost() -> None:
    stopping = task("old", TaskState.KILLED, STOPPING)
    state = cluster([host("w", cpu=1)], [job("old", cancelled=True), job("j")], stopping)
    (key,) = plan(state, 0.0).waiting
    assert str(plan(state, 0.0).waiting.explain(key).change) == "worker w has room when job old has stopped"
    ghost = Ghost(attempt=AttemptId(TaskId(JobId("old"), 1), 0), token=Token("0" * 32), boot_id="b")
    state.ghosts[WorkerId("w")] = (ghost,)
    assert plan(state, 0.0).waiting.explain(key).change is None


# Looking things up


def test_the_reasons_of_a_job_are_those_of_its_tasks_each_once() -> None:
    found = plan(cluster([host("w", cpu=1)], [job("j", replicas=5)]), 0.0)
    assert kinds(found, "j") == ["behind"]
    assert kinds(found, "nobody") == []


@pytest.mark.parametrize(("stops", "found"), [(0, ["stopping", "cpu"]), (1, ["cpu", "stopping"])])
def test_the_reasons_of_a_job_are_in_the_order_of_its_tasks(stops: int, found: list[str]) -> None:
    stopping = task("j", TaskState.PENDING, STOPPING, index=stops, on="old")
    state = cluster([host("w", cpu=1), host("old", cpu=1)], [job("j", cpu=2, replicas=2)], stopping)
    assert kinds(plan(state, 0.0), "j") == found


def test_everything_that_waits_can_be_explained() -> None:
    jobs = [job("first"), job("last", after=(JobId("first"),)), gang("g"), job("big", cpu=99)]
    found = plan(cluster([host("w")], jobs), 0.0)
    assert {str(key): found.waiting.explain(key).reasons for key in found.waiting} == {
        str(key): reasons for key, reasons in found.waiting.items()
    }
    assert kinds(found, "last") == ["after"]
    assert found.waiting.explain(JobId("g")).group_by == "tpu-name"


@pytest.mark.parametrize(("reserve", "kept"), [(0.0, {}), (100.0, {"g": ("a",)})])
def test_when_to_reserve_comes_from_the_limits_or_overrules_them(
    reserve: float, kept: dict[str, tuple[str, ...]]
) -> None:
    others = [task(f"j{n}", TaskState.RUNNING, AttemptState.RUNNING, on=f"a-{n}") for n in range(4)]
    jobs = [*(job(f"j{number}") for number in range(4)), gang("g", cpu=112)]
    state = cluster(tpu_slice("a"), jobs, *others)
    limits = Limits(gang_reserve_after=reserve)
    assert plan(state, 100.0, limits=limits).result.reservations == kept
    assert plan(state, 100.0, gang_reserve_after=reserve).result.reservations == kept


def test_planning_changes_nothing() -> None:
    state = cluster([*tpu_slice("a"), host("w")], [gang("g"), job("j", replicas=3)])
    before = (dict(state.jobs), dict(state.tasks), dict(state.workers))
    assert plan(state, 1e6).assignments == plan(state, 1e6).assignments != ()
    assert (state.jobs, state.tasks, state.workers) == before
