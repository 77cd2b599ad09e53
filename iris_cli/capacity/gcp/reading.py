"""What nodes and queued resources of Google's come to.

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

from iris_cli.capacity.gcp.asking import GROUP, OWNER
from iris_cli.capacity.provider import ProviderError
from iris_cli.core import Slice, SliceHost, count
from iris_cli.core.messages.cloud import CloudSlice, CloudState, Refusal
from iris_cli.core.topology import arranged_type, canonical_type, lookup
from iris_cli.errors import UsageError

# Only what is off for certain is STOPPED: that is proof that nothing runs there any more. What is on its way there,
# or came back from a repair as nobody knows what, has failed: it goes, but proves nothing before it is gone.
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
# SUSPENDED never comes back: what it had is deleted. Of an ACTIVE one the node says how it is.
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
_DELETING = 5  # in both
_NO_ROOM = (Refusal.QUOTA, Refusal.STOCKOUT)
_USUAL_KEYS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")
SETTLING = 300.0
"""Seconds after a node was asked for within which it may be without all its VMs, addresses and host keys."""


Keys: TypeAlias = Callable[[str], Sequence[Mapping[str, str]]]


class Found(NamedTuple):
    """What there is by one name: a queued resource, a node, or both."""

    request: Any | None
    node: Any | None


def merged(requests: Sequence[Any], nodes: Sequence[Any], owner: str) -> dict[str, Found]:
    """What belongs to an owner, by its short name. A node also does if it was made for a queued resource of theirs."""
    ours = {
        short(each.name): Found(each, None) for each in requests if label_of_request(each, OWNER) == owner
    }
    for node in nodes:
        name = short(node.name)
        if node.labels.get(OWNER) == owner or (name in ours and short(node.queued_resource) == name):
            ours[name] = Found(ours[name].request if name in ours else None, node)
    return {name: ours[name] for name in sorted(ours)}


def short(name: str) -> str:
    """The last part of the name of a resource."""
    return name.rpartition("/")[2]


def label_of_request(request: Any, key: str) -> str:
    """A label of a queued resource: its nodes have them."""
    return next((each.node.labels[key] for each in request.tpu.node_spec if key in each.node.labels), "")


def is_being_deleted(what: Any) -> bool:
    """Of a node or a queued resource."""
    state = what.state if isinstance(what.state, int) else what.state.state
    return bool(state == _DELETING)


def cloud_slice(name: str, found: Found, now: float, known: Slice | None, keys: Keys) -> CloudSlice:
    """One slice as it stands at `now`. `known` is what the log says of it; `keys` asks its VMs for their host keys."""
    request, node = found
    asked = _of_request(name, request) if request is not None else None
    if node is None:
        assert asked is not None
        lost = asked.state is CloudState.READY
        return replace(asked, state=CloudState.FAILED, detail="its node is gone") if lost else asked
    seen = _of_node(name, node, now, known, keys)
    if asked is None or seen.state is CloudState.STOPPED:
        return seen
    if asked.state not in (CloudState.CREATING, CloudState.READY):
        # A node that is there is no proof of anything, whatever its request says.
        state = CloudState.DELETING if asked.state is CloudState.DELETING else CloudState.FAILED
        return replace(seen, state=state, detail=asked.detail, quota=asked.quota, group=asked.group)
    return replace(seen, group=asked.group)


def never_made(name: str, operations: Iterable[Mapping[str, Any]]) -> CloudSlice | None:
    """What became of a request that isn't listed, as its last operation says; None if nobody knows.

    Operations are those of google.longrunning as JSON, with what google.cloud.tpu.v2.OperationMetadata says of each.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for each in operations:
        about = each.get("metadata", {})
        if short(about.get("target", "")) == name and about.get("verb") == "create":
            found[about.get("createTime", "").rstrip("Z")] = each  # "12:00:01" is less than "12:00:01.5"
    if not found:
        return None
    last = found[max(found)]
    if not last.get("done"):
        return CloudSlice(name=name, state=CloudState.CREATING)
    if "error" not in last:
        return None
    refusal, words = status_of(last["error"].get("code", 0), last["error"].get("message", ""))
    return CloudSlice(name=name, state=CloudState.FAILED, detail=words, quota=refusal in _NO_ROOM)


# Queued resources


def _of_request(name: str, request: Any) -> CloudSlice:
    """As far as it says itself: an ACTIVE one has a node that says more."""
    word, state, detail = _state(tpu_v2.QueuedResourceState.State, request.state.state, _REQUEST)
    quota = False
    if word == "FAILED" and request.state.HasField("failed_data"):
        why = request.state.failed_data.error
        refusal, detail = status_of(why.code, why.message)
        quota = refusal in _NO_ROOM
    return CloudSlice(
        name=name, state=state, group=label_of_request(request, GROUP), detail=detail, quota=quota
    )


# Nodes


def _of_node(name: str, node: Any, now: float, known: Slice | None, keys: Keys) -> CloudSlice:
    word, state, detail = _state(tpu_v2.Node.State, node.state, _NODE)
    hosts: tuple[SliceHost, ...] = ()
    incarnation = f"{node.id} {node.create_time.ToJsonString()}"
    if word == "READY":
        settling = abs(now - node.create_time.seconds) < SETTLING  # our clock may be behind Google's
        hosts, detail = _hosts(node)
        started = known is not None and known.incarnation == incarnation
        if detail:  # what has been whole may be so again: its probes say more than a list
            hosts, state = (), CloudState.CREATING if settling or started else CloudState.FAILED
        elif known is not None and started and _same_places(known.hosts, hosts):
            hosts = known.hosts
        else:
            hosts = _with_keys(hosts, keys(name))
            if settling and not all(host.key for host in hosts):
                hosts, state, detail = (), CloudState.CREATING, "its VMs have not reported host keys yet"
    elif node.health_description:
        detail = f"{detail or word}: {plain(node.health_description)}"
    return CloudSlice(
        name=name,
        state=state,
        group=node.labels.get(GROUP, ""),
        hosts=hosts,
        incarnation=incarnation,
        detail=detail,
    )


def _hosts(node: Any) -> tuple[tuple[SliceHost, ...], str]:
    """The VMs in the order of workers, or what is missing. Loopback is an emulator's: its ports are SSH's."""
    outside = any(each.enable_external_ips for each in (node.network_config, *node.network_configs))
    hosts = []
    for each in node.network_endpoints:
        address = each.access_config.external_ip if outside else each.ip_address
        if address:
            hosts.append(SliceHost(host=address, port=each.port if address.startswith("127.") else 0))
    wanted = max(len(node.network_endpoints), _vms(node), 1)
    if len(hosts) < wanted:
        return (), f"{len(hosts)} of {count(wanted, 'VM')} have an address"
    return tuple(hosts), ""


def _vms(node: Any) -> int:
    """How many VMs a slice of its type has, 0 if that is not known."""
    arranged = node.accelerator_config
    try:
        if arranged.topology:
            kind = arranged_type(tpu_v2.AcceleratorConfig.Type(arranged.type_).name, arranged.topology)
        else:
            kind = canonical_type(short(node.accelerator_type))
    except (UsageError, ValueError):
        return 0
    known = lookup(kind)
    return known.vms if known is not None else 0


def _same_places(some: Sequence[SliceHost], others: Sequence[SliceHost]) -> bool:
    return [(each.host, each.port) for each in some] == [(each.host, each.port) for each in others]


def _with_keys(hosts: Sequence[SliceHost], told: Sequence[Mapping[str, str]]) -> tuple[SliceHost, ...]:
    if len(told) != len(hosts):
        return tuple(hosts)
    return tuple(replace(host, key=_best(keys)) for host, keys in zip(hosts, told, strict=True))


def _best(keys: Mapping[str, str]) -> str:
    """The host key that SSH likes best, as known_hosts has it; '' if there is none that is one."""
    for kind in _USUAL_KEYS:
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
    """Google's word, what it comes to, and what is to be said of it. A state that we don't know means nothing."""
    try:
        word = str(kind(number).name)
        state = meanings[word]
    except (ValueError, KeyError):
        return "", CloudState.CREATING, f"its state {number} is unknown to iris"
    return word, state, "" if state in (CloudState.CREATING, CloudState.READY) else word


# What Google says when it says no, as the few kinds of no that matter, in words that tell what to do.
#
# Codes are those of google.rpc.Code: https://cloud.google.com/apis/design/errors.


_EXHAUSTED, _UNAVAILABLE = 8, 14
_LOG_IN = "gcloud auth application-default login"
_NAMED_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_PROJECT_OF_GCLOUD = "764086051850"  # that of all who logged in, with no API switched on
_NO_MACHINES = re.compile(
    r"no more capacity|not enough (?:available )?(?:capacity|resources)|insufficient capacity|stock.?out"
    r"|resource_pool_exhausted|does not have enough resources",
    re.IGNORECASE,
)
_TOO_MANY_CALLS = re.compile(r"rate.?limit|per.minute|requests? per", re.IGNORECASE)
_CALL = re.compile(r"(GET|POST|PATCH|DELETE|PUT) \S+: ")
_MOST = 400  # characters of what somebody else says


def error_of(error: Exception, project: str) -> ProviderError:
    """What an exception of the client means."""
    if isinstance(error, ProviderError):
        return error
    if isinstance(error, GoogleAPICallError):
        return _answered(error, project)
    if isinstance(error, DefaultCredentialsError):
        return ProviderError(Refusal.DENIED, _without_credentials(error))
    if isinstance(error, RefreshError) and not error.retryable:
        why = plain(str(error.args[0])) if error.args else "no reason given"
        return ProviderError(
            Refusal.DENIED,
            f"the Google Cloud credentials have expired or were revoked: {why} ({_LOG_IN})",
        )
    kind = (
        "no way to log in to Google Cloud" if isinstance(error, GoogleAuthError) else "no answer from Google"
    )
    return ProviderError(Refusal.UNANSWERED, f"{kind}: {type(error).__name__}: {plain(str(error))}")


def _without_credentials(error: DefaultCredentialsError) -> str:
    """A file that was named comes before any log-in, and a variable of one's shell is not set in cron."""
    if os.environ.get(_NAMED_FILE):
        return f"no Google Cloud credentials from {_NAMED_FILE}: {plain(str(error.args[0]))}"
    return f"no Google Cloud credentials: {_LOG_IN} ({_NAMED_FILE} is not set)"


def refusal_of(code: int, message: str) -> Refusal:
    """The kind of a google.rpc.Status, with which operations and queued resources say why they failed."""
    if code in (_EXHAUSTED, _UNAVAILABLE) and _NO_MACHINES.search(message):
        return Refusal.STOCKOUT
    if code == _EXHAUSTED:
        return Refusal.QUOTA
    return (
        Refusal.DENIED
        if code in (7, 16)
        else Refusal.INVALID
        if code in (3, 5, 9, 11)
        else Refusal.UNANSWERED
    )


def plain(text: str) -> str:
    """What somebody else says as one line of bounded length, without what was asked."""
    line = " ".join(_CALL.sub("", text, count=1).split())
    return line if len(line) <= _MOST else f"{line[: _MOST - 1]}…"


def _answered(error: GoogleAPICallError, project: str) -> ProviderError:
    code, words, reason = error.code or 0, plain(str(error.message)), _reason(error)
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
    """The word of a google.rpc.ErrorInfo; the client's own way to it fails in older versions."""
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


def status_of(code: int, words: str) -> tuple[Refusal, str]:
    """Kind and words of a google.rpc.Status."""
    message = plain(words) or f"error {code} without a message"
    return refusal_of(code, message), message
