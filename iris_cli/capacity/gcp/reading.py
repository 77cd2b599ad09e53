"""Convert nodes and queued resources of Google Cloud to slices.

The states are those of google.cloud.tpu.v2.Node.State and google.cloud.tpu.v2.QueuedResourceState.State.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError
from google.cloud import tpu_v2
from msgspec.structs import replace

from iris_cli.capacity.gcp.creation import GROUP, OWNER
from iris_cli.capacity.provider import ProviderError
from iris_cli.core import Slice, SliceHost, count
from iris_cli.core.messages.cloud import CloudSlice, CloudState, Refusal
from iris_cli.core.topology import canonical_type, lookup, type_from_api
from iris_cli.errors import UsageError

# STOPPED proves that nothing runs on the slice any more. A state such as STOPPING or HIDDEN (under repair) doesn't
# prove that. Such slices count as FAILED, so that iris deletes them.
_NODE = {
    "CREATING": CloudState.CREATING,
    "READY": CloudState.READY,
    "RESTARTING": CloudState.CREATING,
    "REIMAGING": CloudState.CREATING,
    "REPAIRING": CloudState.CREATING,
    "STARTING": CloudState.CREATING,
    "DELETING": CloudState.DELETING,
    "STOPPED": CloudState.STOPPED,
    "PREEMPTED": CloudState.STOPPED,
    "TERMINATED": CloudState.STOPPED,
    "STOPPING": CloudState.FAILED,
    "HIDING": CloudState.FAILED,
    "HIDDEN": CloudState.FAILED,
    "UNHIDING": CloudState.FAILED,
    "UNKNOWN": CloudState.FAILED,
}
# A SUSPENDED queued resource never resumes: its nodes are deleted. For an ACTIVE one the state of its node counts.
_REQUEST = {
    "CREATING": CloudState.CREATING,
    "ACCEPTED": CloudState.CREATING,
    "WAITING_FOR_RESOURCES": CloudState.CREATING,
    "PROVISIONING": CloudState.CREATING,
    "ACTIVE": CloudState.READY,
    "FAILED": CloudState.FAILED,
    "SUSPENDING": CloudState.FAILED,
    "SUSPENDED": CloudState.STOPPED,
    "DELETING": CloudState.DELETING,
}
_DELETING = 5  # number of this state, for nodes and queued resources
_NO_CAPACITY = (Refusal.QUOTA, Refusal.STOCKOUT)
_PREFERRED_KEYS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")
SETTLE_TIME = 300.0
"""Seconds after its creation in which a node may lack VMs, addresses and host keys."""


Keys: TypeAlias = Callable[[str], Sequence[Mapping[str, str]]]


class Resources(NamedTuple):
    """The resources of one slice: a queued resource (`request`), a node, or both. Both have the slice's name."""

    request: Any | None
    node: Any | None


def merge_resources(requests: Sequence[Any], nodes: Sequence[Any], owner: str) -> dict[str, Resources]:
    """Return an owner's resources by short name: those with its label, and the nodes of its queued resources."""
    ours = {
        short_name(each.name): Resources(each, None)
        for each in requests
        if request_label(each, OWNER) == owner
    }
    for node in nodes:
        name = short_name(node.name)
        if node.labels.get(OWNER) == owner or (name in ours and short_name(node.queued_resource) == name):
            ours[name] = Resources(ours[name].request if name in ours else None, node)
    return {name: ours[name] for name in sorted(ours)}


def short_name(name: str) -> str:
    """Return the last part of a resource name."""
    return name.rpartition("/")[2]


def request_label(request: Any, key: str) -> str:
    """Return a label of a queued resource, "" if absent. Queued resources have only the labels of their nodes."""
    return next((each.node.labels[key] for each in request.tpu.node_spec if key in each.node.labels), "")


def is_being_deleted(what: Any) -> bool:
    """Return True if a node or queued resource is being deleted."""
    state = what.state if isinstance(what.state, int) else what.state.state
    return bool(state == _DELETING)


def cloud_slice(name: str, found: Resources, now: float, known: Slice | None, keys: Keys) -> CloudSlice:
    """Return a slice at the time `now`. `known` is the slice in the log. `keys` fetches the host keys of a node."""
    request, node = found
    queued = _slice_from_request(name, request) if request is not None else None
    if node is None:
        assert queued is not None
        is_lost = queued.state is CloudState.READY
        return replace(queued, state=CloudState.FAILED, detail="its node is gone") if is_lost else queued
    actual = _slice_from_node(name, node, now, known, keys)
    if queued is None or actual.state is CloudState.STOPPED:
        return actual
    if queued.state not in (CloudState.CREATING, CloudState.READY):
        # While the node exists, the state of its queued resource doesn't prove that nothing runs on the slice.
        state = CloudState.DELETING if queued.state is CloudState.DELETING else CloudState.FAILED
        return replace(actual, state=state, detail=queued.detail, quota=queued.quota, group=queued.group)
    return replace(actual, group=queued.group)


def failed_creation(name: str, operations: Iterable[Mapping[str, Any]]) -> CloudSlice | None:
    """Return a slice that Google does not list: CREATING or FAILED, according to the last operation that creates it.

    Return None if there is no such operation, or if it has succeeded. `operations` are google.longrunning operations as
    JSON, with google.cloud.tpu.v2.OperationMetadata.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for each in operations:
        metadata = each.get("metadata", {})
        if short_name(metadata.get("target", "")) == name and metadata.get("verb") == "create":
            # "12:00:01" must sort before "12:00:01.5"
            found[metadata.get("createTime", "").rstrip("Z")] = each
    if not found:
        return None
    last = found[max(found)]
    if not last.get("done"):
        return CloudSlice(name=name, state=CloudState.CREATING)
    if "error" not in last:
        return None
    refusal, words = parse_status(last["error"].get("code", 0), last["error"].get("message", ""))
    return CloudSlice(name=name, state=CloudState.FAILED, detail=words, quota=refusal in _NO_CAPACITY)


# Queued resources


def _slice_from_request(name: str, request: Any) -> CloudSlice:
    """Convert a queued resource without its node."""
    word, state, detail = _state(tpu_v2.QueuedResourceState.State, request.state.state, _REQUEST)
    quota = False
    if word == "FAILED" and request.state.HasField("failed_data"):
        why = request.state.failed_data.error
        refusal, detail = parse_status(why.code, why.message)
        quota = refusal in _NO_CAPACITY
    return CloudSlice(name=name, state=state, group=request_label(request, GROUP), detail=detail, quota=quota)


# Nodes


def _slice_from_node(name: str, node: Any, now: float, known: Slice | None, keys: Keys) -> CloudSlice:
    word, state, detail = _state(tpu_v2.Node.State, node.state, _NODE)
    hosts: tuple[SliceHost, ...] = ()
    incarnation = f"{node.id} {node.create_time.ToJsonString()}"
    if word == "READY":
        settling = abs(now - node.create_time.seconds) < SETTLE_TIME  # abs: our clock may be behind
        hosts, detail = _hosts(node)
        started = known is not None and known.incarnation == incarnation
        if detail:  # a slice that was complete may recover: probes decide
            hosts, state = (), CloudState.CREATING if settling or started else CloudState.FAILED
        elif known is not None and started and _addresses(known.hosts) == _addresses(hosts):
            hosts = known.hosts
        else:
            each_keys = keys(name)
            if len(each_keys) == len(hosts):
                pairs = zip(hosts, each_keys, strict=True)
                hosts = tuple(replace(host, key=_preferred_key(own)) for host, own in pairs)
            if settling and not all(host.key for host in hosts):
                hosts, state, detail = (), CloudState.CREATING, "its VMs have not reported host keys yet"
    elif node.health_description:
        detail = f"{detail or word}: {one_line(node.health_description)}"
    return CloudSlice(
        name=name,
        state=state,
        group=node.labels.get(GROUP, ""),
        hosts=hosts,
        incarnation=incarnation,
        detail=detail,
    )


def _hosts(node: Any) -> tuple[tuple[SliceHost, ...], str]:
    """Return the VMs by worker number, or no VMs and a message. An emulator's loopback addresses have ports."""
    is_external = any(each.enable_external_ips for each in (node.network_config, *node.network_configs))
    hosts = []
    for each in node.network_endpoints:
        address = each.access_config.external_ip if is_external else each.ip_address
        if address:
            hosts.append(SliceHost(host=address, port=each.port if address.startswith("127.") else 0))
    wanted = max(len(node.network_endpoints), _vms(node), 1)
    if len(hosts) < wanted:
        return (), f"{len(hosts)} of {count(wanted, 'VM')} have an address"
    return tuple(hosts), ""


def _vms(node: Any) -> int:
    """Return the number of VMs in a slice of the node's type, 0 if unknown."""
    arranged = node.accelerator_config
    try:
        if arranged.topology:
            kind = type_from_api(tpu_v2.AcceleratorConfig.Type(arranged.type_).name, arranged.topology)
        else:
            kind = canonical_type(short_name(node.accelerator_type))
    except (UsageError, ValueError):
        return 0
    known = lookup(kind)
    return known.vms if known is not None else 0


def _addresses(hosts: Sequence[SliceHost]) -> list[tuple[str, int]]:
    return [(host.host, host.port) for host in hosts]


def _preferred_key(keys: Mapping[str, str]) -> str:
    """Return the preferred host key in the format of known_hosts; "" if there is no valid one."""
    for kind in _PREFERRED_KEYS:
        value = keys.get(kind, "").strip()
        try:
            blob = base64.b64decode(value, validate=True)
        except (ValueError, binascii.Error):
            continue
        if blob[4 : 4 + len(kind)] == kind.encode():
            return f"{kind} {value}"
    return ""


def _state(
    kind: Callable[[int], Any], number: int, meanings: Mapping[str, CloudState]
) -> tuple[str, CloudState, str]:
    """Return Google's state name, our state, and a message. An unknown state counts as CREATING."""
    try:
        word = str(kind(number).name)
        state = meanings[word]
    except (ValueError, KeyError):
        return "", CloudState.CREATING, f"its state {number} is unknown to iris"
    return word, state, "" if state in (CloudState.CREATING, CloudState.READY) else word


# Errors of Google. Codes are those of google.rpc.Code: https://cloud.google.com/apis/design/errors.


_EXHAUSTED, _UNAVAILABLE = 8, 14
_REFUSALS = {
    _EXHAUSTED: Refusal.QUOTA,
    **dict.fromkeys((7, 16), Refusal.DENIED),
    **dict.fromkeys((3, 5, 9, 11), Refusal.INVALID),
}
_LOG_IN = "gcloud auth application-default login"
_NAMED_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_PROJECT_OF_GCLOUD = "764086051850"  # project of all gcloud users, without any API enabled
_NO_MACHINES = re.compile(
    r"no more capacity|not enough (?:available )?(?:capacity|resources)|insufficient capacity|stock.?out"
    r"|resource_pool_exhausted|does not have enough resources",
    re.IGNORECASE,
)
_TOO_MANY_CALLS = re.compile(r"rate.?limit|per.minute|requests? per", re.IGNORECASE)
_CALL = re.compile(r"(GET|POST|PATCH|DELETE|PUT) \S+: ")
_MAX_TEXT = 400  # characters


def convert_error(error: Exception, project: str) -> ProviderError:
    """Convert an exception of Google's client."""
    if isinstance(error, ProviderError):
        return error
    if isinstance(error, GoogleAPICallError):
        return _convert_answer(error, project)
    if isinstance(error, DefaultCredentialsError):
        words = f": {_LOG_IN} ({_NAMED_FILE} is not set)"
        if os.environ.get(_NAMED_FILE):  # it overrides a login
            words = f" from {_NAMED_FILE}: {one_line(str(error.args[0]))}"
        return ProviderError(Refusal.DENIED, f"no Google Cloud credentials{words}")
    if isinstance(error, RefreshError) and not error.retryable:
        why = one_line(str(error.args[0])) if error.args else "no reason given"
        return ProviderError(
            Refusal.DENIED,
            f"the Google Cloud credentials have expired or were revoked: {why} ({_LOG_IN})",
        )
    is_login = isinstance(error, GoogleAuthError)
    kind = "no way to log in to Google Cloud" if is_login else "no answer from Google"
    return ProviderError(Refusal.UNANSWERED, f"{kind}: {type(error).__name__}: {one_line(str(error))}")


def one_line(text: str) -> str:
    """Return Google's text as one line of bounded length, without the request's method and URL."""
    line = " ".join(_CALL.sub("", text, count=1).split())
    return line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 1]}…"


def _convert_answer(error: GoogleAPICallError, project: str) -> ProviderError:
    code, words, reason = error.code or 0, one_line(str(error.message)), _reason(error)
    if code == 401:
        return ProviderError(Refusal.DENIED, f"Google does not accept the credentials: {words} ({_LOG_IN})")
    if code == 403:
        return ProviderError(Refusal.DENIED, _denied(words, reason, project))
    if code in (429, 503) and _NO_MACHINES.search(words):
        return ProviderError(Refusal.STOCKOUT, words)
    if code == 429:
        too_often = reason == "RATE_LIMIT_EXCEEDED" or _TOO_MANY_CALLS.search(words)
        return ProviderError(Refusal.UNANSWERED if too_often else Refusal.QUOTA, words)
    if code in (400, 404):
        return ProviderError(Refusal.INVALID, words)
    return ProviderError(Refusal.UNANSWERED, f"{code} {words}")


def _reason(error: GoogleAPICallError) -> str:
    """Return the reason in a google.rpc.ErrorInfo, which older versions of the client can't read."""
    return next(
        (str(each["reason"]) for each in error.details if isinstance(each, dict) and "reason" in each), ""
    )


def _denied(words: str, reason: str, project: str) -> str:
    if "quota project" in words or _PROJECT_OF_GCLOUD in words:
        return (
            "the credentials have no quota project: "
            f"gcloud auth application-default set-quota-project {project}"
        )
    if reason == "SERVICE_DISABLED" or "has not been used in project" in words:
        return (
            f"the Cloud TPU API is off in project {project}: "
            f"gcloud services enable tpu.googleapis.com --project {project}"
        )
    return f"{words} (role roles/tpu.admin in project {project} allows it)"


def parse_status(code: int, words: str) -> tuple[Refusal, str]:
    """Return the kind of refusal for a google.rpc.Status, and its message as one line."""
    message = one_line(words) or f"error {code} without a message"
    if code in (_EXHAUSTED, _UNAVAILABLE) and _NO_MACHINES.search(message):
        return Refusal.STOCKOUT, message
    return _REFUSALS.get(code, Refusal.UNANSWERED), message
