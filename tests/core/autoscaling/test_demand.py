"""What is demand: what a dry run of the scheduler can't place, and a booting slice won't serve either."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from iris_cli.core.autoscaling import DemandEntry, GroupState, compute_demand_entries, route_demand
from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.ids import JobId, TaskId, Token
from iris_cli.core.model.job import Job
from iris_cli.core.model.task import Attempt, Task, TaskState
from iris_cli.core.model.worker import Worker
from iris_cli.core.resources import Device
from tests.support.fleet import gang, host, job, pending, tpu_slice, training, vm
from tests.support.phases import ENDED
from tests.support.scale import state

V5E = "v5litepod-16"


def demand(
    workers: Sequence[Worker], *jobs: Job, groups: Sequence[GroupState] = (), now: float = 0.0
) -> list[DemandEntry]:
    known = {each.id: each for each in jobs}
    return compute_demand_entries(pending(jobs), workers, known.get, now, groups=groups)


def keys(entries: Sequence[DemandEntry]) -> list[str]:
    return [str(entry.key) for entry in entries]


def train(name: str = "train", *constraints: str, slices: int = 1) -> Job:
    return gang(name, *constraints, tpu=V5E, replicas=4 * slices, slices=slices)


def test_what_fits_now_is_no_demand() -> None:
    assert demand(tpu_slice("a", V5E), train()) == []


def test_a_gang_that_finds_all_slices_busy_is_one_entry() -> None:
    [entry] = demand([training(each) for each in tpu_slice("a", V5E)], train())
    assert entry.key == "train"
    assert entry.task_ids == tuple(TaskId(JobId("train"), index) for index in range(4))
    assert (entry.slices, entry.shape and entry.shape.size) == (1, 4)


def test_single_tasks_are_an_entry_each() -> None:
    assert keys(demand([host("h", cpu=2)], job("load", replicas=4))) == ["load/task-2", "load/task-3"]
    eval_job = job("eval", device=Device("tpu", V5E), replicas=2)
    assert keys(demand([], eval_job)) == ["eval/task-0", "eval/task-1"]


def test_entries_stand_in_the_order_of_the_queue() -> None:
    jobs = [replace(train(f"train-{number}"), order=9 - number) for number in range(3)]
    assert keys(demand([], *jobs)) == ["train-2", "train-1", "train-0"]


def test_an_entry_carries_what_its_job_asks_for() -> None:
    [entry] = demand([], train("train", "region in us,eu", "preemptible=true", "pool=a", "~rack=1"))
    assert entry.constraints == tuple(
        map(parse_constraint, ("region in us,eu", "preemptible=true", "pool=a", "~rack=1"))
    )
    assert (entry.preemptible, entry.required_regions) == (True, frozenset({"us", "eu"}))
    assert entry.resources.device == Device("tpu", V5E)
    assert entry.invalid_reason == ""


def test_an_entry_without_intent_says_none() -> None:
    [entry] = demand([], train())
    assert (entry.preemptible, entry.required_regions) == (None, None)


def test_what_can_never_be_served_says_why() -> None:
    reasons = [
        entry.invalid_reason for entry in demand([], train("a", "preemptible=1"), train("b", "x=1", "x=2"))
    ]
    assert reasons == [
        "preemptible takes only =true or =false",
        "the constraints on 'x' contradict each other",
    ]
    [odd] = demand([], gang("odd", tpu=V5E, replicas=5, slices=2))
    assert odd.invalid_reason == "5 replicas can't be spread over 2 slices"


def test_a_gang_of_which_only_some_are_pending_is_no_demand_yet() -> None:
    asked = train()
    ended = Attempt(number=0, worker=host("h").id, token=_TOKEN, phase=ENDED)
    tasks = [
        Task(id=task, state=TaskState.PENDING if task.index else TaskState.SUCCEEDED, attempts=(ended,))
        for task in asked.task_ids
    ]
    assert compute_demand_entries(tasks, [], {asked.id: asked}.get, 0.0) == []


def test_a_task_whose_job_nobody_knows_is_no_demand() -> None:
    assert compute_demand_entries(pending([train()]), [], lambda _: None, 0.0) == []


def test_what_is_too_late_is_no_demand() -> None:
    late = replace(train(), scheduling_timeout=60.0)
    assert demand([], late, now=61.0) == []


# Slices that are coming


def test_a_booting_slice_serves_only_what_its_group_would() -> None:
    west = state("west", slices=1, booting=1, preemptible=True)
    assert keys(demand([], train("a", "region=us-central2"), groups=[west])) == ["a"]
    assert keys(demand([], train("a", "preemptible=false"), groups=[west])) == ["a"]
    assert keys(demand([], gang("a", tpu="v4-32"), groups=[west])) == ["a"]


def test_a_slice_that_is_there_already_goes_before_one_that_boots() -> None:
    west = state("west", slices=2, booting=1)
    assert demand(tpu_slice("a", V5E), train("a"), train("b"), groups=[west]) == []


def test_a_gang_of_several_slices_asks_only_for_those_that_are_missing() -> None:
    idle = tpu_slice("a", V5E, region="us-west4")
    [entry] = demand(idle, train(slices=3), groups=[state("west", slices=1, booting=1)])
    assert entry.slices == 1
    assert entry.shape is not None
    assert entry.shape.groups == 3


def test_an_idle_slice_is_kept_for_one_gang_only() -> None:
    entries = demand(tpu_slice("a", V5E), train("a", slices=2), train("b", slices=2))
    assert [(str(entry.key), entry.slices) for entry in entries] == [("a", 1), ("b", 2)]


def test_a_slice_that_something_runs_on_is_not_idle() -> None:
    some = tpu_slice("a", V5E)
    some[0] = training(some[0])
    [entry] = demand(some, train(slices=2))
    assert entry.slices == 2


_TOKEN = Token("0" * 32)


def test_a_tpu_task_alone_that_waits_for_a_slice_of_one_vm_asks_for_one() -> None:
    """A larger slice would stay idle beside the registered one that it waits for."""
    alone, busy = job("eval", device=Device("tpu")), training(vm("one-0", "one", 0, "v5litepod-4"))
    [entry] = demand([*tpu_slice("a", V5E), busy], alone)
    assert entry.one_vm
    large, small = state("large", V5E, priority=1), state("small", "v5litepod-4", priority=2)
    assert route_demand([entry], [large, small]).launch == {"small": 1}
    [unmet] = route_demand([entry], [large]).unmet
    assert str(unmet.reason) == "needs slices of 1 VM, but scale groups have slices of 4 VMs"


def test_where_no_slice_has_one_vm_a_tpu_task_alone_asks_for_any() -> None:
    alone = job("eval", device=Device("tpu"))
    [entry] = demand([training(each) for each in tpu_slice("a", V5E)], alone)
    assert not entry.one_vm
    assert route_demand([entry], [state("large", V5E)]).launch == {"large": 1}


def test_a_tpu_task_alone_waits_for_a_slice_of_one_vm_if_there_is_nothing_else() -> None:
    """Otherwise larger slices, which it may not use, would be created without end."""
    [entry] = demand([training(vm("one-0", "one", 0, "v5litepod-4"))], job("eval", device=Device("tpu")))
    assert entry.one_vm
