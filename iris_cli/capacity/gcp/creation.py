"""Build the nodes and queued resources to create for a scale group."""

from __future__ import annotations

import getpass
import subprocess
from pathlib import Path
from typing import Any

from google.cloud import tpu_v2

from iris_cli.capacity.provider import ProviderError
from iris_cli.core import Addresses, Connection, ScaleGroup, SliceTemplate
from iris_cli.core.messages.cloud import LABEL_PREFIX, Refusal
from iris_cli.core.topology import family_of

OWNER, GROUP = f"{LABEL_PREFIX}owner", f"{LABEL_PREFIX}group"
"""The labels with the owner and the scale group of a slice."""
_FAMILIES = {"v5litepod": "V5LITE_POD"}
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_SSH_KEYGEN_TIMEOUT = 10.0


def build_node(group: ScaleGroup, owner: str) -> tpu_v2.Node:
    """Return the node to create for a scale group. Raises ProviderError."""
    template, options = group.template, group.template.gcp
    node = tpu_v2.Node(
        runtime_version=template.runtime,
        network_config=tpu_v2.NetworkConfig(
            network=options.network,
            subnetwork=options.subnetwork,
            enable_external_ips=options.addresses is Addresses.EXTERNAL,
        ),
        scheduling_config=tpu_v2.SchedulingConfig(
            spot=options.spot,
            preemptible=template.preemptible and not options.spot,
            reserved=options.reserved,
        ),
        labels={**options.labels, OWNER: owner, GROUP: group.name},
        metadata=_metadata(group.connection),
        tags=list(options.tags),
    )
    if options.service_account:
        node.service_account = tpu_v2.ServiceAccount(email=options.service_account, scope=[_SCOPE])
    if options.topology:
        node.accelerator_config = _accelerator_config(template)
    else:
        node.accelerator_type = template.type
    return node


def build_queued_resource(name: str, parent: str, group: ScaleGroup, owner: str) -> tpu_v2.QueuedResource:
    """Return the queued resource to create for a scale group. Its node gets the same name. Raises ProviderError.

    Queued resources can't have preemptible nodes, so the resource requests spot nodes instead.
    """
    node = build_node(group, owner)
    options = group.template.gcp
    if group.template.preemptible:
        node.scheduling_config = tpu_v2.SchedulingConfig()
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=parent, node_id=name, node=node)
    resource = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
    if group.template.preemptible:
        resource.spot = tpu_v2.QueuedResource.Spot()
    elif options.reserved:
        resource.guaranteed = tpu_v2.QueuedResource.Guaranteed()
    if options.reservation:
        name_in_zone = f"{parent}/reservations/{options.reservation}"
        resource.reservation_name = options.reservation if "/" in options.reservation else name_in_zone
    return resource


def _accelerator_config(template: SliceTemplate) -> tpu_v2.AcceleratorConfig:
    family = family_of(template.type.rpartition("-")[0])
    kind = getattr(tpu_v2.AcceleratorConfig.Type, _FAMILIES.get(family, family.upper()), None)
    if kind is None:
        raise ProviderError(
            Refusal.INVALID, f"Google's client has no topologies for {family}: write type: {template.type}"
        )
    return tpu_v2.AcceleratorConfig(type_=kind, topology=template.gcp.topology)


def _metadata(connection: Connection) -> dict[str, str]:
    """Return metadata that lets VMs publish their host keys, and the configured SSH key if there is one."""
    found = {"enable-guest-attributes": "TRUE"}
    if connection.key:
        user = connection.user or getpass.getuser()
        found["ssh-keys"] = f"{user}:{public_key(Path(connection.key))}"
    return found


def public_key(private: Path) -> str:
    """Return the public key of a private key file, from its `.pub` file or from ssh-keygen. Raises ProviderError."""
    try:
        words = private.with_name(f"{private.name}.pub").read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        words = _read_with_ssh_keygen(private)
    if len(words) < 2:
        raise ProviderError(
            Refusal.INVALID,
            f"no public key for {private}: ssh-keygen -y -f {private} > {private}.pub",
        )
    return " ".join(words[:2])


def _read_with_ssh_keygen(private: Path) -> list[str]:
    command: list[Any] = ["ssh-keygen", "-y", "-P", "", "-f", private]
    try:
        result = subprocess.run(  # noqa: S603 - a fixed program, and a file of the user's own
            command,
            capture_output=True,
            text=True,
            timeout=_SSH_KEYGEN_TIMEOUT,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return result.stdout.split() if result.returncode == 0 else []
