"""Route requests by method and path: the calls of the TPU v2 REST API, and those of the emulator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec import to_builtins

from iris_cli.core.topology import known_types
from tests.support.tpu_emulator import queued, shapes
from tests.support.tpu_emulator.cloud import Cloud
from tests.support.tpu_emulator.records import Node, Place
from tests.support.tpu_emulator.refusals import ApiError
from tests.support.tpu_emulator.settings import Fault


class Call(NamedTuple):
    """A request: the parts of its path by name, its query, and its body."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def place(self) -> Place:
        return Place(self.path["project"], self.path["zone"])

    def named(self, collection: str) -> str:
        return f"{self.place}/{collection}/{self.path['name']}"


Answer = dict[str, Any]
Handler = Callable[[Cloud, Call], Answer]


def answer(cloud: Cloud, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
    """Execute a call; return its answer as JSON. Raises ApiError."""
    for known, pattern, handler in _ROUTES:
        found = pattern.fullmatch(path) if known == method else None
        if found is not None:
            with cloud.lock:
                return handler(cloud, Call(found.groupdict(), query, body))
    raise ApiError("UNIMPLEMENTED", f"{method} {path} is not emulated")


# Nodes


def _create_node(cloud: Cloud, call: Call) -> Answer:
    return shapes.operation(cloud.create_node(call.place, call.query.get("nodeId", ""), call.body))


def _get_node(cloud: Cloud, call: Call) -> Answer:
    return shapes.node(cloud.node(call.named("nodes")))


def _list_nodes(cloud: Cloud, call: Call) -> Answer:
    nodes = cloud.in_place(cloud.nodes, call.place)
    return _page(cloud, call, "nodes", nodes, shapes.node)


def _delete_node(cloud: Cloud, call: Call) -> Answer:
    return shapes.operation(cloud.delete_node(call.named("nodes")))


def _guest_attributes(cloud: Cloud, call: Call) -> Answer:
    """Return the host keys of the requested VMs in the order of workers."""
    node = cloud.node(call.named("nodes"))
    asked = call.body.get("queryPath", "")
    workers = call.body.get("workerIds") or [str(index) for index in range(len(node.machines))]
    said = [_host_keys(node, int(worker)) for worker in workers]
    if not asked.startswith("hostkeys"):
        said = [[] for _ in said]
    return {"guestAttributes": [{"queryPath": asked, "queryValue": {"items": items}} for items in said]}


def _host_keys(node: Node, worker: int) -> list[dict[str, str]]:
    if worker >= len(node.machines):
        raise ApiError("INVALID_ARGUMENT", f"'{node.name}' has no worker {worker}")
    kind, _, value = node.machines[worker].key.partition(" ")
    return [{"namespace": "hostkeys", "key": kind, "value": value}]


# Queued resources


def _create_request(cloud: Cloud, call: Call) -> Answer:
    name = call.query.get("queuedResourceId", "")
    return shapes.operation(queued.create_request(cloud, call.place, name, call.body))


def _get_request(cloud: Cloud, call: Call) -> Answer:
    return shapes.request(cloud.find(cloud.requests, call.named("queuedResources")))


def _list_requests(cloud: Cloud, call: Call) -> Answer:
    requests = cloud.in_place(cloud.requests, call.place)
    return _page(cloud, call, "queuedResources", requests, shapes.request)


def _delete_request(cloud: Cloud, call: Call) -> Answer:
    force = call.query.get("force", "").lower() == "true"
    return shapes.operation(queued.delete_request(cloud, call.named("queuedResources"), force=force))


# Operations, places, types


def _get_operation(cloud: Cloud, call: Call) -> Answer:
    return shapes.operation(cloud.find(cloud.operations, call.named("operations")))


def _list_operations(cloud: Cloud, call: Call) -> Answer:
    operations = cloud.in_place(cloud.operations, call.place)
    return _page(cloud, call, "operations", operations, shapes.operation)


def _list_types(_: Cloud, call: Call) -> Answer:
    place = f"{call.place}/acceleratorTypes"
    return {"acceleratorTypes": [{"name": f"{place}/{each}", "type": each} for each in known_types()]}


def _page(
    cloud: Cloud,
    call: Call,
    field: str,
    found: list[Any],
    shape: Callable[[Any], Answer],
) -> Answer:
    """Return a page of a list from the name after the token on; concurrent changes do not shift it."""
    size = min(int(call.query.get("pageSize", 0)) or cloud.settings.page_size, cloud.settings.page_size)
    after = call.query.get("pageToken", "")
    unreachable = cloud.settings.unreachable
    rest = [each for each in found if each.name > after and each.place.zone not in unreachable]
    said: Answer = {field: [shape(each) for each in rest[:size]]}
    if len(rest) > size:
        said["nextPageToken"] = rest[size - 1].name
    if unreachable and field != "operations":
        said["unreachable"] = [str(call.place._replace(zone=zone)) for zone in unreachable]
    return said


# The emulator itself


def _settings(cloud: Cloud, call: Call) -> Answer:
    try:
        cloud.settings.change(call.body)
    except ValueError as error:
        raise ApiError("INVALID_ARGUMENT", str(error)) from None
    settings: Answer = to_builtins(cloud.settings)
    return settings


def _books(cloud: Cloud, _: Call) -> Answer:
    cloud.catch_up()
    books = cloud.books
    return {"entries": to_builtins([*books.entries.values()]), "calls": to_builtins(books.calls)}


def _turn(cloud: Cloud, call: Call) -> Answer:
    cloud.turn(call.path["name"], state=call.body.get("state"), health=call.body.get("health"))
    return {}


def _preempt(cloud: Cloud, call: Call) -> Answer:
    cloud.preempt(call.path["name"])
    return {}


def _add_fault(cloud: Cloud, call: Call) -> Answer:
    try:
        cloud.faults.append(Fault(**call.body))
    except TypeError as error:
        raise ApiError("INVALID_ARGUMENT", str(error)) from None
    return {}


def _advance(cloud: Cloud, call: Call) -> Answer:
    cloud.offset += float(call.body.get("seconds", 0.0))
    cloud.catch_up()
    return {"now": cloud.now()}


_PLACE = r"/v2/projects/(?P<project>[^/]+)/locations/(?P<zone>[^/]+)"
_NAME = r"(?P<name>[^/:]+)"
_ROUTES: list[tuple[str, re.Pattern[str], Handler]] = [
    (method, re.compile(path), handler)
    for method, path, handler in (
        ("POST", rf"{_PLACE}/nodes", _create_node),
        ("GET", rf"{_PLACE}/nodes", _list_nodes),
        ("GET", rf"{_PLACE}/nodes/{_NAME}", _get_node),
        ("DELETE", rf"{_PLACE}/nodes/{_NAME}", _delete_node),
        ("POST", rf"{_PLACE}/nodes/{_NAME}:getGuestAttributes", _guest_attributes),
        ("POST", rf"{_PLACE}/queuedResources", _create_request),
        ("GET", rf"{_PLACE}/queuedResources", _list_requests),
        ("GET", rf"{_PLACE}/queuedResources/{_NAME}", _get_request),
        ("DELETE", rf"{_PLACE}/queuedResources/{_NAME}", _delete_request),
        ("GET", rf"{_PLACE}/operations/{_NAME}", _get_operation),
        ("GET", rf"{_PLACE}/operations", _list_operations),
        ("GET", rf"{_PLACE}/acceleratorTypes", _list_types),
        ("GET", r"/emulator/books", _books),
        ("GET", r"/emulator/settings", _settings),
        ("PATCH", r"/emulator/settings", _settings),
        ("POST", r"/emulator/faults", _add_fault),
        ("POST", r"/emulator/advance", _advance),
        ("POST", rf"/emulator/nodes/{_NAME}:preempt", _preempt),
        ("POST", rf"/emulator/nodes/{_NAME}:turn", _turn),
    )
]
