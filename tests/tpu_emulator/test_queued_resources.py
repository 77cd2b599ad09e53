"""Queued resources as Google's own client sees them in the emulator."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fake_runner import Clock
from tests.support.google_tpu import GoogleTpu
from tests.support.tpu_emulator.cloud import Cloud

SPOT: dict[str, Any] = {"spot": {}}


def test_a_request_goes_from_the_queue_to_its_node(google: GoogleTpu, cloud: Cloud, clock: Clock) -> None:
    cloud.settings.change({"queue_seconds": 10, "create_seconds": 60})
    asked = google.ask("west-1")
    assert asked.done()
    assert google.request_state("west-1") == "WAITING_FOR_RESOURCES"
    assert google.nodes() == []
    clock.sleep(10)
    assert (google.request_state("west-1"), google.state("west-1")) == ("PROVISIONING", "CREATING")
    clock.sleep(60)
    assert (google.request_state("west-1"), google.state("west-1")) == ("ACTIVE", "READY")
    assert google.node("west-1").queued_resource == google.request("west-1").name


def test_a_request_waits_until_there_are_machines(google: GoogleTpu, cloud: Cloud) -> None:
    cloud.settings.stocked_out = ["us-west4-a"]
    google.ask("west-1")
    assert google.request_state("west-1") == "WAITING_FOR_RESOURCES"
    cloud.settings.stocked_out = []
    assert google.request_state("west-1") == "ACTIVE"


def test_one_that_is_over_quota_has_failed_says_why_and_eats_quota_until_it_is_deleted(
    google: GoogleTpu, cloud: Cloud
) -> None:
    cloud.settings.quota = {"us-west4-a": 8}
    google.ask("west-1")
    google.ask("west-2")
    assert [google.request_state(name) for name in google.requests()] == ["ACTIVE", "FAILED"]
    assert "Quota limit" in google.request("west-2").state.failed_data.error.message
    google.withdraw("west-1", force=True)
    google.ask("west-3")
    assert google.request_state("west-3") == "FAILED"
    for name in ("west-2", "west-3"):
        google.withdraw(name)
    google.ask("west-4")
    assert google.request_state("west-4") == "ACTIVE"


def test_what_is_active_is_deleted_by_force_alone(google: GoogleTpu, cloud: Cloud, clock: Clock) -> None:
    errors = pytest.importorskip("google.api_core.exceptions")
    google.ask("west-1")
    with pytest.raises(errors.BadRequest, match="is ACTIVE: delete its nodes, or use force"):
        google.withdraw("west-1")
    cloud.settings.delete_seconds = 10
    going = google.withdraw("west-1", force=True)
    assert (google.request_state("west-1"), google.state("west-1")) == ("DELETING", "DELETING")
    clock.sleep(10)
    assert going.done()
    assert (google.requests(), google.nodes(), cloud.books.left()) == ([], [], [])


@pytest.mark.parametrize("kept", [False, True])
def test_after_a_preemption_it_never_comes_back(
    google: GoogleTpu, cloud: Cloud, clock: Clock, kept: bool
) -> None:
    cloud.settings.change({"delete_seconds": 10, "keep_preempted": kept, "quota": {"us-west4-a": 8}})
    google.ask("west-1", **SPOT)
    cloud.preempt("west-1")
    assert (google.request_state("west-1"), google.state("west-1")) == ("SUSPENDING", "PREEMPTED")
    clock.sleep(1e6)
    request = google.request("west-1").state
    assert (request.state.name, request.state_initiator.name) == ("SUSPENDED", "SERVICE")
    assert google.nodes() == ["west-1"] * kept
    google.ask("west-2", **SPOT)
    assert google.request_state("west-2") == "FAILED", "what is suspended eats quota"
    google.withdraw("west-2")
    google.withdraw("west-1", force=kept)
    clock.sleep(10)
    google.ask("west-2", **SPOT)
    assert google.request_state("west-2") == "ACTIVE"


def test_one_whose_node_was_deleted_is_suspended_by_its_user(google: GoogleTpu) -> None:
    google.ask("west-1")
    google.delete("west-1")
    request = google.request("west-1").state
    assert (request.state.name, request.state_initiator.name) == ("SUSPENDED", "USER")
    google.withdraw("west-1")
    assert google.requests() == []
