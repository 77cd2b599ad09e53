"""What goes wrong in calls: each no by its kind, and calls without an answer."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.capacity.provider import ProviderError
from iris_cli.core.messages.cloud import CloudState, Refusal
from iris_cli.core.model.slice import Slice, SliceState
from tests.capacity.gcp_place import ZONE, GcpPlace, asked, gcp_group
from tests.support.tpu_emulator import shapes
from tests.support.tpu_emulator.settings import Fault


def test_quota_is_said_at_once(place: GcpPlace) -> None:
    place.cloud.settings.quota[ZONE] = 8
    place.create("west-1")
    with pytest.raises(ProviderError, match="Quota limit") as refused:
        place.create("west-2")
    assert refused.value.refusal is Refusal.QUOTA
    assert "http" not in refused.value.message


def test_a_lack_of_machines_that_only_the_operation_tells_is_a_failed_slice(place: GcpPlace) -> None:
    place.cloud.settings.stocked_out.append(ZONE)
    place.create()
    asked_for = Slice(name="west-1", group="west", template=place.group.template, state=SliceState.CREATING)
    assert place.provider().list() == ()
    seen = place.only(known=(asked_for,))
    assert (seen.name, seen.group, seen.state, seen.quota) == ("west-1", "west", CloudState.FAILED, True)
    assert "no more capacity" in seen.detail
    going = replace(asked_for, state=SliceState.DELETING)
    assert place.provider(known=(going,)).list() == ()


def test_a_slice_that_google_is_still_making_is_listed_also_while_its_node_is_not(place: GcpPlace) -> None:
    """The last operation counts: an earlier one by this name may have failed."""
    asked_for = Slice(name="west-1", group="west", template=place.group.template, state=SliceState.CREATING)
    place.cloud.settings.stocked_out.append(ZONE)
    place.create()
    place.cloud.settings.stocked_out.clear()
    place.cloud.settings.create_seconds = 3600.0
    assert place.only(known=(asked_for,)).state is CloudState.FAILED
    place.cloud.offset = 60.0
    place.create()
    place.cloud.nodes.clear()
    assert place.only(known=(asked_for,)).state is CloudState.CREATING
    assert place.provider().list() == ()


def test_a_request_that_was_never_heard_of_is_not_listed(place: GcpPlace) -> None:
    never = Slice(name="west-7", group="west", template=place.group.template, state=SliceState.REQUESTED)
    place.create("west-1")
    assert [each.name for each in place.provider(known=(never,)).list()] == ["west-1"]


@pytest.mark.parametrize(
    ("change", "words"), [({"type": "v9-16"}, "v9-16"), ({"runtime": ""}, "runtime_version")], ids=str
)
def test_what_does_not_exist_is_refused(place: GcpPlace, change: dict[str, Any], words: str) -> None:
    place.group = replace(place.group, template=replace(place.group.template, **change))
    with pytest.raises(ProviderError, match=re.escape(words)) as refused:
        place.create()
    assert refused.value.refusal is Refusal.INVALID


@pytest.mark.parametrize(
    ("status", "refusal", "words"),
    [
        ("PERMISSION_DENIED", Refusal.DENIED, "roles/tpu.admin"),
        ("UNAUTHENTICATED", Refusal.DENIED, "gcloud auth application-default login"),
        ("INVALID_ARGUMENT", Refusal.INVALID, "told to fail"),
        ("FAILED_PRECONDITION", Refusal.INVALID, "told to fail"),
        ("NOT_FOUND", Refusal.INVALID, "told to fail"),
        ("RESOURCE_EXHAUSTED", Refusal.QUOTA, "told to fail"),
        ("ABORTED", Refusal.UNANSWERED, "could not be created"),
    ],
)
def test_refusals_are_told_apart_and_not_asked_again(
    place: GcpPlace, status: str, refusal: Refusal, words: str
) -> None:
    place.cloud.faults.append(Fault(kind="error", method="POST", status=status, times=9))
    with pytest.raises(ProviderError, match=words) as refused:
        place.create()
    assert refused.value.refusal is refusal
    assert len(asked(place, "POST")) == 1


@pytest.mark.parametrize("kind", ["common", "tpu.v2alpha1"])
def test_operations_of_a_type_that_the_client_does_not_know_are_read_as_well(
    either: GcpPlace, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The service has several versions and one list of operations, and its client knows the types of one."""
    monkeypatch.setattr(shapes, "OPERATION", f"type.googleapis.com/google.cloud.{kind}.OperationMetadata")
    either.create()
    assert either.only().state is CloudState.READY
    assert "409" not in asked(either, "POST")
    either.provider().delete("west-1")
    assert asked(either, "DELETE") == ["200"]
    either.cloud.settings.stocked_out.append(ZONE)
    either.group = gcp_group()
    either.create("west-2")
    asked_for = Slice(name="west-2", group="west", template=either.group.template, state=SliceState.CREATING)
    seen = either.only(known=(asked_for,))
    assert (seen.state, seen.quota) == (CloudState.FAILED, True)
    assert "no more capacity" in seen.detail


# No answer


@pytest.mark.parametrize("status", ["INTERNAL", "UNAVAILABLE"])
def test_a_call_that_fails_is_made_again_a_few_times(either: GcpPlace, status: str) -> None:
    either.cloud.faults.append(Fault(kind="error", status=status, times=2))
    either.create()
    either.cloud.faults.append(Fault(kind="error", status=status, times=2))
    assert either.only().state is CloudState.READY
    either.cloud.faults.append(Fault(kind="error", status=status, times=3))
    with pytest.raises(ProviderError) as refused:
        either.provider().list()
    assert refused.value.refusal is Refusal.UNANSWERED


def test_a_lost_answer_makes_nothing_twice(either: GcpPlace) -> None:
    either.cloud.faults.append(Fault(kind="lost", method="POST"))
    either.create()
    assert either.only().state is CloudState.READY
    assert asked(either, "POST", "/nodes" if not either.group.template.gcp.queued else "/queued")[:2] == [
        "lost",
        "409",
    ]
    either.cloud.faults.append(Fault(kind="lost", method="DELETE"))
    either.provider().delete("west-1")
    assert either.provider().list() == ()


def test_a_call_that_is_not_answered_ends_in_time(place: GcpPlace) -> None:
    place.cloud.faults.append(Fault(kind="hang", times=9))
    with pytest.raises(ProviderError, match="no answer from Google") as refused:
        place.provider(timeout=0.1).list()
    assert refused.value.refusal is Refusal.UNANSWERED


def test_where_nobody_listens_there_is_no_answer(place: GcpPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", "http://127.0.0.1:9")
    with pytest.raises(ProviderError, match="no answer from Google") as refused:
        place.provider(tries=1).list()
    assert refused.value.refusal is Refusal.UNANSWERED


def test_nothing_is_said_in_the_clear_to_another_machine(
    place: GcpPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", "http://tpu.example.org")
    with pytest.raises(ProviderError, match="only an endpoint on this machine may use http"):
        place.provider()
