"""Scale groups as the configuration describes them, and their slices, from the decision to create one to its end."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from iris_cli.core import attributes as keys
from iris_cli.core.attributes import AttributeValue, region_of_zone
from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.model.worker import NOWHERE, Connection
from iris_cli.core.structs import Record, Value
from iris_cli.core.topology import lookup


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
    """The group as it was for a slice made by this template: the configuration may have changed since."""
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
        keys.SCALE_GROUP_ATTRIBUTE_KEY: group,
        keys.DEVICE_TYPE_ATTRIBUTE_KEY: "tpu",
        keys.DEVICE_VARIANT_ATTRIBUTE_KEY: template.type,
        keys.TPU_TOPOLOGY_ATTRIBUTE_KEY: template.type,
        keys.TPU_VM_COUNT_ATTRIBUTE_KEY: known.vms if known else None,
        keys.PREEMPTIBLE_ATTRIBUTE_KEY: template.preemptible,
        keys.ZONE_ATTRIBUTE_KEY: template.zone,
        keys.REGION_ATTRIBUTE_KEY: region_of_zone(template.zone),
    }
    return {key: AttributeValue(value) for key, value in found.items() if value not in (None, "")}


INCOMPLETE: Final = "its slice is not complete yet"
"""Why a VM is drained as long as not all of its slice are well and set up."""


class SliceState(StrEnum):
    """Only what has been `DELETING` and is listed by its provider no more is gone."""

    REQUESTED = "requested"  # to be made; whether the provider was told is not known
    CREATING = "creating"  # the provider makes it
    BOOTING = "booting"  # the provider says that it is there; not every VM has passed its probe
    READY = "ready"  # its VMs are workers
    DELETING = "deleting"  # to be deleted; whether the provider was told is not known


class SliceHost(Value, frozen=True, kw_only=True):
    """One VM of a slice. `port` 0: the usual one; `key`: its SSH host key, `ssh-ed25519 AAAA...`, if that is known."""

    host: str
    port: int = 0
    key: str = ""


class Slice(Record, kw_only=True):
    """One slice of a scale group. Times are seconds since the epoch, None: not yet.

    `hosts` are in the order of worker numbers. `incarnation` is the provider's word for this very machine. Of those
    that have a `setup` command the VMs in `set_up`, by number, have run it. `wanted_by` are jobs that it was asked for.
    """

    name: str
    group: str
    template: SliceTemplate
    state: SliceState = SliceState.REQUESTED
    hosts: tuple[SliceHost, ...] = ()
    incarnation: str = ""
    wanted_by: tuple[JobId, ...] = ()
    setup: str = ""
    set_up: tuple[int, ...] = ()
    requested_at: float = 0.0
    created_at: float | None = None
    started_at: float | None = None
    joined_at: float | None = None
    deleting_at: float | None = None
    reason: str = ""  # why it is being deleted

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        return tuple(WorkerId(f"{self.name}-{index}") for index in range(len(self.hosts)))

    @property
    def to_set_up(self) -> tuple[int, ...]:
        """The VMs that have not run its set-up command yet, by number."""
        return tuple(vm for vm in range(len(self.hosts)) if vm not in self.set_up) if self.setup else ()

    def expected(self, now: float, patience: float) -> bool:
        """Whether its VMs will come. A request that no provider accepted for `patience` seconds is given up."""
        since = now - self.requested_at  # less than nothing where a clock was wrong
        in_vain = self.state is SliceState.REQUESTED and not -patience < since < patience
        return self.coming and not in_vain

    @property
    def coming(self) -> bool:
        """Whether its VMs are no workers yet, and will be."""
        return self.state in (SliceState.REQUESTED, SliceState.CREATING, SliceState.BOOTING)


class SliceOwner(Value, frozen=True, kw_only=True):
    """The state directory that looks after slices. `place` tells it from its copies, `where` tells people."""

    place: str
    where: str


def slice_name(group: str, owner: str, number: int) -> str:
    """The name of a slice, never used twice; a piece of the cluster's id tells apart clusters of one cloud project."""
    return f"{group}-{owner[:4]}-{number}"


def slice_number(name: str, owner: str) -> tuple[str, int] | None:
    """The group and the number in a name that `slice_name` made; None for any other."""
    stem, _, number = name.rpartition("-")
    group = stem.rpartition("-")[0]
    if not (number.isascii() and number.isdecimal() and name == slice_name(group, owner, int(number))):
        return None
    return group, int(number)


def slice_of(worker: str) -> str:
    """The slice of which this is a VM, if it is one."""
    return worker.rpartition("-")[0]


class SeenSlice(Value, frozen=True, kw_only=True):
    """What a slice of this type turned out to be: so many VMs, each with at least that much (memory in bytes)."""

    type: str
    vms: int
    cpu_millis: int
    memory: int
    gpus: int = 0


class GroupRecord(Record, kw_only=True):
    """What the log knows of a scale group beside its slices.

    `requested` counts all slices there ever were: names are made of it. After `failures` in a row nothing is made
    before `backoff_until`; `error` is the last one. `seen`: what the last slice that joined was.
    """

    name: str
    requested: int = 0
    failures: int = 0
    backoff_until: float = 0.0
    error: str = ""
    seen: SeenSlice | None = None
