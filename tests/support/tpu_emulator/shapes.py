"""Convert records to JSON of the API. Enumerations are words; `numbered` converts them to numbers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.support.tpu_emulator.records import Node, Operation, QueuedResource

_TYPES = "type.googleapis.com/google.cloud.tpu.v2."
OPERATION = f"{_TYPES}OperationMetadata"
EMPTY = {"@type": "type.googleapis.com/google.protobuf.Empty"}
_TEXTS = frozenset({"labels", "metadata"})  # contains data of clients

# The numbers in Node.State and QueuedResourceState.State: equal names have equal numbers.
_STATES = {
    word: number
    for number, words in enumerate(
        (
            *("", "CREATING", "READY ACCEPTED", "RESTARTING PROVISIONING", "REIMAGING FAILED", "DELETING"),
            *("REPAIRING ACTIVE", "SUSPENDING", "STOPPED SUSPENDED", "STOPPING WAITING_FOR_RESOURCES"),
            *("STARTING", "PREEMPTED", "TERMINATED", "HIDING", "HIDDEN", "UNHIDING", "UNKNOWN"),
        )
    )
    for word in words.split()
}
_NUMBERS = {
    "state": _STATES,
    "health": {"HEALTHY": 1, "TIMEOUT": 3, "UNHEALTHY_TENSORFLOW": 4, "UNHEALTHY_MAINTENANCE": 5},
    "stateInitiator": {"USER": 1, "SERVICE": 2},
    "apiVersion": {"V2": 4},
}


def numbered(value: Any) -> Any:
    """Return the message with numbers instead of the words of enumerations."""
    if isinstance(value, dict):
        return {key: each if key in _TEXTS else _numbered(key, each) for key, each in value.items()}
    return [numbered(each) for each in value] if isinstance(value, list) else value


def _numbered(key: str, value: Any) -> Any:
    return _NUMBERS[key].get(value, value) if key in _NUMBERS and isinstance(value, str) else numbered(value)


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def node(each: Node) -> dict[str, Any]:
    """Return a node: its specification and its state."""
    said: dict[str, Any] = {
        **each.spec,
        "name": each.name,
        "id": str(each.uid),
        "state": each.state,
        "createTime": timestamp(each.made_at),
        "apiVersion": "V2",
    }
    if each.machines:
        said["networkEndpoints"] = [_endpoint(each, index) for index in range(len(each.machines))]
    if each.health:
        said["health"] = each.health
    if each.request:
        said["queuedResource"] = each.request
    return said


def _endpoint(each: Node, index: int) -> dict[str, Any]:
    """Return an endpoint. A host on this machine has its own port; the real service always reports 8470."""
    machine = each.machines[index]
    said: dict[str, Any] = {"ipAddress": machine.host, "port": machine.port}
    if each.spec.get("networkConfig", {}).get("enableExternalIps"):
        on_paper = machine.host.startswith("10.")
        outside = f"198.{machine.host[3:]}" if on_paper else machine.host
        said["accessConfig"] = {"externalIp": outside}
    return said


def request(each: QueuedResource) -> dict[str, Any]:
    """Return a queued resource."""
    state: dict[str, Any] = {"state": each.state}
    if each.initiator:
        state["stateInitiator"] = each.initiator
    if each.refusal is not None:
        state["failedData"] = {"error": each.refusal.rpc_status()}
    return {**each.spec, "name": each.name, "createTime": timestamp(each.made_at), "state": state}


def operation(each: Operation) -> dict[str, Any]:
    """Return a long-running operation."""
    metadata: dict[str, Any] = {
        "@type": OPERATION,
        "createTime": timestamp(each.made_at),
        "target": each.target,
        "verb": each.verb,
        "apiVersion": "v2",
    }
    said: dict[str, Any] = {"name": each.name, "metadata": metadata, "done": each.ended_at is not None}
    if each.ended_at is not None:
        metadata["endTime"] = timestamp(each.ended_at)
    if each.error is not None:
        said["error"] = each.error.rpc_status()
    elif each.response is not None:
        said["response"] = dict(each.response)
    return said


def typed(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return a message as the response of an operation. `kind` is `Node` or `QueuedResource`."""
    return {"@type": f"{_TYPES}{kind}", **value}
