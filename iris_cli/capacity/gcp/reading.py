"""Convert nodes and queued resources of Google Cloud to slices.

Source of the states: google.cloud.tpu.v2.Node.State and google.cloud.tpu.v2.QueuedResourceState.State.
"""

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

from iris_cli.capacity.provider import ProviderError
from iris_cli.core import Slice, SliceHost, clip, count
from iris_cli.core.messages.cloud import LABEL_PREFIX, CloudSlice, CloudState, Refusal
from iris_cli.core.topology import canonical_type, lookup, type_from_api
from iris_cli.errors import UsageError

OWNER, GROUP = f"{LABEL_PREFIX}owner", f"{LABEL_PREFIX}group"
"""The labels with the owner and the scale group of a slice."""

# CloudState.STOPPED proves that nothing runs on the slice. Google's states STOPPING and HIDDEN (under repair) don't
# prove it. Slices in these states count as FAILED, so that iris deletes them.
_NODE_STATES = {
    **dict.fromkeys(("CREATING", "RESTARTING", "REIMAGING", "REPAIRING", "STARTING"), CloudState.CREATING),
    "READY": CloudState.READY,
    "DELETING": CloudState.DELETING,
    **dict.fromkeys(("STOPPED", "PREEMPTED", "TERMINATED"), CloudState.STOPPED),
    **dict.fromkeys(("STOPPING", "HIDING", "HIDDEN", "UNHIDING", "UNKNOWN"), CloudState.FAILED),
}
# A SUSPENDED queued resource never resumes, because its nodes are deleted. If a queued resource is ACTIVE, the state of
# its node counts.
_REQUEST_STATES = {
    **dict.fromkeys(("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING"), CloudState.CREATING),
    "ACTIVE": CloudState.READY,
    **dict.fromkeys(("FAILED", "SUSPENDING"), CloudState.FAILED),
    "SUSPENDED": CloudState.STOPPED,
    "DELETING": CloudState.DELETING,
}
_DELETING = 5  # Google's number for this state, both of nodes and of queued resources
_NO_CAPACITY = (Refusal.QUOTA, Refusal.STOCKOUT)
_PREFERRED_KEYS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")
SETTLE_TIME = 300.0
"""Seconds. A new node may have no VMs, addresses and host keys yet for this time."""


FetchKeys: TypeAlias = Callable[[str], Sequence[Mapping[str, str]]]


class Resources(NamedTuple):
    """The queued resource (`request`) and the node of one slice. One may be None. Both have the slice's name."""

    request: Any | None
    node: Any | None


def merge_resources(requests: Sequence[Any], nodes: Sequence[Any], owner: str) -> dict[str, Resources]:
    """Return an owner's resources by short name: resources with its label, and the nodes of its queued resources."""
    resources = {
        short_name(each.name): Resources(each, None)
        for each in requests
        if request_label(each, OWNER) == owner
    }
    for node in nodes:
        name = short_name(node.name)
        if node.labels.get(OWNER) == owner or (
            name in resources and short_name(node.queued_resource) == name
        ):
            resources[name] = Resources(resources[name].request if name in resources else None, node)
    return {name: resources[name] for name in sorted(resources)}


def short_name(name: str) -> str:
    """Return the last part of a resource name."""
    return name.rpartition("/")[2]


def request_label(request: Any, key: str) -> str:
    """Return a label of a queued resource; "" if it is missing. A queued resource has the labels of its node."""
    return next((each.node.labels[key] for each in request.tpu.node_spec if key in each.node.labels), "")


def is_being_deleted(what: Any) -> bool:
    """Return whether a node or queued resource is being deleted."""
    state = what.state if isinstance(what.state, int) else what.state.state
    return bool(state == _DELETING)


def cloud_slice(
    name: str, found: Resources, now: float, known: Slice | None, fetch_keys: FetchKeys
) -> CloudSlice:
    """Return a slice at the time `now`. `known`: the slice in the log. `fetch_keys` fetches the host keys of a node."""
    request, node = found
    queued = _slice_from_request(name, request) if request is not None else None
    if node is None:
        assert queued is not None
        is_lost = queued.state is CloudState.READY
        return replace(queued, state=CloudState.FAILED, detail="its node is gone") if is_lost else queued
    actual = _slice_from_node(name, node, now, known, fetch_keys)
    if queued is None or actual.state is CloudState.STOPPED:
        return actual
    if queued.state not in (CloudState.CREATING, CloudState.READY):
        # While the node exists, the state of its queued resource doesn't prove that nothing runs on the slice.
        state = CloudState.DELETING if queued.state is CloudState.DELETING else CloudState.FAILED
        return replace(actual, state=state, detail=queued.detail, quota=queued.quota, group=queued.group)
    return replace(actual, group=queued.group)


def failed_creation(name: str, operations: Iterable[Mapping[str, Any]]) -> CloudSlice | None:
    """Return a slice that Google does not list. Its last `create` operation tells whether it is CREATING or FAILED.

    Return None if there is no `create` operation, or if the last one has succeeded. `operations`: google.longrunning
    operations as JSON, with google.cloud.tpu.v2.OperationMetadata.
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


def _slice_from_request(name: str, request: Any) -> CloudSlice:
    word, state, detail = _state(tpu_v2.QueuedResourceState.State, request.state.state, _REQUEST_STATES)
    quota = False
    if word == "FAILED" and request.state.HasField("failed_data"):
        why = request.state.failed_data.error
        refusal, detail = parse_status(why.code, why.message)
        quota = refusal in _NO_CAPACITY
    return CloudSlice(name=name, state=state, group=request_label(request, GROUP), detail=detail, quota=quota)


def _slice_from_node(
    name: str, node: Any, now: float, known: Slice | None, fetch_keys: FetchKeys
) -> CloudSlice:
    word, state, detail = _state(tpu_v2.Node.State, node.state, _NODE_STATES)
    hosts: tuple[SliceHost, ...] = ()
    incarnation = f"{node.id} {node.create_time.ToJsonString()}"
    if word == "READY":
        settling = abs(now - node.create_time.seconds) < SETTLE_TIME  # abs: our clock may be behind
        hosts, detail = _hosts(node)
        was_ready = known is not None and known.incarnation == incarnation
        if detail:  # a slice that was ready before may recover, so don't delete it
            hosts, state = (), CloudState.CREATING if settling or was_ready else CloudState.FAILED
        elif known is not None and was_ready and _addresses(known.hosts) == _addresses(hosts):
            hosts = known.hosts
        else:
            keys_by_host = fetch_keys(name)
            if len(keys_by_host) == len(hosts):
                pairs = zip(hosts, keys_by_host, strict=True)
                hosts = tuple(replace(host, key=_preferred_key(host_keys)) for host, host_keys in pairs)
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
    """Return the VMs in the order of worker numbers, and "". If a VM has no address, return no VMs and a message.

    Only loopback addresses, as in an emulator, have ports.
    """
    is_external = any(each.enable_external_ips for each in (node.network_config, *node.network_configs))
    hosts = []
    for each in node.network_endpoints:
        address = each.access_config.external_ip if is_external else each.ip_address
        if address:
            hosts.append(SliceHost(host=address, port=each.port if address.startswith("127.") else 0))
    wanted = max(len(node.network_endpoints), _vm_count(node), 1)
    if len(hosts) < wanted:
        return (), f"{len(hosts)} of {count(wanted, 'VM')} have an address"
    return tuple(hosts), ""


def _vm_count(node: Any) -> int:
    """Return the number of VMs in a slice of the node's type; 0 if unknown."""
    accelerator = node.accelerator_config
    try:
        if accelerator.topology:
            kind = type_from_api(tpu_v2.AcceleratorConfig.Type(accelerator.type_).name, accelerator.topology)
        else:
            kind = canonical_type(short_name(node.accelerator_type))
    except (UsageError, ValueError):
        return 0
    known = lookup(kind)
    return known.vms if known is not None else 0


def _addresses(hosts: Sequence[SliceHost]) -> list[tuple[str, int]]:
    return [(host.host, host.port) for host in hosts]


def _preferred_key(keys: Mapping[str, str]) -> str:
    """Return the preferred host key in the format of known_hosts; "" if no key is valid."""
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
    """Return Google's name of a state, the CloudState, and a message. An unknown state counts as CREATING."""
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
_LOGIN_COMMAND = "gcloud auth application-default login"
_KEY_FILE_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_GCLOUD_PROJECT = "764086051850"  # the project of gcloud itself, in which no API is enabled
_NO_MACHINES = re.compile(
    r"no more capacity|not enough (?:available )?(?:capacity|resources)|insufficient capacity|stock.?out"
    r"|resource_pool_exhausted|does not have enough resources",
    re.IGNORECASE,
)
_TOO_MANY_CALLS = re.compile(r"rate.?limit|per.minute|requests? per", re.IGNORECASE)
_CALL = re.compile(r"(GET|POST|PATCH|DELETE|PUT) \S+: ")
_MAX_TEXT = 400  # characters


def convert_error(error: Exception, project: str) -> ProviderError:
    if isinstance(error, ProviderError):
        return error
    if isinstance(error, GoogleAPICallError):
        return _convert_answer(error, project)
    if isinstance(error, DefaultCredentialsError):
        words = f": {_LOGIN_COMMAND} ({_KEY_FILE_VARIABLE} is not set)"
        if os.environ.get(_KEY_FILE_VARIABLE):  # it overrides a login
            words = f" from {_KEY_FILE_VARIABLE}: {one_line(str(error.args[0]))}"
        return ProviderError(Refusal.DENIED, f"no Google Cloud credentials{words}")
    if isinstance(error, RefreshError) and not error.retryable:
        why = one_line(str(error.args[0])) if error.args else "no reason given"
        return ProviderError(
            Refusal.DENIED,
            f"the Google Cloud credentials have expired or were revoked: {why} ({_LOGIN_COMMAND})",
        )
    is_login = isinstance(error, GoogleAuthError)
    kind = "no way to log in to Google Cloud" if is_login else "no answer from Google"
    return ProviderError(Refusal.UNANSWERED, f"{kind}: {type(error).__name__}: {one_line(str(error))}")


def one_line(text: str) -> str:
    """Return Google's text as one line with a maximum length, without the request's method and URL."""
    return clip(" ".join(_CALL.sub("", text, count=1).split()), _MAX_TEXT)


def _convert_answer(error: GoogleAPICallError, project: str) -> ProviderError:
    code, words, reason = error.code or 0, one_line(str(error.message)), _reason(error)
    if code == 401:
        return ProviderError(
            Refusal.DENIED, f"Google does not accept the credentials: {words} ({_LOGIN_COMMAND})"
        )
    if code == 403:
        return ProviderError(Refusal.DENIED, _denial_text(words, reason, project))
    if code in (429, 503) and _NO_MACHINES.search(words):
        return ProviderError(Refusal.STOCKOUT, words)
    if code == 429:
        is_rate_limit = reason == "RATE_LIMIT_EXCEEDED" or _TOO_MANY_CALLS.search(words)
        return ProviderError(Refusal.UNANSWERED if is_rate_limit else Refusal.QUOTA, words)
    if code in (400, 404):
        return ProviderError(Refusal.INVALID, words)
    return ProviderError(Refusal.UNANSWERED, f"{code} {words}")


def _reason(error: GoogleAPICallError) -> str:
    """Return the reason in a google.rpc.ErrorInfo; "" if it has no reason. Older clients return it as a dict."""
    return next(
        (str(each["reason"]) for each in error.details if isinstance(each, dict) and "reason" in each), ""
    )


def _denial_text(words: str, reason: str, project: str) -> str:
    if "quota project" in words or _GCLOUD_PROJECT in words:
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
