"""Host keys that VMs tell by their guest attributes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from iris_cli.core.messages.cloud import CloudState
from iris_cli.core.model.slice import SliceHost
from tests.capacity.gcp_place import GcpPlace, asked, grow_old, in_the_log, seen_as
from tests.support.tpu_emulator.records import Machine
from tests.support.tpu_emulator.settings import Fault


def test_the_vms_have_told_their_host_keys_before_anybody_connects(either: GcpPlace) -> None:
    either.create()
    assert [host.key.split()[0] for host in either.only().hosts] == ["ssh-ed25519"] * 2
    assert len({host.key for host in either.only().hosts}) == 2


def forget_keys(place: GcpPlace) -> None:
    place.only()
    for node in place.cloud.nodes.values():
        node.machines = tuple(Machine(each.host, each.port, "") for each in node.machines)


@pytest.mark.parametrize("ahead", [0.0, 200.0])
def test_a_new_slice_waits_for_its_host_keys_and_an_older_one_goes_without(
    place: GcpPlace, ahead: float
) -> None:
    """Google's clock may be ahead of ours."""
    place.cloud.offset = ahead
    place.create()
    forget_keys(place)
    assert seen_as(place.only()) == (CloudState.CREATING, "its VMs have not reported host keys yet")
    grow_old(place)
    seen = place.only()
    assert (seen.state, [host.key for host in seen.hosts]) == (CloudState.READY, ["", ""])


def test_unavailable_host_keys_do_not_fail_the_list(place: GcpPlace) -> None:
    place.create()
    grow_old(place)
    place.cloud.faults.append(Fault(kind="error", path=":getGuestAttributes", status="PERMISSION_DENIED"))
    assert place.only().state is CloudState.READY


def test_host_keys_that_the_log_has_are_not_asked_for_again(place: GcpPlace) -> None:
    place.create()
    seen = place.only()
    before = len(asked(place, path=":getGuestAttributes"))
    assert place.only(known=(in_the_log(seen),)) == seen
    assert len(asked(place, path=":getGuestAttributes")) == before


def test_a_slice_that_began_without_host_keys_stays_as_it_is_in_the_log(place: GcpPlace) -> None:
    """Else it would begin again and again."""
    place.create()
    seen = place.only()
    known = in_the_log(replace(seen, hosts=tuple(SliceHost(host=each.host) for each in seen.hosts)))
    assert place.only(known=(known,)).hosts == known.hosts


def test_another_machine_of_the_same_name_is_asked_for_its_own_host_keys(place: GcpPlace) -> None:
    place.create()
    seen = place.only()
    known = in_the_log(replace(seen, incarnation="4711 of old"))
    assert place.only(known=(known,)) == seen
    assert asked(place, path=":getGuestAttributes") == ["200", "200"]


@pytest.mark.parametrize(
    "key", ["ssh-ed25519 not-base64!", "ssh-ed25519 AAAA", "ssh-ed25519 ", "ssh-dss AAAAB3NzaC1kc3MAAA=="]
)
def test_what_is_no_host_key_is_not_taken_for_one(place: GcpPlace, key: str) -> None:
    place.create()
    place.only()
    [node] = place.cloud.nodes.values()
    node.machines = tuple(Machine(each.host, each.port, key) for each in node.machines)
    grow_old(place)
    assert [host.key for host in place.only().hosts] == ["", ""]
