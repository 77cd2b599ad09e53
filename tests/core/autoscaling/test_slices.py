"""Slices between the log and their provider: what lists and answers mean, whenever they come."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core.events import events as ev
from iris_cli.core.evolve import IllegalTransitionError, evolve
from iris_cli.core.invariants import breaches
from iris_cli.core.lifecycle import slices
from iris_cli.core.messages.cloud import CallOutcome, CloudSlice, CloudState, Refusal, Scope
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.slice import GroupRecord, Slice, SliceHost, SliceState
from tests.support.autoscaling_script import autoscale, probe_all, scale_group
from tests.support.lab import Lab

NAME = "west-c0ff-1"


def lab(limits: Limits | None = None, **options: str) -> Lab:
    """One group of slices of four VMs, and a gang that wants one."""
    made = Lab(limits)
    made.cloud.groups["west"] = scale_group("west", options)
    return made.job("train", tpu="v5litepod-16")


def ready(**options: str) -> Lab:
    """The same with its slice, and the gang on it."""
    made = lab(None, **options)
    autoscale(made)
    autoscale(made)
    probe_all(made, NAME)
    autoscale(made)
    return made.schedule().reports("train/* running")


def listing(made: Lab, *there: CloudSlice, before: dict[str, Slice] | None = None) -> slices.Listing:
    scope = Scope.of(made.cloud.groups["west"].template)
    return slices.Listing(
        scope=scope, slices=there, before=dict(made.cluster.slices) if before is None else before
    )


def follow(made: Lab, heard: slices.Listing) -> Lab:
    connections = {name: group.connection for name, group in made.cloud.groups.items()}
    with made.transaction() as draft:
        made.settle(draft, slices.apply_listing(draft, heard, connections, made.limits))
    return made


def answered(made: Lab, outcome: CallOutcome) -> Lab:
    with made.transaction() as draft:
        slices.record_create_answer(draft, outcome, made.limits)
    return made


def states(made: Lab) -> dict[str, str]:
    return {name: each.state.value for name, each in made.cluster.slices.items()}


# Lists and what they say nothing of


def test_a_list_that_was_asked_for_before_the_slice_was_made_is_no_evidence() -> None:
    made = lab()
    early = listing(made)
    autoscale(made)
    assert states(follow(made, early)) == {NAME: "creating"}


def test_a_list_from_before_a_deletion_does_not_bring_the_slice_back() -> None:
    made = ready()
    there = made.cloud.slices[NAME]
    early = listing(made, there)
    made.cloud.delete(NAME)
    autoscale(made)
    autoscale(made)
    assert NAME not in states(made)
    assert NAME not in states(follow(made, early))


def test_a_slice_listed_as_being_repaired_keeps_its_running_tasks() -> None:
    made = ready()
    follow(made, listing(made, replace(made.cloud.slices[NAME], state=CloudState.CREATING)))
    assert states(made) == {NAME: "ready"}
    assert made.state_of("train").value == "RUNNING"


def test_what_failed_is_deleted_and_what_runs_there_ends_when_it_is_gone() -> None:
    """A failed slice may still run something: that is dead only when its provider lists it no more."""
    made = ready()
    follow(made, listing(made, replace(made.cloud.slices[NAME], state=CloudState.FAILED, detail="broken")))
    assert states(made) == {NAME: "deleting"}
    assert made.state_of("train").value == "RUNNING"
    assert [made.the_worker(f"{NAME}-{index}").draining for index in range(4)] == [True] * 4
    follow(made, listing(made))
    assert states(made) == {}
    assert made.cluster.workers == {}
    assert [task.state.value for task in made.cluster.tasks_of(made.the_job("train").id)] == ["PENDING"] * 4


def test_what_runs_on_a_slice_that_is_being_deleted_ends_as_soon_as_its_machines_have_stopped() -> None:
    made = ready()
    for state in (CloudState.FAILED, CloudState.STOPPED):
        follow(made, listing(made, replace(made.cloud.slices[NAME], state=state)))
    assert {task.state.value for task in made.cluster.tasks_of(made.the_job("train").id)} == {"PENDING"}


@pytest.mark.parametrize(
    ("listed", "quota", "wait"), [(True, False, 60), (True, True, 300), (False, False, 60)]
)
def test_a_slice_that_fails_or_vanishes_while_it_is_made_lets_its_group_back_off(
    listed: bool, quota: bool, wait: int
) -> None:
    made = lab()
    made.cloud.slow = True
    autoscale(made)
    failed = replace(made.cloud.slices[NAME], state=CloudState.FAILED, quota=quota)
    follow(made, listing(made, *[failed] * listed))
    assert states(made) == {NAME: "deleting"}
    assert made.cluster.scale_groups["west"].backoff_until - made.now == wait


def test_another_machine_of_the_same_name_is_not_the_slice() -> None:
    made = ready()
    follow(made, listing(made, replace(made.cloud.slices[NAME], incarnation="another")))
    assert states(made) == {NAME: "deleting"}
    assert made.cluster.workers == {}


def test_a_place_that_was_not_listed_is_left_alone() -> None:
    made = ready()
    elsewhere = replace(listing(made), scope=Scope(made.cloud.groups["west"].template.provider, "p", "else"))
    assert states(follow(made, elsewhere)) == {NAME: "ready"}


def test_ghosts_of_a_slice_end_with_it() -> None:
    made = ready(preemptible="true")
    follow(made, listing(made, replace(made.cloud.slices[NAME], state=CloudState.STOPPED)))
    assert made.cluster.ghosts == {}
    assert made.cluster.workers == {}


# Answers


def test_no_answer_leaves_the_request_open_and_it_is_made_again() -> None:
    made = lab()
    made.cloud.refusals["west"] = Refusal.UNANSWERED
    autoscale(made)
    assert states(made) == {NAME: "requested"}
    made.cloud.refusals.clear()
    autoscale(made)
    assert states(made) == {NAME: "requested"}  # its group backs off
    autoscale(made.advance("61s"))
    assert states(made) == {NAME: "creating"}
    assert made.cloud.made == 1


def test_a_request_that_was_heard_though_nobody_said_so_is_found_in_the_list() -> None:
    made = lab()
    made.cloud.refusals["west"] = Refusal.UNANSWERED
    autoscale(made)
    made.cloud.appear(NAME, "west")
    autoscale(made)
    assert states(made) == {NAME: "booting"}
    assert made.cloud.made == 1


@pytest.mark.parametrize("refusal", [None, *Refusal])
def test_an_answer_that_comes_too_late_changes_nothing(refusal: Refusal | None) -> None:
    made = ready()
    before = made.cluster
    assert answered(made, CallOutcome(slice=NAME, refusal=refusal)).cluster == before
    assert answered(made, CallOutcome(slice="west-c0ff-99", refusal=refusal)).cluster == before


@pytest.mark.parametrize(
    ("refusal", "first"),
    [(Refusal.QUOTA, 300), (Refusal.STOCKOUT, 300), (Refusal.DENIED, 60), (Refusal.INVALID, 60)],
)
def test_a_group_backs_off_twice_as_long_each_time(refusal: Refusal, first: int) -> None:
    made = lab()
    made.cloud.refusals["west"] = refusal
    waits = []
    for _ in range(4):
        autoscale(made)
        waits.append(made.cluster.scale_groups["west"].backoff_until - made.now)
        made.advance(waits[-1])
    assert waits == [first, 2 * first, 4 * first, 8 * first]


def test_no_back_off_is_longer_than_the_longest_also_if_a_clock_jumped() -> None:
    made = lab(Limits(scale_backoff_max=400.0))
    made.cloud.refusals["west"] = Refusal.QUOTA
    for wait in (300, 400, 400):
        autoscale(made)
        assert made.cluster.scale_groups["west"].backoff_until - made.now == wait
        made.advance(wait)
    autoscale(made)
    made.cloud.refusals.clear()
    autoscale(made.advance(-86400))
    assert [each.state for each in made.cluster.slices.values()] == [SliceState.CREATING]


def test_several_refusals_at_once_count_as_one() -> None:
    made = lab().job("b", tpu="v5litepod-16").job("c", tpu="v5litepod-16")
    made.cloud.refusals["west"] = Refusal.QUOTA
    autoscale(made)
    assert made.cluster.scale_groups["west"].failures == 1
    assert states(made) == {}


def test_names_are_never_used_twice() -> None:
    made = lab()
    made.cloud.refusals["west"] = Refusal.DENIED
    names = []
    for _ in range(3):
        plan = autoscale(made)
        names += [order.slice for order in plan.create]
        made.advance("1h")
    assert names == ["west-c0ff-1", "west-c0ff-2", "west-c0ff-3"]


# Limits


def test_so_many_are_asked_for_in_a_minute_and_the_rest_later() -> None:
    made = lab(Limits(slices_per_minute=2), max="10")
    for number in range(4):
        made.job(f"more-{number}", tpu="v5litepod-16")
    assert (len(autoscale(made).create), len(made.cloud.slices)) == (2, 2)
    assert autoscale(made.advance("30s")).later == {"west": 3}
    assert len(autoscale(made.advance("30s")).create) == 2


def test_min_slices_are_there_without_any_demand() -> None:
    made = Lab()
    made.cloud.groups["west"] = scale_group("west", {"min": "2"})
    autoscale(made)
    assert len(made.cloud.slices) == 2
    assert autoscale(made).create == ()


def test_a_slice_that_is_asked_for_too_long_is_given_up() -> None:
    made = lab()
    made.cloud.slow = True
    autoscale(made)
    autoscale(made.advance("29m"))
    assert states(made) == {NAME: "creating"}
    autoscale(made.advance("1m"))
    assert (states(made), made.cloud.slices) == ({NAME: "deleting"}, {})


def test_a_slice_with_one_vm_that_never_answers_joins_never() -> None:
    made = lab()
    autoscale(made)
    autoscale(made)
    for index in range(3):
        probe_all(made, f"{NAME}-{index}")
    autoscale(made)
    assert states(made) == {NAME: "booting"}
    assert made.schedule().plan().assignments == ()
    autoscale(made.advance("15m"))
    assert "west-c0ff-1-3: unprobed" in made.cluster.slices[NAME].reason


def test_a_group_that_is_in_the_configuration_no_more_is_emptied_when_it_is_idle() -> None:
    made = ready()
    del made.cloud.groups["west"]
    made.cloud.groups["other"] = scale_group("other", {"type": "v4-8"})  # of the same place
    autoscale(made.advance("1h"))
    assert states(made) == {NAME: "ready"}
    made.reports("train/* exited 0").advance("10m")
    autoscale(made)
    assert states(made) == {NAME: "deleting"}


def test_no_wait_is_twice_as_long_as_it_should_also_if_a_clock_was_set_back() -> None:
    made = ready().reports("train/* exited 0")
    autoscale(made.advance(-300))
    assert states(made) == {NAME: "ready"}
    autoscale(made.advance(-300))
    assert states(made) == {NAME: "deleting"}


def test_what_is_being_made_is_given_up_in_time_also_if_a_clock_was_set_back() -> None:
    made = lab()
    made.cloud.slow = True
    autoscale(made)
    autoscale(made.advance(-1740))
    assert states(made) == {NAME: "creating"}
    autoscale(made.advance(-60))
    assert states(made) == {NAME: "deleting"}


def test_a_slice_for_which_something_waits_is_not_idle() -> None:
    made = ready().reports("train/* exited 0").advance("1h")
    made.job("next", tpu="v5litepod-16")
    autoscale(made)
    assert states(made) == {NAME: "ready"}


def test_a_host_that_is_silent_for_a_moment_has_no_slice_made() -> None:
    made = ready().reports("train/* exited 0")
    made.job("next", tpu="v5litepod-16").silent(f"{NAME}-0")
    assert autoscale(made).demand == ()


def test_a_stop_under_way_has_no_slice_made() -> None:
    made = ready().cancel("train").job("next", tpu="v5litepod-16")
    assert autoscale(made).demand == ()


def test_what_is_too_large_for_the_vms_that_were_seen_has_no_second_slice_made_to_look_at() -> None:
    """What VMs of this type have, nobody knows before the first slice has shown it. That is remembered."""
    made = Lab()
    made.cloud.groups["west"] = scale_group("west", {"type": "v6e-16", "idle": "1m"})
    made.job("fat", cpu=200)
    autoscale(made)
    autoscale(made)
    probe_all(made, NAME)
    assert "needs 200 cores, but the largest VM has 112 cores" in str(autoscale(made).routing.unmet[0].reason)
    for _ in range(4):
        autoscale(made.advance("2m"))
    assert (states(made), made.cloud.made) == ({}, 1)


def test_slices_of_an_older_template_are_no_measure_of_new_ones_and_serve_whom_they_would() -> None:
    made = lab()
    autoscale(made)
    made.cloud.groups["west"] = scale_group("west", {"type": "v5litepod-32"})
    made.job("larger", tpu="v5litepod-32")
    assert [order.group.template.type for order in autoscale(made).create] == ["v5litepod-32"]
    assert autoscale(made).demand == ()


# The log


@pytest.mark.parametrize(
    "event",
    [
        ev.SliceCreated(slice=NAME),
        ev.SliceRefused(slice=NAME, error="no"),
        ev.SliceJoined(slice=NAME),
        ev.SliceDeleted(slice=NAME),
        ev.SliceRequested(slice=NAME, group="west", template=lab().cloud.groups["west"].template),
        ev.SliceStarted(slice="never", hosts=()),
        ev.SliceDeletionRequested(slice="never", reason="x"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_that_does_not_fit_is_refused(event: ev.Event) -> None:
    made = ready()
    with pytest.raises(IllegalTransitionError):
        evolve(made.cluster, [event], made.now)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hosts": ()}, "is ready with 0 hosts"),
        ({"started_at": None}, "is ready with 4 hosts, started at None"),
        ({"deleting_at": 1.0}, "is ready, with its deletion requested at 1.0"),
        ({"name": "x"}, f"slice {NAME}: is ready"),
    ],
)
def test_a_slice_that_contradicts_itself_is_a_breach(change: dict[str, Any], words: str) -> None:
    made = ready()
    odd = replace(made.cluster, slices={NAME: replace(made.cluster.slices[NAME], **change)})
    assert [breach for breach in breaches(odd) if words in breach]


def test_slices_that_nobody_requested_and_one_machine_twice_are_breaches() -> None:
    made = ready()
    one = made.cluster.slices[NAME]
    twice = replace(made.cluster, slices={NAME: one, "other": replace(one, name="other")})
    assert "scale group west: 2 slices, but 1 were requested" in breaches(twice)
    assert "2 slices have the incarnation machine-1" in breaches(twice)
    lost = replace(made.cluster, scale_groups={"west": GroupRecord(name="west")})
    assert "scale group west: 1 slices, but 0 were requested" in breaches(lost)


def test_the_way_to_a_vm_is_that_of_its_group_with_the_address_of_its_provider() -> None:
    made = ready()
    group = made.cloud.groups["west"]
    connection = replace(group.connection, user="me", port=22, known_hosts="strict")
    known = replace(
        made.cluster.slices[NAME], hosts=(SliceHost(host="h0", port=2222), SliceHost(host="h1", key="k"))
    )
    first, second = slices.connections_of(known, connection).values()
    assert (first.host, first.port, first.user, first.known_hosts) == ("h0", 2222, "me", "accept-new")
    assert (second.host, second.port, second.known_hosts) == ("h1", 22, "strict")
