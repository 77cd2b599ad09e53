"""What to do about a TPU VM or a queued resource that has no hosts to offer, in words.

States as in the reference of the TPU API: `projects.locations.nodes` and `projects.locations.queuedResources`.
"""

from __future__ import annotations

import shlex

READY = "READY"

_AGAIN = "import again when it is READY"
_NODES = {
    "CREATING": ("it is being made", _AGAIN),
    "STARTING": ("it is being started", _AGAIN),
    "RESTARTING": ("it is being restarted", _AGAIN),
    "REIMAGING": ("it gets a new image", _AGAIN),
    "REPAIRING": ("it is being repaired", _AGAIN),
    "UNHIDING": ("it is coming back", _AGAIN),
    "STOPPED": ("it is stopped", "{start}"),
    "STOPPING": ("it is being stopped", "when it has stopped: {start}"),
    "PREEMPTED": (
        "it was preempted, and does not come back by itself",
        "{delete}, then make it again and import again",
    ),
    "TERMINATED": ("its time was over, and it does not come back", "{delete}"),
    "DELETING": ("it is being deleted", ""),
    "HIDING": ("it is being taken away", ""),
    "HIDDEN": ("it was taken away", ""),
}
_QUEUED = {
    "ACTIVE": (
        "its VMs are not listed with the request",
        "import from `gcloud compute tpus tpu-vm list`, too",
    ),
    "FAILED": ("it failed, and still takes quota", "{delete}"),
    "SUSPENDING": ("its VMs are being taken away", "when it is SUSPENDED: {delete}"),
    "SUSPENDED": ("its VMs were taken away, and it does not recover", "{delete}, then ask again"),
    "DELETING": ("it is being deleted", ""),
}
_WAITS = ("it waits for machines", "import again when it is ACTIVE")
_WAITING = ("CREATING", "ACCEPTED", "PROVISIONING", "WAITING_FOR_RESOURCES")


def of_node(state: str, name: str, project: str, zone: str, request: str) -> tuple[str, str]:
    """Why a node that isn't READY is left out, and what to do. `request` is the queued resource that it is of."""
    why, fix = _NODES.get(state, (f"its state is {state or 'not told'}", _AGAIN))
    start = _gcloud(f"tpu-vm start {shlex.quote(name)}", project, zone)
    return _worded(state, why), fix.format(start=start, delete=_delete(name, project, zone, request))


def of_request(state: str, name: str, project: str, zone: str) -> tuple[str, str]:
    """The same of a queued resource."""
    odd = (f"its state is {state or 'not told'}", "")
    why, fix = _QUEUED.get(state, _WAITS if state in _WAITING else odd)
    return _worded(state, f"a queued resource: {why}"), fix.format(delete=_delete(name, project, zone, name))


def _worded(state: str, why: str) -> str:
    return why if not state or state in why else f"{state}: {why}"


def _delete(name: str, project: str, zone: str, request: str) -> str:
    """Who asked for it through a queue deletes the request, which would otherwise go on taking quota."""
    if request:
        return _gcloud(f"queued-resources delete {shlex.quote(request)} --force", project, zone)
    return _gcloud(f"tpu-vm delete {shlex.quote(name)}", project, zone)


def _gcloud(what: str, project: str, zone: str) -> str:
    command = f"gcloud compute tpus {what}"
    command += f" --zone {shlex.quote(zone)}" if zone else ""
    return command + (f" --project {shlex.quote(project)}" if project else "")
