"""The emulated cloud: its nodes, how they come and go, and its books. Nothing happens but when somebody looks."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from math import inf
from random import Random
from typing import Any, TypeVar

from iris_cli.clock import Clock, SystemClock
from tests.support.tpu_emulator import shapes
from tests.support.tpu_emulator.books import Entry, NoticeState
from tests.support.tpu_emulator.machines import Machines, PaperMachines
from tests.support.tpu_emulator.queued import move_request
from tests.support.tpu_emulator.records import Node, Operation, Place, QueuedResource, kind_of
from tests.support.tpu_emulator.refusals import ApiError, already_exists, no_capacity, not_found, over_quota
from tests.support.tpu_emulator.settings import Fault, Settings

T = TypeVar("T", Node, QueuedResource, Operation)
_NODE_ID = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_ENDED = ("PREEMPTED", "STOPPED", "TERMINATED")


class Cloud:
    """All that there is, under one lock: take `lock` around each call. Times are those of `clock`, plus `offset`.

    `catch_up` lets happen what is due by now; whatever looks at the tables calls it first.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        machines: Machines | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.machines = machines or PaperMachines()
        self.lock = threading.RLock()
        self.offset = 0.0
        self.books = NoticeState()
        self.faults: list[Fault] = []
        self.nodes: dict[str, Node] = {}
        self.requests: dict[str, QueuedResource] = {}
        self.operations: dict[str, Operation] = {}
        self._clock = clock or SystemClock()
        self._numbers = 0

    def now(self) -> float:
        return self._clock.now() + self.offset

    def number(self) -> int:
        """One that nothing else has: what is made again by the same name has another."""
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
        """Raises ApiError if there is none."""
        self.catch_up()
        if name not in self.nodes:
            raise not_found(name)
        return self.nodes[name]

    def in_place(self, table: Mapping[str, T], place: Place) -> list[T]:
        """What is there by name; the zone `-` is all of them."""
        self.catch_up()
        return [
            table[name]
            for name in sorted(table)
            if table[name].place.project == place.project and place.zone in ("-", table[name].place.zone)
        ]

    def operation(self, name: str) -> Operation:
        """Raises ApiError if there is none."""
        self.catch_up()
        if name not in self.operations:
            raise not_found(name)
        return self.operations[name]

    # What calls are made of

    def admit(self, place: Place, name: str, chips: int) -> None:
        """Refuse what can't be: a bad name, one that is there, too many chips. Raises ApiError."""
        if not _NODE_ID.fullmatch(name):
            raise ApiError("INVALID_ARGUMENT", f"Invalid node id '{name}'")
        self.catch_up()
        whole = f"{place}/nodes/{name}"
        if whole in self.nodes:
            raise already_exists(whole)
        self.charge(place, chips)

    def charge(self, place: Place, chips: int) -> None:
        """Raises ApiError where that many more chips are too many."""
        limit = self.settings.quota.get(place.zone)
        if limit is not None and self.chips_in(place) + chips > limit:
            raise over_quota(limit, place.zone)

    def chips_in(self, place: Place) -> int:
        """All that eat quota: each node that is listed, and each request that failed or was suspended."""
        nodes = sum(each.kind.chips for each in self.nodes.values() if each.place == place)
        dead = [each for each in self.requests.values() if each.state in ("FAILED", "SUSPENDED")]
        left = [each.chips for each in dead if each.place == place and not self.nodes_of(each)]
        return nodes + sum(left)

    def nodes_of(self, request: QueuedResource) -> list[Node]:
        return [each for each in self.nodes.values() if each.request == request.name]

    def begin_node(self, place: Place, name: str, spec: Mapping[str, Any], request: str = "") -> Node:
        """Put a new node on the list, and turn its machines on."""
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
        """Write down that something is there."""
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
        """Begin to delete it."""
        self.stop_node(node)
        node.state, node.gone_at = "DELETING", self.now() + self.settings.delete_seconds

    def operate(self, verb: str, target: Node | QueuedResource) -> Operation:
        """A new operation on that, which ends with it."""
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

    # What happens

    def preempt(self, name: str) -> None:
        """Take its machines from a node, whose id that is. Raises ApiError."""
        self.turn(name, state="PREEMPTED")

    def turn(self, name: str, *, state: str | None = None, health: str | None = None) -> None:
        """Put a node, whose id that is, into another state, or give it another health. Raises ApiError."""
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
        """Let everything happen that is due by now."""
        now = self.now()
        for node in list(self.nodes.values()):
            self.move_node(node, now)
        for request in list(self.requests.values()):
            move_request(self, request, now)

    def move_node(self, node: Node, now: float) -> None:
        """Let happen to a node what is due."""
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
        """It is made: ready, or gone again without having been."""
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
        """Its machines are off. It costs nothing from now on."""
        self.machines.end(node)
        entry = self.books.entries[node.uid]
        entry.stopped_at = self.now() if entry.stopped_at is None else entry.stopped_at

    def close(self) -> None:
        """Turn everything off."""
        with self.lock:
            for node in self.nodes.values():
                self.stop_node(node)
