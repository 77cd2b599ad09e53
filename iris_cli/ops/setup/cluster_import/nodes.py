"""Read slices from the JSON of `gcloud compute tpus tpu-vm list --format json`, or of the TPU API, for an import.

The reference of the TPU API defines the fields and states: `projects.locations.nodes` and
`projects.locations.queuedResources`. The input is untrusted. Invalid items are skipped with a reason.
"""

import ipaddress
import json
import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from iris_cli.config.hosts import label_fault
from iris_cli.config.yaml_text import NewHost
from iris_cli.core import PREEMPTIBLE_ATTRIBUTE_KEY, clip, is_name, pattern
from iris_cli.core.messages.cloud import LABEL_PREFIX
from iris_cli.core.topology import canonical_type, lookup, type_from_api
from iris_cli.errors import UsageError

_READY = "READY"
_WHEN_READY = "import again when it is READY"
_NODE_STATES = {
    "CREATING": ("it is being created", _WHEN_READY),
    "STARTING": ("it is being started", _WHEN_READY),
    "RESTARTING": ("it is being restarted", _WHEN_READY),
    "REIMAGING": ("it is being re-imaged", _WHEN_READY),
    "REPAIRING": ("it is being repaired", _WHEN_READY),
    "UNHIDING": ("it is restarting", _WHEN_READY),
    "STOPPED": ("it is stopped", "run `{start}`"),
    "STOPPING": ("it is being stopped", "when it has stopped, run `{start}`"),
    "PREEMPTED": (
        "it was preempted and does not restart",
        "run `{delete}`, then create the slice and import it again",
    ),
    "TERMINATED": ("its time limit was reached", "run `{delete}`"),
    "DELETING": ("it is being deleted", ""),
    "HIDING": ("it is being preempted", ""),
    "HIDDEN": ("it was preempted", ""),
}
_REQUEST_STATES = {
    "ACTIVE": (
        "its VMs are not listed with the request",
        "also import from `gcloud compute tpus tpu-vm list`",
    ),
    "FAILED": ("it failed and still uses quota", "run `{delete}`"),
    "SUSPENDING": ("its VMs are being preempted", "when it is SUSPENDED, run `{delete}`"),
    "SUSPENDED": ("its VMs were preempted for good", "run `{delete}`, then request it again"),
    "DELETING": ("it is being deleted", ""),
}
_WAITING_TEXT = ("it waits for capacity", "import again when it is ACTIVE")
_WAITING_STATES = ("CREATING", "ACCEPTED", "PROVISIONING", "WAITING_FOR_RESOURCES")
LIST_COMMAND = "gcloud compute tpus tpu-vm list --zone ZONE --format json > tpus.json"
_PATH = pattern(r"projects/([^/]+)/locations/([^/]+)/(nodes|queuedResources)/([^/]+)")
# These patterns are more permissive than Google's rules. Each match can be pasted into a command without quotes.
_ZONE = pattern(r"[a-z0-9][a-z0-9-]{0,62}")
_PROJECT = pattern(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,62}")
_INCARNATION_PART = pattern(r"[A-Za-z0-9_.:+-]{1,64}")
_LIST_KEYS = ("nodes", "queuedResources")
_SPOT_KEYS = (PREEMPTIBLE_ATTRIBUTE_KEY, "spot")
_MAX_LABELS = 64  # Google's limit
_MAX_NAME = 58  # characters, so that the number of a worker can be appended
Json = Mapping[str, Any]


class FoundSlice(Struct, frozen=True, kw_only=True):
    """An existing slice. `internal` and `external` are the addresses of its VMs, in order of the worker numbers.

    `external` may be empty. `incarnation` is `PROJECT ID CREATED` of the node, or '' if it is unknown. `created_at` is
    the time of the node's creation in seconds since the epoch. `labels` are the labels that become attributes, or None
    if the source has no labels. `skipped` has the reason for each label that can't become an attribute.
    """

    name: str
    type: str
    internal: tuple[str, ...]
    external: tuple[str, ...] = ()
    project: str = ""
    zone: str = ""
    preemptible: bool | None = None
    incarnation: str = ""
    created_at: float | None = None
    health: str = ""  # the provider's value; '' if unknown
    labels: Mapping[str, str] | None = None
    skipped: tuple[str, ...] = ()


class SkippedEntry(Struct, frozen=True):
    """A slice or host that is not imported: the reason, and the fix or ''."""

    name: str
    why: str
    fix: str = ""
    zone: str = ""


class SourceContent(Struct, frozen=True, kw_only=True):
    """Content of a source. `scopes`: pairs of project and zone for which the source lists all slices."""

    slices: tuple[FoundSlice, ...] = ()
    hosts: tuple[NewHost, ...] = ()
    skipped: tuple[SkippedEntry, ...] = ()
    scopes: frozenset[tuple[str, str]] = frozenset()
    notes: tuple[str, ...] = ()


def _node_error(state: str, name: str, project: str, zone: str, request: str) -> UsageError:
    """Return the error for a node that isn't READY. `request`: the node's queued resource, or ''."""
    why, fix = _NODE_STATES.get(state, (f"its state is {state or 'unknown'}", _WHEN_READY))
    start = _gcloud(f"tpu-vm start {shlex.quote(name)}", project, zone)
    delete = _delete_command(name, project, zone, request)
    created = f"; created by queued resource {clip(request)}" if request and "{delete}" in fix else ""
    return UsageError(f"{_with_state(state, why)}{created}", hint=fix.format(start=start, delete=delete))


def _request_error(state: str, name: str, project: str, zone: str) -> UsageError:
    """Return the error for a queued resource. A queued resource can't be imported in any state."""
    unknown = (f"its state is {state or 'unknown'}", "")
    why, fix = _REQUEST_STATES.get(state, _WAITING_TEXT if state in _WAITING_STATES else unknown)
    delete = _delete_command(name, project, zone, name)
    return UsageError(_with_state(state, f"a queued resource: {why}"), hint=fix.format(delete=delete))


def _with_state(state: str, why: str) -> str:
    return why if not state or state in why else f"{why} ({state})"


def _delete_command(name: str, project: str, zone: str, request: str) -> str:
    """Return the command that deletes the node. It also deletes the node's queued resource (`request`, or '')."""
    if request:
        return _gcloud(f"queued-resources delete {shlex.quote(request)} --force", project, zone)
    return _gcloud(f"tpu-vm delete {shlex.quote(name)}", project, zone)


def _gcloud(words: str, project: str, zone: str) -> str:
    command = f"gcloud compute tpus {words}"
    command += f" --zone {shlex.quote(zone)}" if zone else ""
    return command + (f" --project {shlex.quote(project)}" if project else "")


def read_nodes(text: str) -> SourceContent:
    """Return the slices in the JSON text, which may consist of several documents. Raises UsageError."""
    items, notes, complete = _items(text)
    slices: list[FoundSlice] = []
    skipped: list[SkippedEntry] = []
    for number, item in enumerate(items, start=1):
        name, project, zone = f"entry {number}", "", ""
        try:
            if not isinstance(item, Mapping):
                raise UsageError("it describes no TPU VM")
            name, project, zone, is_request = _identity(item, name)
            if is_request:
                raise _request_error(_state(item), name, project, zone)
            slices.append(_slice(item, name, project, zone))
        except UsageError as error:
            skipped.append(SkippedEntry(name, error.message, error.hint, zone))
    scopes = {(each.project, each.zone) for each in slices} if complete else set()
    if complete:
        scopes |= {_scope(item) for item in items if isinstance(item, Mapping)}
    return SourceContent(
        slices=tuple(slices), skipped=tuple(skipped), scopes=frozenset(scopes), notes=tuple(notes)
    )


def _items(text: str) -> tuple[list[Any], list[str], bool]:
    """Return the items of all lists, notes about the lists, and True if the lists are complete."""
    items: list[Any] = []
    notes: list[str] = []
    complete = True
    for document in _documents(text):
        if isinstance(document, list):
            items += document
            continue
        if not isinstance(document, Mapping):
            raise UsageError("this JSON is not a list of TPU VMs", hint=LIST_COMMAND)
        if "error" in document:
            error = document["error"]
            message = str(error.get("message", "") if isinstance(error, Mapping) else error)
            raise UsageError(f"this is an error, not a list: {clip(message)}", hint=LIST_COMMAND)
        if isinstance(document.get("name"), str):
            items.append(document)
            complete = False
            continue
        lists = [document[key] for key in _LIST_KEYS if isinstance(document.get(key), list)]
        items += [each for entries in lists for each in entries]
        if document.get("nextPageToken"):
            notes.append("the list is incomplete: it has more pages")
            complete = False
        if unreachable := document.get("unreachable"):
            names = ", ".join(map(str, unreachable)) if isinstance(unreachable, list) else "some locations"
            notes.append(f"the list is incomplete: no answer from {clip(names)}")
            complete = False
    return items, notes, complete


def _documents(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    position = _skip_blanks(text, 0)
    while position < len(text):
        try:
            document, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise UsageError(
                f"not valid JSON: line {error.lineno}: {error.msg}", hint=LIST_COMMAND
            ) from error
        except (RecursionError, ValueError) as error:
            raise UsageError(
                "this JSON is nested too deeply or has numbers that are too long", hint=LIST_COMMAND
            ) from error
        yield document
        position = _skip_blanks(text, position)


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n\ufeff":
        position += 1
    return position


def _identity(item: Json, fallback: str) -> tuple[str, str, str, bool]:
    """Return the name, project and zone of an item, and True if it is a queued resource. Raises UsageError."""
    path = _text(item, "name")
    match = _PATH.fullmatch(path)
    if match is None:
        name = path.rpartition("/")[2]
        zone = _text(item, "zone").rpartition("/")[2]
        return clip(name) or fallback, "", zone if _ZONE.fullmatch(zone) else "", "tpu" in item
    project, zone, kind, name = match.groups()
    if not (_PROJECT.fullmatch(project) and _ZONE.fullmatch(zone)):
        raise UsageError(f"invalid project or zone in {clip(path)!r}")
    return clip(name), project, zone, kind == "queuedResources"


def _scope(item: Json) -> tuple[str, str]:
    match = _PATH.fullmatch(_text(item, "name"))
    return (match[1], match[2]) if match is not None and match[3] == "nodes" else ("", "")


def _slice(item: Json, name: str, project: str, zone: str) -> FoundSlice:
    labels = item.get("labels")
    if isinstance(labels, Mapping) and any(key.startswith(LABEL_PREFIX) for key in labels):
        raise UsageError("iris created it for a scale group")
    if _text(item, "apiVersion").upper() == "V1":
        raise UsageError("it is a legacy TPU Node without SSH access")
    state = _state(item)
    if state != _READY:
        request = _text(item, "queuedResource").rpartition("/")[2]
        raise _node_error(state, name, project, zone, request)
    if not is_name(name) or len(name) > _MAX_NAME:
        raise UsageError("its name is not valid for a slice")
    kind = _type(item)
    internal, external = _addresses(item)
    known = lookup(kind)
    if known is not None and len(internal) < known.vms:
        vms = f"{len(internal)} of its {known.vms} VMs are listed"
        raise UsageError(vms, hint="import again when all are listed")
    accepted, skipped = _labels(labels)
    scheduling = item.get("schedulingConfig")
    settings = scheduling if isinstance(scheduling, Mapping) else {}
    incarnation, created_at = _incarnation(item, project)
    return FoundSlice(
        name=name,
        type=kind,
        internal=internal,
        external=external,
        project=project,
        zone=zone,
        preemptible=any(settings.get(key) is True for key in _SPOT_KEYS)
        or _text(settings, "provisioningModel").upper() == "SPOT",
        incarnation=incarnation,
        created_at=created_at,
        health=_text(item, "health"),
        labels=accepted,
        skipped=skipped,
    )


def _labels(value: object) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the labels that can be attributes, and a reason for each label that can't."""
    labels = value if isinstance(value, Mapping) else {}
    if len(labels) > _MAX_LABELS:
        return {}, (f"skipped all labels: more than {_MAX_LABELS}",)
    faults = {key: label_fault(key, value) for key, value in sorted(labels.items())}
    return (
        {key: labels[key] for key, fault in faults.items() if not fault},
        tuple(f"skipped label {clip(key)}: {fault}" for key, fault in faults.items() if fault),
    )


def _state(item: Json) -> str:
    """Return the state, or ''. For a queued resource, gcloud prints a text, and the API returns a mapping."""
    state = item.get("state")
    if isinstance(state, Mapping):
        state = state.get("state")
    return clip(state.upper()) if isinstance(state, str) else ""


def _type(item: Json) -> str:
    written = _text(item, "acceleratorType").rpartition("/")[2]
    try:
        if written:
            return canonical_type(written)
        config = item.get("acceleratorConfig")
        if isinstance(config, Mapping):
            return type_from_api(_text(config, "type"), _text(config, "topology"))
    except UsageError as error:
        raise UsageError(error.message) from error
    raise UsageError("its type is unknown")


def _addresses(item: Json) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the internal addresses of the item's VMs, and the external addresses if all VMs have one, otherwise ()."""
    endpoints = item.get("networkEndpoints")
    if not isinstance(endpoints, list) or not endpoints:
        raise UsageError("its VMs are not listed", hint="import again when they are listed")
    internal: list[str] = []
    external: list[str] = []
    for number, endpoint in enumerate(endpoints):
        fields = endpoint if isinstance(endpoint, Mapping) else {}
        access = fields.get("accessConfig")
        internal_address = _text(fields, "ipAddress")
        external_address = _text(access, "externalIp") if isinstance(access, Mapping) else ""
        if not _is_address(internal_address):
            raise UsageError(f"VM {number} has no address", hint="import again when it has one")
        internal.append(internal_address)
        external += [external_address] if _is_address(external_address) else []
    if len(set(internal)) < len(internal):
        raise UsageError("two of its VMs have the same address")
    return tuple(internal), tuple(external) if len(external) == len(internal) else ()


def _is_address(text: str) -> bool:
    """Return True for a canonical IP address without a scope (`%`). A scope may contain any text."""
    try:
        return str(ipaddress.ip_address(text)) == text and "%" not in text
    except ValueError:
        return False


def _incarnation(item: Json, project: str) -> tuple[str, float | None]:
    """Return the node's incarnation and the time of its creation; '' and None if unknown."""
    number, created = str(item.get("id", "")), _text(item, "createTime")
    if not (_INCARNATION_PART.fullmatch(number) and _INCARNATION_PART.fullmatch(created)):
        return "", None
    try:
        created_at = datetime.fromisoformat(created).timestamp()
    except (ValueError, OverflowError):
        created_at = None
    return f"{project or '-'} {number} {created}", created_at


def _text(fields: Json, key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""
