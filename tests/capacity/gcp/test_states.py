"""What the states of nodes and queued resources come to, how they are listed, and how they are deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.capacity.provider import ProviderError
from iris_cli.core.messages.cloud import CloudState, Refusal
from tests.capacity.gcp_place import ZONE, GcpPlace, asked, grow_old, in_the_log, seen_as
from tests.support.tpu_emulator.settings import Fault


@pytest.mark.parametrize(
    ("state", "come_to"),
    [
        ("CREATING", CloudState.CREATING),
        ("REPAIRING", CloudState.CREATING),
        ("RESTARTING", CloudState.CREATING),
        ("STARTING", CloudState.CREATING),
        ("READY", CloudState.READY),
        ("STOPPING", CloudState.FAILED),
        ("UNKNOWN", CloudState.FAILED),
        ("STOPPED", CloudState.STOPPED),
        ("PREEMPTED", CloudState.STOPPED),
        ("TERMINATED", CloudState.STOPPED),
    ],
)
def test_what_the_states_of_nodes_come_to(place: GcpPlace, state: str, come_to: CloudState) -> None:
    place.create()
    place.cloud.turn("west-1", state=state)
    seen = place.only()
    assert seen.state is come_to
    assert bool(seen.hosts) == (state == "READY")
    assert seen.detail == ("" if come_to in (CloudState.CREATING, CloudState.READY) else state)


def test_an_unknown_state_is_reported_without_effect(place: GcpPlace) -> None:
    place.create()
    place.cloud.turn("west-1", state=99)  # type: ignore[arg-type]  # the number of one that is not invented yet
    assert seen_as(place.only()) == (
        CloudState.CREATING,
        "its state 99 is unknown to iris",
    )


@pytest.mark.parametrize("health", ["", "UNHEALTHY_MAINTENANCE", "TIMEOUT"])
def test_googles_word_on_the_health_of_a_node_decides_nothing(place: GcpPlace, health: str) -> None:
    """It may be missing or wrong; VMs are probed before and while they are used."""
    place.cloud.settings.health = health
    place.create()
    assert place.only().state is CloudState.READY


def test_a_queued_resource_is_being_made_until_its_node_is_there(queue: GcpPlace) -> None:
    queue.cloud.settings.queue_seconds = 3600.0
    queue.create()
    seen = queue.only()
    assert (seen.state, seen.group, seen.hosts, seen.incarnation) == (CloudState.CREATING, "west", (), "")
    queue.cloud.offset = 7200.0
    assert queue.only().state is CloudState.READY


def test_a_node_that_is_made_between_the_two_lists_is_not_missed(
    queue: GcpPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes first, and a request would be active whose node is not listed: it would be taken for dead."""
    from iris_cli.capacity.gcp.api import Api

    def slowly(list_them: Callable[[Api], list[Any]]) -> Callable[[Api], list[Any]]:
        def one(api: Api) -> list[Any]:
            found = list_them(api)
            queue.cloud.offset += 3600.0
            return found

        return one

    queue.cloud.settings.queue_seconds = 1800.0
    queue.create()
    monkeypatch.setattr(Api, "nodes", slowly(Api.nodes))
    monkeypatch.setattr(Api, "queued_resources", slowly(Api.queued_resources))
    assert queue.only().state in (CloudState.CREATING, CloudState.READY)


def test_a_queued_resource_that_fails_says_why(queue: GcpPlace) -> None:
    queue.cloud.settings.quota[ZONE] = 0
    queue.create()
    seen = queue.only()
    assert (seen.state, seen.quota) == (CloudState.FAILED, True)
    assert "Quota limit" in seen.detail
    queue.provider().delete("west-1")
    assert queue.provider().list() == ()


@pytest.mark.parametrize("keep", [False, True], ids=["its-node-goes", "its-node-stays-listed"])
def test_a_preempted_queued_resource_is_dead_until_it_is_deleted(queue: GcpPlace, keep: bool) -> None:
    queue.cloud.settings.keep_preempted = keep
    queue.create()
    queue.cloud.preempt("west-1")
    first = queue.only()
    assert first.state in (CloudState.FAILED, CloudState.STOPPED)
    assert seen_as(queue.only()) == (CloudState.STOPPED, "PREEMPTED" if keep else "SUSPENDED")
    queue.provider().delete("west-1")
    assert queue.provider().list() == ()
    assert (queue.cloud.requests, queue.cloud.nodes) == ({}, {})


def test_a_preempted_node_is_off_until_it_is_deleted(place: GcpPlace) -> None:
    place.create()
    place.cloud.preempt("west-1")
    assert seen_as(place.only()) == (CloudState.STOPPED, "PREEMPTED")
    place.provider().delete("west-1")
    assert place.provider().list() == ()


def test_a_slice_without_all_its_vms_has_failed_but_not_at_once(either: GcpPlace) -> None:
    either.cloud.settings.missing_endpoints[ZONE] = 1
    either.create()
    assert seen_as(either.only()) == (CloudState.CREATING, "1 of 2 VMs have an address")
    grow_old(either)
    assert seen_as(either.only()) == (CloudState.FAILED, "1 of 2 VMs have an address")


def test_a_slice_that_was_whole_is_not_given_up_for_a_list_without_all_its_vms(place: GcpPlace) -> None:
    place.create()
    known = in_the_log(place.only())
    [node] = place.cloud.nodes.values()
    node.machines = node.machines[:1]
    grow_old(place)
    assert place.only().state is CloudState.FAILED
    known = replace(known, incarnation=place.only().incarnation)
    assert seen_as(place.only(known=(known,))) == (CloudState.CREATING, "1 of 2 VMs have an address")


def test_an_active_request_without_a_node_has_failed() -> None:
    """Google may go on to call it active after somebody deleted its node."""
    from google.cloud import tpu_v2

    from iris_cli.capacity.gcp.reading import Resources, cloud_slice

    active = tpu_v2.QueuedResource(state={"state": "ACTIVE"})
    seen = cloud_slice("west-1", Resources(tpu_v2.QueuedResource.pb(active), None), 0.0, None, lambda _: ())
    assert seen_as(seen) == (CloudState.FAILED, "its node is gone")


def test_a_request_that_has_lost_its_node_says_so(queue: GcpPlace) -> None:
    queue.create()
    queue.only()
    queue.cloud.settings.delete_seconds = 3600.0
    queue.cloud.nodes.clear()
    seen = queue.only()
    assert (seen.state, seen.detail, seen.incarnation) == (CloudState.FAILED, "SUSPENDING", "")


# Deleting


def test_a_node_that_its_queued_resource_left_behind_is_deleted(queue: GcpPlace) -> None:
    queue.create()
    [request] = list(queue.cloud.requests)
    del queue.cloud.requests[request]
    assert queue.only().state is CloudState.READY
    queue.provider().delete("west-1")
    assert queue.cloud.nodes == {}


def test_the_node_of_a_queued_resource_of_ours_is_ours_whatever_its_labels_say(queue: GcpPlace) -> None:
    queue.create()
    queue.only()
    [node] = queue.cloud.nodes.values()
    node.spec = {**node.spec, "labels": {}}
    seen = queue.only()
    assert (seen.state, seen.group) == (CloudState.READY, "west")
    queue.provider().delete("west-1")
    assert (queue.cloud.requests, queue.cloud.nodes) == ({}, {})


def test_a_node_that_lives_while_its_queued_resource_is_being_deleted_is_deleted_next(
    queue: GcpPlace,
) -> None:
    queue.create()
    queue.cloud.settings.delete_seconds = 3600.0
    queue.provider().delete("west-1")
    queue.cloud.turn("west-1", state="READY")
    [node] = queue.cloud.nodes.values()
    node.gone_at = float("inf")
    queue.provider().delete("west-1")
    assert [each.state for each in queue.cloud.nodes.values()] == ["DELETING"]


def test_what_is_being_deleted_is_listed_so_and_not_asked_to_go_again(either: GcpPlace) -> None:
    either.cloud.settings.delete_seconds = 3600.0
    either.create()
    for _ in range(3):
        either.provider().delete("west-1")
        assert either.only().state is CloudState.DELETING
    assert asked(either, "DELETE") == ["200"]


def test_a_busy_slice_is_checked_again_before_the_error(either: GcpPlace) -> None:
    either.create()
    either.cloud.faults.append(Fault(kind="error", method="DELETE", status="ABORTED", times=2))
    with pytest.raises(ProviderError, match="another operation is running") as refused:
        either.provider().delete("west-1")
    assert refused.value.refusal is Refusal.UNANSWERED
    either.cloud.faults.append(Fault(kind="error", method="DELETE", status="ABORTED"))
    either.provider().delete("west-1")
    assert either.provider().list() == ()


def test_one_that_is_still_being_made_can_be_deleted(either: GcpPlace) -> None:
    either.cloud.settings.create_seconds = 3600.0
    either.create()
    either.provider().delete("west-1")
    assert either.provider().list() == ()


# Lists


def test_lists_are_whole_however_small_their_pages_are(either: GcpPlace) -> None:
    either.cloud.settings.page_size = 2
    names = [f"west-{index}" for index in range(5)]
    for name in names:
        either.create(name)
    assert [each.name for each in either.provider().list()] == names


def test_an_incomplete_list_is_an_error(place: GcpPlace) -> None:
    place.create()
    place.cloud.settings.unreachable.append(ZONE)
    with pytest.raises(ProviderError, match="unreachable for Google") as refused:
        place.provider().list()
    assert refused.value.refusal is Refusal.UNANSWERED


def test_nodes_and_queued_resources_stand_in_one_list(place: GcpPlace) -> None:
    place.create("west-1")
    place.create("west-2", queued=True)
    place.cloud.settings.queue_seconds = 3600.0
    place.create("west-3", queued=True)
    assert [(each.name, each.state) for each in place.provider().list()] == [
        ("west-1", CloudState.READY),
        ("west-2", CloudState.READY),
        ("west-3", CloudState.CREATING),
    ]
