"""Queued resources: requests that wait for their nodes, and their transitions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any

from tests.support.tpu_emulator import shapes
from tests.support.tpu_emulator.records import Operation, Place, QueuedResource, kind_of
from tests.support.tpu_emulator.refusals import ApiError, already_exists

if TYPE_CHECKING:
    from tests.support.tpu_emulator.cloud import Cloud

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.~+%-]+")
_IDLE = ("ACCEPTED", "WAITING_FOR_RESOURCES", "FAILED", "SUSPENDED")  # can be deleted without `force`


def create_request(cloud: Cloud, place: Place, name: str, spec: Mapping[str, Any]) -> Operation:
    """Accept a request. Its operation is done at once. Raises ApiError."""
    if not _REQUEST_ID.fullmatch(name):
        raise ApiError("INVALID_ARGUMENT", f"Invalid queued resource id '{name}'")
    cloud.catch_up()
    request = QueuedResource(
        place=place, id=name, spec=spec, uid=cloud.number(), chips=0, made_at=cloud.now()
    )
    if request.name in cloud.requests:
        raise already_exists(request.name)
    if not spec.get("tpu", {}).get("nodeSpec"):
        raise ApiError("INVALID_ARGUMENT", "tpu.node_spec must be specified")
    request.chips = sum(kind_of(node).chips for _, node in request.nodes)
    for node, _ in request.nodes:
        if f"{place}/nodes/{node}" in cloud.nodes:
            raise already_exists(f"{place}/nodes/{node}")
    request.valid_until = _valid_until(request)
    cloud.requests[request.name] = request
    cloud.book("queuedResource", request, request.chips, {})
    return cloud.operate("create", request)


def delete_request(cloud: Cloud, name: str, *, force: bool) -> Operation:
    """Begin to delete a request, after its nodes; if it has nodes, only with `force`. Raises ApiError."""
    request = cloud.find(cloud.requests, name)
    if request.state == "DELETING":
        raise ApiError("ABORTED", f"unable to queue the operation: '{name}' is being deleted")
    if not force and (request.state not in _IDLE or cloud.nodes_of(request)):
        raise ApiError(
            "FAILED_PRECONDITION",
            f"Queued resource '{name}' is {request.state}: delete its nodes, or use force",
        )
    for node in cloud.nodes_of(request):
        if node.state != "DELETING":
            cloud.remove_node(node)
    request.state, request.due_at = "DELETING", cloud.now() + cloud.settings.delete_seconds
    return cloud.operate("delete", request)


def move_request(cloud: Cloud, request: QueuedResource, now: float) -> None:
    """Execute all due transitions of a request."""
    before = ""
    while before != request.state:
        before = request.state
        _STEPS.get(request.state, _rest)(cloud, request, now)


def _created(_: Cloud, request: QueuedResource, now: float) -> None:
    request.state = "ACCEPTED"
    for each in request.operations:
        each.end(now, shapes.typed("QueuedResource", shapes.request(request)))


def _accepted(cloud: Cloud, request: QueuedResource, _: float) -> None:
    request.state, request.due_at = "WAITING_FOR_RESOURCES", request.made_at + cloud.settings.queue_seconds


def _waiting(cloud: Cloud, request: QueuedResource, now: float) -> None:
    if now >= request.valid_until:
        _fail(request, ApiError("RESOURCE_EXHAUSTED", "The valid until time has passed"))
    elif now >= request.due_at and request.place.zone not in cloud.settings.stocked_out:
        request.state = "PROVISIONING"
        try:
            cloud.charge(request.place, request.chips)
            for node, spec in request.nodes:
                cloud.begin_node(request.place, node, spec, request.name)
        except ApiError as error:
            _fail(request, error)


def _provisioning(cloud: Cloud, request: QueuedResource, now: float) -> None:
    for node in cloud.nodes_of(request):
        cloud.move_node(node, now)
    if all(node.state == "READY" for node in cloud.nodes_of(request)):
        request.state = "ACTIVE"
    _watch(cloud, request, now)


def _watch(cloud: Cloud, request: QueuedResource, now: float) -> None:
    """Suspend the request for ever as soon as one of its nodes has ended."""
    nodes = cloud.nodes_of(request)
    by_service = [node for node in nodes if node.state in ("PREEMPTED", "TERMINATED")]
    if by_service or len(nodes) < len(request.nodes):
        request.state, request.initiator = "SUSPENDING", "SERVICE" if by_service else "USER"
        request.due_at = now + cloud.settings.delete_seconds


def _suspending(cloud: Cloud, request: QueuedResource, now: float) -> None:
    if now < request.due_at:
        return
    for node in cloud.nodes_of(request):
        cloud.stop_node(node)
        if not cloud.settings.keep_preempted:
            node.state, node.gone_at = "DELETING", now
            cloud.move_node(node, now)
    request.state = "SUSPENDED"


def _deleting(cloud: Cloud, request: QueuedResource, now: float) -> None:
    if now >= request.due_at and not cloud.nodes_of(request) and request.name in cloud.requests:
        del cloud.requests[request.name]
        cloud.books.entries[request.uid].gone_at = now
        for each in request.operations:
            each.end(now, shapes.EMPTY)


def _rest(*_: object) -> None:
    """Schedule no more transitions."""


def _fail(request: QueuedResource, error: ApiError) -> None:
    request.state, request.refusal = "FAILED", error


def _valid_until(request: QueuedResource) -> float:
    policy = request.spec.get("queueingPolicy", {})
    if "validUntilDuration" in policy:
        return request.made_at + float(policy["validUntilDuration"].removesuffix("s"))
    if "validUntilTime" in policy:
        return datetime.fromisoformat(policy["validUntilTime"]).timestamp()
    return inf


_STEPS = {
    "CREATING": _created,
    "ACCEPTED": _accepted,
    "WAITING_FOR_RESOURCES": _waiting,
    "PROVISIONING": _provisioning,
    "ACTIVE": _watch,
    "SUSPENDING": _suspending,
    "DELETING": _deleting,
}
