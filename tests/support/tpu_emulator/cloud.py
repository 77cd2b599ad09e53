"""The emulated cloud: its nodes, their transitions, and its books. Its state changes only during calls."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from math import inf
from random import Random
from typing import Any, TypeVar

from iris_cli.clock import Clock, SystemClock
from tests.support.tpu_emulator import shapes
from tests.support.tpu_emulator.books import Books, Entry
from tests.support.tpu_emulator.machines import Machines
from tests.support.tpu_emulator.queued import move_request
from tests.support.tpu_emulator.records import Node, Operation, Place, QueuedResource, kind_of
from tests.support.tpu_emulator.refusals import ApiError, already_exists, no_capacity, not_found, over_quota
from tests.support.tpu_emulator.settings import Fault, Settings

T = TypeVar("T", Node, QueuedResource, Operation)
_NODE_ID = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_ENDED = ("PREEMPTED", "STOPPED", "TERMINATED")


class Cloud:
    """The state of the cloud. Hold `lock` during each call. Times are those of `clock` plus `offset`.

    `catch_up` executes the due transitions; call it before reading the tables.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        machines: Machines | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.machines = machines or Machines()
        self.lock = threading.RLock()
        self.offset = 0.0
        self.books = Books()
        self.faults: list[Fault] = []
        self.nodes: dict[str, Node] = {}
        self.requests: dict[str, QueuedResource] = {}
        self.operations: dict[str, Operation] = {}
        self._clock = clock or SystemClock()
        self._numbers = 0

    def now(self) -> float:
        return self._clock.now() + self.offset

    def number(self) -> int:
        """Return a unique number; a resource re-created with the same name gets a new one."""
        self._numbers += 1
        return self._numbers

    # Calls about nodes

    def create_node(self, place: Place, name: str, spec: Mapping[str, Any]) -> Operation:
        """Begin to make a node. Raises ApiError."""
        kind = kind_of(spec)
        self.admit(place, name, kind.chips)
        node = self.begin_node(place, name, spec)
        return self.operate("create", node)

    def delete_node(self, name: str) -> Operation:
        """Begin to delete a node. Raises ApiError."""
        node = self.node(name)
        if node.state == "DELETING":
            raise ApiError("ABORTED", f"unable to queue the operation: '{name}' is being deleted")
        self.remove_node(node)
        return self.operate("delete", node)

    def node(self, name: str) -> Node:
        return self.find(self.nodes, name)

    def find(self, table: Mapping[str, T], name: str) -> T:
        """Return a resource. Raises ApiError if it does not exist."""
        self.catch_up()
        if name not in table:
            raise not_found(name)
        return table[name]

    def in_place(self, table: Mapping[str, T], place: Place) -> list[T]:
        """Return the resources of a zone by name; `-` means all zones."""
        self.catch_up()
        return [
            table[name]
            for name in sorted(table)
            if table[name].place.project == place.project and place.zone in ("-", table[name].place.zone)
        ]

    # Parts of calls

    def admit(self, place: Place, name: str, chips: int) -> None:
        """Check a request: its name, an existing name, the quota. Raises ApiError."""
        if not _NODE_ID.fullmatch(name):
            raise ApiError("INVALID_ARGUMENT", f"Invalid node id '{name}'")
        self.catch_up()
        whole = f"{place}/nodes/{name}"
        if whole in self.nodes:
            raise already_exists(whole)
        self.charge(place, chips)

    def charge(self, place: Place, chips: int) -> None:
        """Raise ApiError if that many more chips exceed the quota."""
        limit = self.settings.quota.get(place.zone)
        if limit is not None and self.chips_in(place) + chips > limit:
            raise over_quota(limit, place.zone)

    def chips_in(self, place: Place) -> int:
        """Return the chips that count against the quota: of listed nodes, and of failed or suspended requests."""
        nodes = sum(each.kind.chips for each in self.nodes.values() if each.place == place)
        dead = [each for each in self.requests.values() if each.state in ("FAILED", "SUSPENDED")]
        left = [each.chips for each in dead if each.place == place and not self.nodes_of(each)]
        return nodes + sum(left)

    def nodes_of(self, request: QueuedResource) -> list[Node]:
        return [each for each in self.nodes.values() if each.request == request.name]

    def begin_node(self, place: Place, name: str, spec: Mapping[str, Any], request: str = "") -> Node:
        """Add a node, and start its machines."""
        now, settings = self.now(), self.settings
        node = Node(
            place=place,
            id=name,
            spec=spec,
            uid=self.number(),
            kind=kind_of(spec),
            made_at=now,
            missing=settings.missing_endpoints.get(place.zone, 0),
            ready_at=inf if place.zone in settings.stuck else now + settings.create_seconds,
            request=request,
        )
        if place.zone in settings.stocked_out:
            node.refusal, node.ready_at = no_capacity(place.zone), now + settings.create_seconds
        elif node.ready_at < inf:
            self.machines.begin(node)
        self.nodes[node.name] = node
        self.book("node", node, node.kind.chips, spec.get("labels", {}))
        return node

    def book(self, kind: str, made: Node | QueuedResource, chips: int, labels: Mapping[str, str]) -> None:
        """Record a new resource in the books."""
        self.books.entries[made.uid] = Entry(
            kind=kind,
            zone=made.place.zone,
            name=made.id,
            uid=made.uid,
            chips=chips,
            made_at=made.made_at,
            labels=dict(labels),
        )

    def remove_node(self, node: Node) -> None:
        """Begin to delete a node."""
        self.stop_node(node)
        node.state, node.gone_at = "DELETING", self.now() + self.settings.delete_seconds

    def operate(self, verb: str, target: Node | QueuedResource) -> Operation:
        """Add an operation on a resource."""
        operation = Operation(
            place=target.place,
            id=f"operation-{self.number()}",
            target=target.name,
            verb=verb,
            made_at=self.now(),
        )
        self.operations[operation.name] = operation
        target.operations.append(operation)
        self.catch_up()
        return operation

    # Transitions

    def preempt(self, name: str) -> None:
        """Preempt the node with this id. Raises ApiError."""
        self.turn(name, state="PREEMPTED")

    def turn(self, name: str, *, state: str | None = None, health: str | None = None) -> None:
        """Change the state or health of the node with this id. Raises ApiError."""
        with self.lock:
            self.catch_up()
            for node in [each for each in self.nodes.values() if each.id == name]:
                node.health = node.health if health is None else health
                if state is not None:
                    node.state, node.ready_at = state, inf
                if state in _ENDED:
                    self.stop_node(node)
                self.catch_up()
                return
            raise not_found(name)

    def catch_up(self) -> None:
        """Execute all due transitions."""
        now = self.now()
        for node in list(self.nodes.values()):
            self.move_node(node, now)
        for request in list(self.requests.values()):
            move_request(self, request, now)

    def move_node(self, node: Node, now: float) -> None:
        """Execute the due transitions of a node."""
        if node.state == "CREATING" and node.ready_at <= now:
            self._finish(node, now)
        if node.state == "READY" and node.preempted_at <= now:
            node.state = "PREEMPTED"
            self.stop_node(node)
        if node.gone_at <= now and self.nodes.get(node.name) is node:
            del self.nodes[node.name]
            self.books.entries[node.uid].gone_at = now
            for each in node.operations:
                gone = node.refusal or ApiError("CANCELLED", f"'{node.name}' was deleted")
                each.end(now, gone if each.verb == "create" else shapes.EMPTY)

    def _finish(self, node: Node, now: float) -> None:
        """End the creation of a node: it is ready, or has failed."""
        if node.refusal is not None:
            node.gone_at = now
            return
        machines = self.machines.look(node)
        if machines is None:
            return  # they boot
        node.machines, node.state, node.health = machines, "READY", self.settings.health
        self.books.entries[node.uid].ready_at = now
        if node.spot and self.settings.lifetime > 0:
            fate = Random(f"{self.settings.seed} {node.uid}")
            node.preempted_at = now + fate.expovariate(1 / self.settings.lifetime)
        for each in node.operations:
            if each.verb == "create":
                each.end(now, shapes.typed("Node", shapes.node(node)))

    def stop_node(self, node: Node) -> None:
        """Stop its machines. It costs nothing from now on."""
        self.machines.end(node)
        entry = self.books.entries[node.uid]
        entry.stopped_at = self.now() if entry.stopped_at is None else entry.stopped_at

    def close(self) -> None:
        """Stop all machines."""
        with self.lock:
            for node in self.nodes.values():
                self.stop_node(node)
