"""Which scale group makes a slice for whom, and why none does."""

from __future__ import annotations

import pytest

from iris_cli.core.autoscaling import GroupState, RoutingDecision, UnmetKind, route_demand
from iris_cli.core.model.job import Job
from iris_cli.core.model.worker import Amounts
from iris_cli.core.resources import Device
from tests.support.fleet import GIB, gang, job
from tests.support.scale import entries_of, launched, route, state, unmet

WEST = state("west", zone="us-west4-a", preemptible=True, priority=10)
CENTRAL = state("central", zone="us-central2-b", priority=20)
BOTH = [WEST, CENTRAL]
V5E = "v5litepod-16"


def v5e(name: str = "train", *constraints: str, slices: int = 1) -> Job:
    return gang(name, *constraints, tpu=V5E, replicas=4 * slices, slices=slices)


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        ((), {"west": 1}),
        (("region=us-west4",), {"west": 1}),
        (("region=us-central2",), {"central": 1}),
        (("region in us-central2,europe-west4",), {"central": 1}),
        (("preemptible=true",), {"west": 1}),
        (("preemptible=false",), {"central": 1}),
        (("region=us-central2", "preemptible=false"), {"central": 1}),
        (("region=us-central2", "preemptible=true"), {}),
        (("zone=us-central2-b",), {"central": 1}),
        (("scale-group=central",), {"central": 1}),
        (("scale-group!=west",), {"central": 1}),
        (("pool",), {}),
        (("!pool",), {"west": 1}),
        (("tpu-name",), {"west": 1}),
        (("tpu-name=old",), {}),
        (("tpu-worker-id>=1",), {}),
        (("~region=us-central2",), {"west": 1}),  # a preference does not outrank the priority of a group
    ],
)
def test_constraints_choose_the_group(constraints: tuple[str, ...], expected: dict[str, int]) -> None:
    assert launched(BOTH, v5e("train", *constraints)) == expected


@pytest.mark.parametrize(
    ("constraint", "kind", "words"),
    [
        (
            "region=eu-west4",
            UnmetKind.REGION,
            "needs region=eu-west4, but the scale groups have us-west4, us-central2 (did you mean us-west4?)",
        ),
        (
            "region=us-west5",
            UnmetKind.REGION,
            "needs region=us-west5, but the scale groups have us-west4, us-central2 (did you mean us-west4?)",
        ),
        (
            "region=europe-north1",
            UnmetKind.REGION,
            "needs region=europe-north1, but the scale groups have us-west4, us-central2",
        ),
        (
            "region=us-west-4",
            UnmetKind.REGION,
            "needs region=us-west-4, but the scale groups have us-west4, us-central2 (did you mean us-west4?)",
        ),
        ("preemptible=1", UnmetKind.INVALID, "preemptible takes only =true or =false"),
        (
            "scale-group=wset",
            UnmetKind.CONSTRAINT,
            "needs scale-group=wset, but the scale groups have west, central (did you mean west?)",
        ),
        ("pool=a", UnmetKind.CONSTRAINT, "needs pool=a, but the scale groups have no pool"),
        ("device-type=cpu", UnmetKind.CONSTRAINT, "needs device-type=cpu, but the scale groups have tpu"),
        (
            "device-variant=v5litepod-8",
            UnmetKind.CONSTRAINT,
            "needs device-variant=v5litepod-8, but the scale groups have v5litepod-16",
        ),
        (
            "tpu-worker-id=7",
            UnmetKind.CONSTRAINT,
            "needs tpu-worker-id=7, but the VMs of new slices have 0-3",
        ),
        ("tpu-name=old", UnmetKind.CONSTRAINT, "needs tpu-name=old, but new slices have other names"),
        ("worker-id=old-0", UnmetKind.CONSTRAINT, "needs worker-id=old-0, but new slices have other names"),
    ],
)
def test_the_reason_names_the_culprit(constraint: str, kind: UnmetKind, words: str) -> None:
    [found] = route(BOTH, v5e("train", constraint)).unmet
    assert (found.reason.kind, str(found.reason)) == (kind, words)


def test_two_constraints_that_no_group_satisfies_together() -> None:
    assert unmet(BOTH, v5e("train", "region=us-central2", "preemptible=true")) == [
        "train: needs preemptible=true, but the otherwise suitable scale group central has false"
    ]


def test_constraints_that_contradict_each_other_are_invalid_and_scale_nothing() -> None:
    for words in (("region=a", "region=b"), ("preemptible=true", "preemptible=false"), ("rack=1", "rack=2")):
        decision = route(BOTH, v5e("train", *words))
        assert not decision.launch
        assert [each.reason.kind for each in decision.unmet] == [UnmetKind.INVALID]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (gang("train", tpu="v4-32"), "train: needs v4-32, but scale groups have v5litepod-16"),
        (gang("train", tpu="v5litepod-61"), "train: needs v5litepod-61, but scale groups have v5litepod-16"),
        (
            gang("train", tpu=V5E, replicas=2),
            "train: needs slices of 2 VMs, but scale groups have slices of 4 VMs",
        ),
        (
            gang("train", tpu="auto", replicas=16, slices=2),
            "train: needs slices of 8 VMs, but scale groups have slices of 4 VMs",
        ),
        (job("one", device=Device("gpu")), "one/task-0: needs a gpu, but scale groups have v5litepod-16"),
        (job("one", cpu=300), "one/task-0: needs 300 cores, but the largest VM has 112 cores"),
    ],
)
def test_a_mismatch_scales_no_group(asked: Job, words: str) -> None:
    decision = route(BOTH, asked)
    assert not decision.launch
    [found] = decision.unmet
    assert f"{found.entry.key}: {found.reason}".startswith(words)


def test_without_groups_the_reason_says_so() -> None:
    assert unmet([], v5e()) == ["train: there are no scale groups"]


def test_a_taint_of_a_group_must_be_tolerated() -> None:
    spare = state("spare", attributes={"taint:spare": "true"})
    assert unmet([spare], v5e()) == ["train: does not tolerate spare, a taint of scale group spare"]
    tolerant = gang("train", tpu=V5E, tolerations=("spare",))
    assert launched([spare], tolerant) == {"spare": 1}


# The waterfall


def test_a_gang_of_k_slices_is_k_whole_slices_of_one_group() -> None:
    assert launched(BOTH, v5e(slices=3)) == {"west": 3}


def test_a_gang_is_never_spread_over_two_groups() -> None:
    nearly_full = [state("west", priority=10, slices=3), state("central", zone="us-central2-b", priority=20)]
    assert launched(nearly_full, v5e(slices=2)) == {"central": 2}
    assert unmet(nearly_full[:1], v5e(slices=2)) == [
        "train: needs 2 slices, but scale group west allows 1 more (max_slices: 4)"
    ]
    assert unmet(nearly_full[:1], v5e(slices=5)) == [
        "train: needs 5 slices, but scale group west allows 4 (max_slices)"
    ]


def test_the_lowest_priority_is_tried_first_then_the_name() -> None:
    groups = [state("b", priority=1), state("c", priority=0, max_slices=1), state("a", priority=1)]
    gangs = [v5e(f"train-{number}") for number in range(6)]
    assert launched(groups, *gangs) == {"c": 1, "a": 4, "b": 1}


def test_a_group_that_backs_off_overflows() -> None:
    groups = [state("west", priority=10, backing_off="quota exceeded, for another 5m"), CENTRAL]
    assert launched(groups, v5e()) == {"central": 1}
    assert unmet(groups[:1], v5e()) == [
        "train: needs 1 slice, but scale group west is backing off (quota exceeded, for another 5m)"
    ]


def test_a_group_that_boots_does_not_overflow() -> None:
    assert launched([state("west", priority=10, slices=2, booting=2), CENTRAL], v5e()) == {"west": 1}


def test_everybody_full_is_said_of_each() -> None:
    groups = [state("west", slices=4), state("central", slices=1, max_slices=1)]
    assert unmet(groups, v5e()) == [
        "train: needs 1 slice, but scale group central is at its limit of 1 slice (max_slices), "
        "scale group west is at its limit of 4 slices (max_slices)"
    ]


def test_what_others_have_just_asked_for_counts_as_there() -> None:
    assert unmet([state("west", max_slices=1)], v5e("a"), v5e("b")) == [
        "b: needs 1 slice, but scale group west is at its limit of 1 slice (max_slices)"
    ]


def test_preferences_rank_groups_of_equal_priority() -> None:
    groups = [state("a"), state("b", zone="us-central2-b")]
    assert launched(groups, v5e("train", "~region=us-central2")) == {"b": 1}


# Packing


@pytest.mark.parametrize(
    ("tasks", "cpu", "slices"),
    [(1, 1, 1), (4, 112, 1), (5, 112, 2), (24, 16, 1), (28, 16, 1), (29, 16, 2), (8, 60, 2), (0, 1, 0)],
)
def test_cpu_tasks_are_packed_onto_the_vms_of_as_few_slices_as_needed(
    tasks: int, cpu: float, slices: int
) -> None:
    """Four VMs of 112 cores."""
    many = [job(f"j{number}", cpu=cpu) for number in range(tasks)]
    assert launched([WEST], *many) == ({"west": slices} if slices else {})


def test_memory_counts_as_cores_do() -> None:
    assert launched([WEST], job("load", memory=100 * GIB, replicas=5)) == {"west": 2}


def test_small_tasks_fill_the_gaps_that_large_ones_leave() -> None:
    mixed = [job("large", cpu=100, replicas=4), job("small", cpu=12, replicas=4)]
    assert launched([WEST], *mixed) == {"west": 1}
    assert launched([WEST], *reversed(mixed)) == {"west": 1 + 1}  # the queue decides who is packed first


def test_single_tpu_tasks_take_a_vm_each() -> None:
    assert launched([WEST], job("eval", device=Device("tpu", V5E), replicas=6)) == {"west": 2}


def test_cpu_work_goes_beside_a_gang_that_leaves_room() -> None:
    assert launched([WEST], v5e(), job("load", cpu=100, replicas=4)) == {"west": 1}
    assert launched([WEST], v5e(), job("load", cpu=112, replicas=1)) == {"west": 2}


def test_room_that_is_coming_anyway_is_used_before_a_better_group_makes_a_slice() -> None:
    assert launched(BOTH, v5e("train", "region=us-central2"), job("load")) == {"central": 1}


def test_two_gangs_never_share_a_slice() -> None:
    assert launched([WEST], v5e("a"), v5e("b")) == {"west": 2}


def test_a_single_task_may_ask_for_a_place_in_the_slice() -> None:
    first = job("first", "tpu-worker-id=0", device=Device("tpu", V5E), replicas=2)
    assert launched([WEST], first) == {"west": 2}


def test_a_gang_of_ordinary_work_takes_one_slice_with_enough_vms() -> None:
    assert launched([WEST], gang("mpi", tpu=None, replicas=3, cpu=60)) == {"west": 1}
    assert unmet([WEST], gang("mpi", tpu=None, replicas=5)) == [
        "mpi: needs 5 VMs of one slice, but scale groups have slices of 4 VMs"
    ]


def test_a_gang_by_an_attribute_that_slices_share_takes_as_many_as_it_needs() -> None:
    assert launched([WEST], gang("mpi", tpu=None, replicas=9, by="region")) == {"west": 3}
    assert launched([WEST], gang("mpi", tpu=None, replicas=9, by="rack")) == {}
    assert unmet([state("west", max_slices=2)], gang("mpi", tpu=None, replicas=9, by="region")) == [
        "mpi: needs 9 VMs together, but scale group west allows 2 more slices of 4 VMs (max_slices: 2)"
    ]


def test_what_vms_were_seen_to_offer_wins_over_the_table() -> None:
    small = state("west", vm=Amounts(cpu_millis=8000, memory=64 * GIB, gpus=0, chips=1))
    assert launched([small], job("load", cpu=8, replicas=8)) == {"west": 2}


def test_of_a_type_that_nobody_knows_one_slice_is_made_to_look_at() -> None:
    odd = state("odd", "v9-64")
    gangs = [gang(name, tpu="v9-64", replicas=8) for name in ("a", "b")]
    assert launched([odd], *gangs) == {"odd": 1}
    assert unmet([state("odd", "v9-64", slices=1, booting=1)], gangs[0]) == [
        "a: needs 1 slice, but scale group odd waits for its first slice (VM count unknown)"
    ]
    assert launched([state("odd", "v9-64", slices=1, vms=8)], *gangs) == {"odd": 2}


# Properties of the decision


def test_every_entry_is_in_the_decision_once() -> None:
    jobs = [v5e(f"train-{number}") for number in range(10)] + [gang("no", tpu="v4-32")]
    decision = route(BOTH, *jobs)
    there = [entry for some in decision.routed.values() for entry in some] + [
        each.entry for each in decision.unmet
    ]
    assert sorted(str(entry.key) for entry in there) == sorted(str(each.id) for each in jobs)


def test_the_order_of_the_groups_does_not_matter() -> None:
    entries = entries_of(*(v5e(f"train-{number}") for number in range(6)))
    assert route_demand(entries, BOTH) == route_demand(entries, BOTH[::-1])


def test_where_nothing_is_wanted_nothing_is_made() -> None:
    assert route(BOTH) == RoutingDecision(launch={}, routed={}, unmet=())


def test_a_group_that_may_have_no_slices_makes_none() -> None:
    closed = GroupState(group=state("closed", max_slices=0).group)
    assert unmet([closed], v5e()) == ["train: needs 1 slice, but scale group closed allows 0 (max_slices)"]


def test_what_was_asked_for_before_counts_against_the_most() -> None:
    groups = [state("west", priority=0, max_slices=3), state("central", priority=1)]
    assert launched(groups, v5e("a", slices=2), v5e("b", slices=2)) == {"west": 2, "central": 2}


def test_room_is_found_behind_a_slice_that_is_full() -> None:
    pinned = [job(name, f"scale-group={name}", cpu=112, replicas=4) for name in ("a", "c")]
    groups = [state("a", max_slices=1), state("b", max_slices=1), state("c", max_slices=1)]
    loose = [job("b", "scale-group=b"), job("load", cpu=100, replicas=2)]
    assert launched(groups, *pinned, *loose) == {"a": 1, "b": 1, "c": 1}


def test_a_group_as_the_configuration_has_it_is_one_without_slices() -> None:
    entries = entries_of(v5e())
    assert route_demand(entries, [each.group for each in BOTH]) == route_demand(entries, BOTH)
