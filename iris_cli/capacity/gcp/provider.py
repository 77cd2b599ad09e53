"""The slices of one owner in one zone of Google Cloud."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from iris_cli.capacity.gcp import reading
from iris_cli.capacity.gcp.api import Api, RetryPolicy, build_node, build_queued_resource
from iris_cli.capacity.provider import ProviderError
from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.core.messages.cloud import CloudSlice, Refusal
from iris_cli.core.model.slice import ScaleGroup, Slice, SliceState


class GcpProvider:
    """A provider whose slices are nodes, or queued resources with one node of the same name. A label names the owner.

    `known`: the slices in the log. The provider does not fetch their host keys again. If Google does not list a known
    slice, the provider searches Google's operations for the reason.
    """

    def __init__(
        self,
        project: str,
        zone: str,
        owner: str,
        known: Mapping[str, Slice] | None = None,
        policy: RetryPolicy | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._owner = owner
        self._known = known or {}
        self._clock = clock
        self._api = Api(project, zone, policy, clock)

    def list(self) -> tuple[CloudSlice, ...]:
        """Return all slices. Read queued resources BEFORE nodes, so that no node of an ACTIVE resource is missing."""
        requests = self._api.queued_resources()
        found = reading.merge_resources(requests, self._api.nodes(), self._owner)
        now = self._clock.now()
        listed = [
            reading.cloud_slice(name, each, now, self._known.get(name), self._host_keys)
            for name, each in found.items()
        ]
        return (*listed, *self._missing_slices(found))

    def create(self, name: str, group: ScaleGroup) -> None:
        """Create a node or a queued resource, unless the owner has a slice with that name."""
        if group.template.gcp.queued:
            resource = build_queued_resource(name, self._api.parent, group, self._owner)
            is_created = self._api.create_queued_resource(name, resource)
        else:
            is_created = self._api.create_node(name, build_node(group, self._owner))
        if not is_created and not self._exists(name):
            raise ProviderError(Refusal.UNANSWERED, f"{name} could not be created")

    def delete(self, name: str) -> None:
        """Delete the queued resource with its node, or a node without a queued resource."""
        # Google refuses a deletion during another operation. If the other operation is a deletion, the second `_delete`
        # succeeds.
        if not (self._delete(name) or self._delete(name)):
            raise ProviderError(
                Refusal.UNANSWERED, f"{name} can't be deleted now: another operation is running"
            )

    def _delete(self, name: str) -> bool:
        request, node = self._api.queued_resource(name), self._api.node(name)
        if request is not None and reading.request_label(request, reading.OWNER) != self._owner:
            request = None
        if request is not None and not reading.is_being_deleted(request):
            return self._api.delete_queued_resource(name)
        if node is not None and self._is_ours(node, request) and not reading.is_being_deleted(node):
            return self._api.delete_node(name)
        return True

    def _exists(self, name: str) -> bool:
        """Return whether the owner has a slice with that name. Raises ProviderError if another owner has it."""
        request, node = self._api.queued_resource(name), self._api.node(name)
        is_foreign = request is not None and reading.request_label(request, reading.OWNER) != self._owner
        if is_foreign or (node is not None and not self._is_ours(node, request)):
            raise ProviderError(Refusal.INVALID, f"a slice {name} of another owner exists")
        return request is not None or node is not None

    def _is_ours(self, node: Any, request: Any | None) -> bool:
        """Return whether a node is the owner's. `request`: the owner's queued resource with the same name, or None."""
        by_label = bool(node.labels.get(reading.OWNER) == self._owner)
        return by_label or (
            request is not None
            and reading.short_name(node.queued_resource) == reading.short_name(request.name)
        )

    def _host_keys(self, name: str) -> Sequence[Mapping[str, str]]:
        """Return the host keys of a node; () if they can't be read."""
        try:
            return self._api.host_keys(name)
        except ProviderError:
            return ()

    def _missing_slices(self, found: Mapping[str, object]) -> Iterator[CloudSlice]:
        """Yield the known slices that are missing in `found`, if Google still creates them or could not create them."""
        expected = [
            each
            for each in self._known.values()
            if each.name not in found and each.state in (SliceState.REQUESTED, SliceState.CREATING)
        ]
        if not expected:
            return
        try:
            operations = self._api.operations()
        except ProviderError:
            return  # operations only give reasons; the list is complete without them
        for each in expected:
            missing = reading.failed_creation(each.name, operations)
            if missing is not None:
                yield replace(missing, group=each.group)
