"""The slices of one owner in one zone of Google's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from iris_cli.capacity.gcp.api import Api, Patience
from iris_cli.capacity.gcp.asking import OWNER, node_of, queued_resource_of
from iris_cli.capacity.gcp.reading import (
    cloud_slice,
    is_being_deleted,
    label_of_request,
    merged,
    never_made,
    short,
)
from iris_cli.capacity.provider import ProviderError
from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.core.messages.cloud import CloudSlice, Refusal
from iris_cli.core.model.slice import ScaleGroup, Slice, SliceState


class GcpProvider:
    """Slices are nodes, or queued resources with one node of the same name; labels say whose they are.

    `known` are slices as the log has them: their host keys are not asked for again, and of those that were asked for
    and are not listed, Google's operations tell why.
    """

    def __init__(
        self,
        project: str,
        zone: str,
        owner: str,
        known: Mapping[str, Slice] | None = None,
        patience: Patience | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._owner = owner
        self._known = known or {}
        self._clock = clock
        self._api = Api(project, zone, patience, clock)

    def list(self) -> tuple[CloudSlice, ...]:
        """Nodes and queued resources, all pages. BEFORE nodes, queued resources: an ACTIVE one then has its node."""
        requests = self._api.queued_resources()
        found = merged(requests, self._api.nodes(), self._owner)
        now = self._clock.now()
        listed = [
            cloud_slice(name, each, now, self._known.get(name), self._host_keys)
            for name, each in found.items()
        ]
        return (*listed, *self._not_listed(found))

    def create(self, name: str, group: ScaleGroup) -> None:
        """Ask for a node, or for a queued resource; what is there by that name must be ours."""
        if group.template.gcp.queued:
            wanted = queued_resource_of(name, self._api.parent, group, self._owner)
            taken_on = self._api.create_queued_resource(name, wanted)
        else:
            taken_on = self._api.create_node(name, node_of(group, self._owner))
        if not taken_on and not self._is_there(name):
            raise ProviderError(Refusal.UNANSWERED, f"{name} could not be created")

    def delete(self, name: str) -> None:
        """Ask for the end of the queued resource, which takes its node with it; and of a node that is left behind."""
        # Refused while something else is done to it, which may be that somebody else deletes it: then that is seen.
        if not (self._delete(name) or self._delete(name)):
            raise ProviderError(
                Refusal.UNANSWERED, f"{name} can't be deleted now: another operation is running"
            )

    def _delete(self, name: str) -> bool:
        request, node = self._api.queued_resource(name), self._api.node(name)
        if request is not None and label_of_request(request, OWNER) != self._owner:
            request = None
        if request is not None and not is_being_deleted(request):
            return self._api.delete_queued_resource(name)
        if node is not None and self._is_ours(node, request) and not is_being_deleted(node):
            return self._api.delete_node(name)
        return True

    def _is_there(self, name: str) -> bool:
        """Whether something of ours is there by that name. Raises ProviderError if it is somebody else's."""
        request, node = self._api.queued_resource(name), self._api.node(name)
        theirs = request is not None and label_of_request(request, OWNER) != self._owner
        if theirs or (node is not None and not self._is_ours(node, request)):
            raise ProviderError(Refusal.INVALID, f"a slice {name} of another owner exists")
        return request is not None or node is not None

    def _is_ours(self, node: Any, request: Any | None) -> bool:
        """`request` is a queued resource of that name, if there is one of ours."""
        by_label = bool(node.labels.get(OWNER) == self._owner)
        return by_label or (request is not None and short(node.queued_resource) == short(request.name))

    def _host_keys(self, name: str) -> Sequence[Mapping[str, str]]:
        """Nothing if they are not to be had: no list is to fail for that."""
        try:
            return self._api.host_keys(name)
        except ProviderError:
            return ()

    def _not_listed(self, found: Mapping[str, object]) -> Iterator[CloudSlice]:
        """Slices that were asked for and are not there: Google may still be at it, or have failed."""
        wanted = [
            each
            for each in self._known.values()
            if each.name not in found and each.state in (SliceState.REQUESTED, SliceState.CREATING)
        ]
        if not wanted:
            return
        try:
            operations = self._api.operations()
        except ProviderError:
            return  # they only explain
        for each in wanted:
            seen = never_made(each.name, operations)
            if seen is not None:
                yield replace(seen, group=each.group)
