"""Scale groups: slices that can be made on demand, as the configuration describes them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from iris_cli.core.attributes import (
    DEVICE_TYPE_ATTRIBUTE_KEY,
    DEVICE_VARIANT_ATTRIBUTE_KEY,
    PREEMPTIBLE_ATTRIBUTE_KEY,
    REGION_ATTRIBUTE_KEY,
    SCALE_GROUP_ATTRIBUTE_KEY,
    TPU_TOPOLOGY_ATTRIBUTE_KEY,
    TPU_VM_COUNT_ATTRIBUTE_KEY,
    ZONE_ATTRIBUTE_KEY,
    AttributeValue,
    region_of_zone,
)
from iris_cli.core.model.worker import NOWHERE, Connection
from iris_cli.core.resources.topology import lookup
from iris_cli.core.structs import Value


class Provider(StrEnum):
    """Who makes the slices of a scale group."""

    GCP = "gcp"
    LOCAL = "local"
    MANUAL = "manual"


class Addresses(StrEnum):
    """Which addresses the VMs of Google's slices get, and are reached at."""

    EXTERNAL = "external"
    INTERNAL = "internal"


class GcpOptions(Value, frozen=True, kw_only=True):
    """What a slice of Google's is asked for with, beside what all slices have.

    `topology` is how its chips are arranged (`2x2x4`), where that was written and not the name of a type; `spot` and
    `reserved` say how it is paid, a `reservation` by which name; `queued`: by a queued resource, which waits for
    machines. Networks may be paths, as in Google's API.
    """

    topology: str = ""
    spot: bool = False
    reserved: bool = False
    reservation: str = ""
    queued: bool = False
    addresses: Addresses = Addresses.EXTERNAL
    network: str = ""
    subnetwork: str = ""
    service_account: str = ""
    tags: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


class SliceTemplate(Value, frozen=True, kw_only=True):
    """The kind of slice that a scale group makes. `type` is a canonical TPU type."""

    provider: Provider
    type: str
    project: str = ""
    zone: str = ""
    runtime: str = ""
    preemptible: bool = False
    gcp: GcpOptions = GcpOptions()  # one for all: what is the default is told by identity


class ScaleGroup(Struct, frozen=True, kw_only=True):
    """Slices that can be made on demand. A lower `priority` is tried first; `idle_timeout` in seconds.

    `attributes` are what the configuration says of its workers (all there is to know: `slice_attributes`), `env`
    the default environment there, `setup` a command that each new VM runs once.
    """

    name: str
    template: SliceTemplate
    min_slices: int = 0
    max_slices: int = 1
    priority: int = 0
    idle_timeout: float = 600.0
    setup: str = ""
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    connection: Connection = NOWHERE

    def makes(self, template: SliceTemplate) -> bool:
        """Whether its slices are made by this template now: the configuration may have changed since."""
        return template == self.template


def slice_attributes(group: ScaleGroup) -> dict[str, AttributeValue]:
    """What every worker of the group's slices will be. What the group declares wins."""
    return {**_said_by(group.name, group.template), **group.attributes}


def as_made(group: ScaleGroup, template: SliceTemplate) -> ScaleGroup:
    """The group as it was for a slice made by this template: the configuration may have changed since, and the slice
    has not.
    """
    if template == group.template:
        return group
    attributes = {**group.attributes, **_said_by(group.name, template)}
    return ScaleGroup(
        name=group.name,
        template=template,
        min_slices=group.min_slices,
        max_slices=group.max_slices,
        priority=group.priority,
        idle_timeout=group.idle_timeout,
        setup=group.setup,
        attributes=attributes,
        env=group.env,
        connection=group.connection,
    )


def _said_by(group: str, template: SliceTemplate) -> dict[str, AttributeValue]:
    known = lookup(template.type)
    found = {
        SCALE_GROUP_ATTRIBUTE_KEY: group,
        DEVICE_TYPE_ATTRIBUTE_KEY: "tpu",
        DEVICE_VARIANT_ATTRIBUTE_KEY: template.type,
        TPU_TOPOLOGY_ATTRIBUTE_KEY: template.type,
        TPU_VM_COUNT_ATTRIBUTE_KEY: known.vms if known else None,
        PREEMPTIBLE_ATTRIBUTE_KEY: template.preemptible,
        ZONE_ATTRIBUTE_KEY: template.zone,
        REGION_ATTRIBUTE_KEY: region_of_zone(template.zone),
    }
    return {key: AttributeValue(value) for key, value in found.items() if value not in (None, "")}
