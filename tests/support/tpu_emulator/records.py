"""Records of the emulated cloud: nodes, queued resources, operations."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from msgspec import Struct, field

from iris_cli.core.topology import Topology, canonical_type, lookup, type_from_user
from iris_cli.errors import UsageError
from tests.support.tpu_emulator.refusals import ApiError

_FAMILIES = {2: "V2", 3: "V3", 7: "V4", 9: "V5LITEPOD", 10: "V5P", 11: "V6E"}


class Place(NamedTuple):
    """A project and a zone."""

    project: str
    zone: str

    def __str__(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}"


class Machine(NamedTuple):
    """The address of a VM; `key` is its host key, `ssh-ed25519 AAAA...`."""

    host: str
    port: int
    key: str


class Operation(Struct, kw_only=True):
    """A long-running operation on `target`. When it is `done` it has a response or an error."""

    place: Place
    id: str
    target: str
    verb: str
    made_at: float
    ended_at: float | None = None
    response: Mapping[str, Any] | None = None
    error: ApiError | None = None

    @property
    def name(self) -> str:
        return f"{self.place}/operations/{self.id}"

    def end(self, at: float, response: Mapping[str, Any] | ApiError) -> None:
        if self.ended_at is None:
            self.ended_at = at
            if isinstance(response, ApiError):
                self.error = response
            else:
                self.response = response


class Node(Struct, kw_only=True):
    """A slice. `spec` is the requested node; times are those of the next transitions, `inf` for never."""

    place: Place
    id: str
    spec: Mapping[str, Any]
    uid: int
    kind: Topology
    made_at: float
    state: str = "CREATING"
    health: str = ""
    machines: tuple[Machine, ...] = ()
    missing: int = 0
    refusal: ApiError | None = None  # why it will never be created
    ready_at: float = inf
    preempted_at: float = inf
    gone_at: float = inf
    request: str = ""  # its queued resource
    operations: list[Operation] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.place}/nodes/{self.id}"

    @property
    def spot(self) -> bool:
        config = self.spec.get("schedulingConfig", {})
        return bool(config.get("spot") or config.get("preemptible"))

    @property
    def vms(self) -> int:
        """Return the number of its VMs, also before they exist."""
        return max(0, self.kind.vms - self.missing)


class QueuedResource(Struct, kw_only=True):
    """A request that waits for its nodes. `due_at`: time of its next transition."""

    place: Place
    id: str
    spec: Mapping[str, Any]
    uid: int
    chips: int
    made_at: float
    state: str = "CREATING"
    initiator: str = ""
    refusal: ApiError | None = None
    due_at: float = 0.0
    valid_until: float = inf
    operations: list[Operation] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.place}/queuedResources/{self.id}"

    @property
    def nodes(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the id and specification of each of its nodes."""
        found: list[tuple[str, Mapping[str, Any]]] = []
        for spec in self.spec["tpu"]["nodeSpec"]:
            several = spec.get("multisliceParams")
            if several is None:
                found.append((spec["nodeId"], spec["node"]))
            else:
                prefix = several.get("nodeIdPrefix") or self.id
                found += [(f"{prefix}-{index}", spec["node"]) for index in range(several["nodeCount"])]
        return [(name, self._of_my_tier(node)) for name, node in found]

    def _of_my_tier(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Copy the request's tier (spot or not) to the node."""
        if "spot" not in self.spec:
            return node
        return {**node, "schedulingConfig": {**node.get("schedulingConfig", {}), "spot": True}}


def kind_of(spec: Mapping[str, Any]) -> Topology:
    """Return the requested slice type of a node. Raises ApiError."""
    if not spec.get("runtimeVersion"):
        raise ApiError("INVALID_ARGUMENT", "runtime_version must be specified")
    config = spec.get("acceleratorConfig")
    try:
        asked = (
            type_from_user(_family(config["type"]), config["topology"]) if config else spec["acceleratorType"]
        )
        known = lookup(canonical_type(asked))
    except (KeyError, UsageError):
        known = None
    if known is None:
        asked = config or spec.get("acceleratorType", "")
        raise ApiError("INVALID_ARGUMENT", f"Accelerator type {asked!r} does not exist")
    return known


def _family(kind: str | int) -> str:
    """Return the family of an AcceleratorConfig.Type, given as a word or number."""
    word = _FAMILIES.get(kind, "") if isinstance(kind, int) else kind
    return word.replace("_", "").lower()
