"""TPU VMs as Google's own client sees them in the emulator."""

from __future__ import annotations

import pytest

from tests.support.fake_runner import Clock
from tests.support.google_tpu import ZONE, GoogleTpu
from tests.support.tpu_emulator.cloud import Cloud
from tests.support.tpu_emulator.records import Place
from tests.support.tpu_emulator.settings import Settings


def test_a_node_is_there_when_its_operation_is_done(google: GoogleTpu, cloud: Cloud, clock: Clock) -> None:
    cloud.settings.create_seconds = 60
    making = google.create("west-1", labels={"state": "READY"})
    assert (google.state("west-1"), making.done()) == ("CREATING", False)
    assert list(google.node("west-1").network_endpoints) == []
    clock.sleep(60)
    assert making.done()
    made = google.node("west-1")
    assert made == making.result(timeout=60)
    assert (made.state.name, made.health.name, dict(made.labels)) == ("READY", "HEALTHY", {"state": "READY"})
    assert [each.ip_address for each in made.network_endpoints] == ["10.18.1.2", "10.18.1.3"]
    assert making.metadata.target == f"{ZONE}/nodes/west-1"


def test_a_node_is_gone_when_its_deletion_is_done(google: GoogleTpu, cloud: Cloud, clock: Clock) -> None:
    google.create("west-1").result(timeout=60)
    cloud.settings.delete_seconds = 10
    going = google.delete("west-1")
    assert (google.state("west-1"), going.done()) == ("DELETING", False)
    clock.sleep(10)
    assert going.done()
    assert google.nodes() == []
    assert cloud.books.left() == []


def test_places_are_apart_and_a_dash_means_all_of_them(google: GoogleTpu) -> None:
    google.create("west-1")
    google.create("east-1", zone="projects/p/locations/us-east1-c")
    google.create("other-1", zone="projects/other/locations/us-west4-a")
    assert google.nodes() == ["west-1"]
    assert sorted(google.nodes("projects/p/locations/-")) == ["east-1", "west-1"]


REFUSED = [
    ("a name that is taken", lambda google: google.create("west-1"), "Conflict", "already exists"),
    ("a type that is unknown", lambda google: google.create("west-2", "v9-8"), "BadRequest", "v9-8"),
    ("a bad name", lambda google: google.create("West_2"), "BadRequest", "Invalid node id"),
    ("what is not there", lambda google: google.delete("west-2"), "NotFound", "was not found"),
    (
        "a place that is full",
        lambda google: google.create("west-2", "v4-32"),
        "TooManyRequests",
        "Limit: 16 in",
    ),
]


def test_a_preempted_node_eats_quota_until_it_is_deleted(google: GoogleTpu, cloud: Cloud) -> None:
    errors = pytest.importorskip("google.api_core.exceptions")
    cloud.settings.quota = {"us-west4-a": 8}
    google.spot("west-1")
    cloud.preempt("west-1")
    assert google.state("west-1") == "PREEMPTED"
    with pytest.raises(errors.TooManyRequests):
        google.spot("west-2")
    google.delete("west-1")
    google.spot("west-2")
    assert google.nodes() == ["west-2"]


def test_where_nodes_stick_none_is_ever_ready_and_each_can_be_deleted(
    google: GoogleTpu, cloud: Cloud, clock: Clock
) -> None:
    errors = pytest.importorskip("google.api_core.exceptions")
    cloud.settings.stuck = ["us-west4-a"]
    making = google.create("west-1")
    clock.sleep(1e6)
    assert (google.state("west-1"), making.done()) == ("CREATING", False)
    google.delete("west-1")
    with pytest.raises(errors.Cancelled):
        making.result(timeout=60)


def test_operations_are_listed_with_what_they_are_about(google: GoogleTpu, cloud: Cloud) -> None:
    cloud.settings.page_size = 1
    making, going = google.create("west-1"), google.delete("west-1")
    first = google.client.list_operations({"name": ZONE})
    second = google.client.list_operations({"name": ZONE, "page_token": first.next_page_token})
    assert [each.name for page in (first, second) for each in page.operations] == [
        making.operation.name,
        going.operation.name,
    ]
    assert second.next_page_token == ""


def preempted(seed: int) -> list[str]:
    """Which of six spot nodes, and one that is none, an average lifetime leaves in this story."""
    clock, place = Clock(), Place("p", "us-west4-a")
    cloud = Cloud(Settings(lifetime=3600, seed=seed), clock=clock)
    spec = {"acceleratorType": "v4-8", "runtimeVersion": "x"}
    cloud.create_node(place, "firm", spec)
    for index in range(6):
        cloud.create_node(place, f"spot-{index}", {**spec, "schedulingConfig": {"spot": True}})
    clock.sleep(3600)
    return [each.id for each in cloud.in_place(cloud.nodes, place) if each.state == "PREEMPTED"]


def test_spot_nodes_are_preempted_by_a_chance_that_can_be_repeated() -> None:
    stories = [preempted(seed) for seed in range(5)]
    assert stories == [preempted(seed) for seed in range(5)]
    assert len({tuple(story) for story in stories}) > 1
    assert not any("firm" in story for story in stories)
