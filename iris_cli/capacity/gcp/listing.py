"""All slices of a project as JSON of the TPU API."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict

from iris_cli.capacity.gcp.api import Api, RetryPolicy, default_project
from iris_cli.capacity.gcp.creation import OWNER
from iris_cli.capacity.gcp.reading import label_of_request, short
from iris_cli.capacity.provider import ProviderError
from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.core.messages.cloud import Refusal

ALL_ZONES = "-"


def nodes_as_json(
    project: str, zone: str, policy: RetryPolicy | None = None, clock: Clock = SYSTEM_CLOCK
) -> dict[str, list[Any]]:
    """Return `nodes`, `queuedResources`, and `unreachable` (zones).

    Queued resources with a node, and those that iris created, are omitted. An empty `project` means the default
    project, an empty `zone` means all zones. Raises ProviderError.
    """
    project = project or default_project()
    if not project:
        raise ProviderError(Refusal.INVALID, "no Google Cloud project is set")
    api = Api(project, zone or ALL_ZONES, policy, clock, partial=not zone)
    requests = api.queued_resources()
    nodes = api.nodes()
    with_node = {_in_project(node.queued_resource) for node in nodes}
    without_node = [
        each
        for each in requests
        if _in_project(each.name) not in with_node and not label_of_request(each, OWNER)
    ]
    return {
        "nodes": [MessageToDict(each) for each in nodes],
        "queuedResources": [MessageToDict(each) for each in without_node],
        "unreachable": [short(each) for each in api.unreachable],
    }


def _in_project(name: str) -> str:
    """Return a resource name without the project, which may be its id or its number."""
    return name.partition("/locations/")[2]
