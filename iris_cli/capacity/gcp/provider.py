"""The slices of one owner in one zone of Google Cloud."""

from collections.abc import Iterator, Mapping, Sequence

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
        _, (request, node) = self._find(name)
        if request is not None and not reading.is_being_deleted(request):
            return self._api.delete_queued_resource(name)
        if node is not None and not reading.is_being_deleted(node):
            return self._api.delete_node(name)
        return True

    def _exists(self, name: str) -> bool:
        """Return whether the owner has a slice with that name. Raises ProviderError if another owner has it."""
        found, ours = self._find(name)
        if found != ours:
            raise ProviderError(Refusal.INVALID, f"a slice {name} of another owner exists")
        return any(each is not None for each in ours)

    def _find(self, name: str) -> tuple[reading.Resources, reading.Resources]:
        """Return the resources with that name, and those of them that belong to the owner."""
        found = reading.Resources(self._api.queued_resource(name), self._api.node(name))
        requests, nodes = ([each] if each is not None else [] for each in found)
        by_name = reading.merge_resources(requests, nodes, self._owner)
        return found, by_name.get(name, reading.Resources(None, None))

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
