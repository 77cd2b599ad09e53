"""What Google is asked for: type, price, addresses, whose it is, who may get in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.capacity.provider import ProviderError
from iris_cli.core.messages.cloud import Refusal
from iris_cli.core.model.slice import Addresses
from iris_cli.core.model.worker import Connection
from iris_cli.core.topology import lookup
from iris_cli.demo.processes import make_key
from tests.capacity.gcp_place import ZONE, GcpPlace


def spec_of(place: GcpPlace, **options: Any) -> dict[str, Any]:
    place.create("west-1", **options)
    [node] = place.cloud.nodes.values()
    return dict(node.spec)


def test_a_node_is_asked_for_by_type_runtime_and_labels_that_say_whose_it_is(place: GcpPlace) -> None:
    spec = spec_of(place, labels={"team": "vision"}, tags=("ssh",), service_account="me@lab.example")
    assert (spec["acceleratorType"], spec["runtimeVersion"]) == ("v4-16", "tpu-ubuntu2204-base")
    assert spec["labels"] == {"team": "vision", "iris-owner": "us", "iris-group": "west"}
    assert spec["tags"] == ["ssh"]
    assert spec["serviceAccount"]["email"] == "me@lab.example"
    assert spec["metadata"] == {"enable-guest-attributes": "TRUE"}


@pytest.mark.parametrize(
    ("preemptible", "options", "scheduling"),
    [
        (False, {}, {}),
        (True, {}, {"preemptible": True}),
        (True, {"spot": True}, {"spot": True}),
        (False, {"reserved": True}, {"reserved": True}),
    ],
)
def test_how_a_node_is_paid(
    place: GcpPlace, preemptible: bool, options: dict[str, Any], scheduling: dict[str, bool]
) -> None:
    place.group = replace(place.group, template=replace(place.group.template, preemptible=preemptible))
    assert spec_of(place, **options).get("schedulingConfig", {}) == scheduling


@pytest.mark.parametrize(
    ("preemptible", "options", "words"),
    [
        (False, {}, {}),
        (True, {}, {"spot": {}}),
        (True, {"spot": True}, {"spot": {}}),
        (False, {"reserved": True}, {"guaranteed": {}}),
        (
            False,
            {"reserved": True, "reservation": "ours"},
            {"guaranteed": {}, "reservationName": f"projects/lab/locations/{ZONE}/reservations/ours"},
        ),
        (
            False,
            {"reserved": True, "reservation": "projects/p/locations/z/reservations/r"},
            {"guaranteed": {}, "reservationName": "projects/p/locations/z/reservations/r"},
        ),
    ],
)
def test_how_a_queued_resource_is_paid(
    queue: GcpPlace, preemptible: bool, options: dict[str, Any], words: dict[str, Any]
) -> None:
    queue.group = replace(queue.group, template=replace(queue.group.template, preemptible=preemptible))
    queue.create("west-1", **options)
    [request] = queue.cloud.requests.values()
    assert {key: request.spec[key] for key in request.spec if key != "tpu"} == words
    [spec] = request.spec["tpu"]["nodeSpec"]
    assert (spec["nodeId"], spec["parent"]) == ("west-1", f"projects/lab/locations/{ZONE}")
    reserved = {"reserved": True} if options else {}
    assert spec["node"].get("schedulingConfig", {}) == ({} if preemptible else reserved)


@pytest.mark.parametrize(
    ("addresses", "first"), [(Addresses.EXTERNAL, "198"), (Addresses.INTERNAL, "10.")], ids=str
)
def test_hosts_are_reached_at_the_addresses_that_were_asked_for(
    either: GcpPlace, addresses: Addresses, first: str
) -> None:
    either.create("west-1", addresses=addresses)
    assert [host.host[:3] for host in either.only().hosts] == [first, first]
    assert {host.port for host in either.only().hosts} == {0}


@pytest.mark.parametrize(
    ("tpu", "topology", "asked_for"),
    [("v4-16", "2x2x2", {"type": 7}), ("v5litepod-8", "2x4", {"type": 9}), ("v5p-16", "2x2x2", {"type": 10})],
)
def test_an_arrangement_of_chips_is_asked_for_as_it_was_written(
    place: GcpPlace, tpu: str, topology: str, asked_for: dict[str, int]
) -> None:
    place.group = replace(place.group, template=replace(place.group.template, type=tpu))
    spec = spec_of(place, topology=topology)
    assert spec["acceleratorConfig"] == {**asked_for, "topology": topology}
    assert "acceleratorType" not in spec
    known = lookup(tpu)
    assert known is not None
    assert len(place.only().hosts) == known.vms


def test_an_arrangement_that_googles_client_has_no_word_for_is_refused(place: GcpPlace) -> None:
    place.group = replace(place.group, template=replace(place.group.template, type="tpu7x-16"))
    with pytest.raises(ProviderError, match="write type: tpu7x-16"):
        place.create(topology="2x2x2")


def test_the_groups_key_lets_us_in(place: GcpPlace, tmp_path: Path) -> None:
    public = make_key(tmp_path / "id")
    (tmp_path / "id.pub").write_text(f"ssh-ed25519 {public} me@laptop\n")
    connection = Connection(host="", user="me", key=str(tmp_path / "id"))
    place.group = replace(place.group, connection=connection)
    assert spec_of(place)["metadata"]["ssh-keys"] == f"me:ssh-ed25519 {public}"


def test_a_key_without_its_public_part_beside_it_is_read(place: GcpPlace, tmp_path: Path) -> None:
    public = make_key(tmp_path / "id")
    place.group = replace(place.group, connection=Connection(host="", user="me", key=str(tmp_path / "id")))
    assert spec_of(place)["metadata"]["ssh-keys"] == f"me:ssh-ed25519 {public}"


def test_without_the_public_part_of_the_key_nothing_is_asked_for(place: GcpPlace, tmp_path: Path) -> None:
    place.group = replace(place.group, connection=Connection(host="", key=str(tmp_path / "none")))
    with pytest.raises(ProviderError, match=r"ssh-keygen -y -f .*none > .*none\.pub") as refused:
        place.create()
    assert refused.value.refusal is Refusal.INVALID
    assert place.cloud.nodes == {}
