"""Scale groups as configured, and the state of their slices from the request to the deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from iris_cli.core import attributes as keys
from iris_cli.core.attributes import AttributeValue, region_of_zone
from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.model.worker import NOWHERE, Connection, Worker
from iris_cli.core.resources import AUTO, Device
from iris_cli.core.structs import Record, Value
from iris_cli.core.text import pattern
from iris_cli.core.topology import describe, lookup
from iris_cli.core.units import count


class Provider(StrEnum):
    """Provider of the slices of a scale group."""

    GCP = "gcp"
    LOCAL = "local"
    MANUAL = "manual"
    SLURM = "slurm"


class Addresses(StrEnum):
    """Kind of address by which the VMs of Google Cloud slices are reached."""

    EXTERNAL = "external"
    INTERNAL = "internal"


class GcpOptions(Value, frozen=True, kw_only=True):
    """Options of a Google Cloud slice in addition to the common ones.

    `topology`: arrangement of the chips (`2x2x4`) if given in place of a type. `spot`, `reserved` and `reservation` (a
    name) select the kind of capacity. `queued`: Google waits for capacity (a queued resource). `network` and
    `subnetwork` may be paths, as in Google's API.
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


class NodeAccess(StrEnum):
    """The transport for scripts to the nodes of a Slurm allocation."""

    SSH = "ssh"
    SRUN = "srun"


SLURM_VARIABLES = (
    "HOME",
    "KRB5CCNAME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "USER",
)
"""The only variables of iris that Slurm's commands get. They copy their environment into jobs and steps, and other
variables hold secrets, or options (`SBATCH_*`, `SLURM_*`) of an allocation around iris."""

_GPUS = pattern(r"(?:gres/)?gpu(?::([A-Za-z][A-Za-z0-9_.-]*))?(?:[:=]([0-9]{1,4}))?")


class SlurmOptions(Value, frozen=True, kw_only=True):
    """Options of a Slurm allocation. `time` is its time limit in seconds; 0: the default of the partition.

    `gres` is requested on each node. `directives` are further options of sbatch. The commands of Slurm run on the
    host `login` over SSH; "": on this machine.
    """

    nodes: int = 1
    partition: str = ""
    account: str = ""
    qos: str = ""
    time: float = 0.0
    gres: str = ""
    constraint: str = ""
    directives: tuple[str, ...] = ()
    login: str = ""
    transport: NodeAccess = NodeAccess.SSH

    @property
    def device(self) -> Device:
        """The device of each node: its GPUs according to `gres`, otherwise only its CPU."""
        for each in self.gres.split(","):
            match = _GPUS.fullmatch(each.strip())
            if match is not None:
                return Device("gpu", match[1] or AUTO, int(match[2] or 1))
        return Device("cpu")


class SliceTemplate(Value, frozen=True, kw_only=True):
    """The properties of the slices that a scale group creates. `type` is a canonical TPU type; "" for Slurm."""

    provider: Provider
    type: str
    project: str = ""
    zone: str = ""
    runtime: str = ""
    preemptible: bool = False
    gcp: GcpOptions = GcpOptions()  # one shared object: the log omits only this very object
    slurm: SlurmOptions = SlurmOptions()

    @property
    def vms(self) -> int | None:
        """The number of VMs (nodes) of a slice, if known."""
        if self.provider is Provider.SLURM:
            return self.slurm.nodes
        known = lookup(self.type)
        return known.vms if known is not None else None

    @property
    def device(self) -> Device:
        return self.slurm.device if self.provider is Provider.SLURM else Device("tpu", self.type or AUTO)

    @property
    def kind(self) -> str:
        """The TPU type, or the number and properties of Slurm nodes. Slices of one kind have equal VMs."""
        if self.provider is not Provider.SLURM:
            return self.type
        options = self.slurm
        parts = (options.partition, options.gres, options.constraint)
        return " ".join([count(options.nodes, "node"), *filter(None, parts)])

    def describe(self, vms: int | None = None) -> str:
        """Return the kind with its size; `vms` is the observed number of VMs if known."""
        return self.kind if self.provider is Provider.SLURM else describe(self.type, vms)


class ScaleGroup(Struct, frozen=True, kw_only=True):
    """Slices that can be created on demand. The group with the lowest `priority` is used first.

    `idle_timeout`: seconds after which an idle slice is deleted. `attributes`: declared attributes of its workers;
    in a loaded configuration also the derived attributes. `env`: default environment of its tasks. `setup`: command
    that each new VM runs once.
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


def slice_attributes(group: ScaleGroup) -> dict[str, AttributeValue]:
    """Return the attributes of every worker of the group's slices. Declared attributes override derived ones."""
    return {**_derived_attributes(group.name, group.template), **group.attributes}


def with_template(group: ScaleGroup, template: SliceTemplate) -> ScaleGroup:
    """Return the group with the template of one of its slices, which may be older than the configuration."""
    if template == group.template:
        return group
    attributes = {**group.attributes, **_derived_attributes(group.name, template)}
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


def _derived_attributes(group: str, template: SliceTemplate) -> dict[str, AttributeValue]:
    device = template.device
    found = {
        keys.SCALE_GROUP_ATTRIBUTE_KEY: group,
        keys.DEVICE_TYPE_ATTRIBUTE_KEY: device.kind,
        keys.DEVICE_VARIANT_ATTRIBUTE_KEY: "" if device.variant == AUTO else device.variant,
        keys.TPU_TOPOLOGY_ATTRIBUTE_KEY: template.type,
        keys.TPU_VM_COUNT_ATTRIBUTE_KEY: template.vms,
        keys.PREEMPTIBLE_ATTRIBUTE_KEY: template.preemptible,
        keys.ZONE_ATTRIBUTE_KEY: template.zone,
        keys.REGION_ATTRIBUTE_KEY: region_of_zone(template.zone),
    }
    return {key: AttributeValue(value) for key, value in found.items() if value not in (None, "")}


INCOMPLETE: Final = "its slice is not complete yet"
"""Reason for which iris drains a VM until all VMs of its slice are healthy and set up."""


class SliceState(StrEnum):
    """State of a slice. A slice is removed from the tables when it is `DELETING` and its provider does not list it."""

    REQUESTED = "requested"  # iris will send, or has sent, the request to create it
    CREATING = "creating"  # the provider is creating it
    BOOTING = "booting"  # the provider reports it ready, but not every VM has passed its probe
    READY = "ready"  # its VMs are workers
    DELETING = "deleting"  # iris will send, or has sent, the request to delete it


class SliceHost(Value, frozen=True, kw_only=True):
    """One VM of a slice. `port` 0: the default. `key`: its SSH host key, `ssh-ed25519 AAAA...`, "" if unknown.

    For a node of a Slurm allocation, `cpus` (0: all), `memory` in bytes (0: all) and `gpus` (indexes) are the granted
    resources, and `remote_dir` is the default directory of iris.
    """

    host: str
    port: int = 0
    key: str = ""
    cpus: int = 0
    memory: int = 0
    gpus: tuple[int, ...] = ()
    remote_dir: str = ""


class Slice(Record, kw_only=True):
    """One slice of a scale group. Times are seconds since the epoch; None if the event has not happened yet.

    `hosts` are in the order of worker numbers. `incarnation` is the provider's id of this set of VMs. `set_up` are the
    numbers of the VMs that have run the command `setup`. `wanted_by` are the jobs for which it was requested. `remark`:
    the provider's text about it, such as why Slurm keeps an allocation pending. `ends_at`: when its time limit ends it.
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
    remark: str = ""
    ends_at: float | None = None

    @property
    def allocation(self) -> str:
        """The id of its Slurm job; "" for other providers, or before it runs."""
        return self.incarnation.partition(" ")[0] if self.template.provider is Provider.SLURM else ""

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        stem = f"{self.name}.{self.allocation}" if self.allocation else self.name
        return tuple(WorkerId(f"{stem}-{index}") for index in range(len(self.hosts)))

    @property
    def vms_to_set_up(self) -> tuple[int, ...]:
        """The numbers of the VMs that have not run the set-up command yet."""
        return tuple(vm for vm in range(len(self.hosts)) if vm not in self.set_up) if self.setup else ()

    def is_expected(self, now: float, request_timeout: float) -> bool:
        """Return whether its VMs will become workers. False if the provider did not accept its request in time."""
        since = now - self.requested_at  # negative if a clock was wrong
        expired = self.state is SliceState.REQUESTED and not -request_timeout < since < request_timeout
        return self.is_provisioning and not expired

    @property
    def is_provisioning(self) -> bool:
        """True if its VMs are not workers yet but will be."""
        return self.state in (SliceState.REQUESTED, SliceState.CREATING, SliceState.BOOTING)


class SliceOwner(Value, frozen=True, kw_only=True):
    """The state directory that manages the slices. `place` is its id, `where` is its path for users."""

    place: str
    where: str


def slice_name(group: str, owner: str, number: int) -> str:
    """Return the name of a slice. The start of the cluster's id (`owner`) makes it unique among clusters."""
    return f"{group}-{owner[:4]}-{number}"


def slice_number(name: str, owner: str) -> tuple[str, int] | None:
    """Return the group and number in a name from `slice_name`; None for any other name."""
    stem, _, number = name.rpartition("-")
    group = stem.rpartition("-")[0]
    if not (number.isascii() and number.isdecimal() and name == slice_name(group, owner, int(number))):
        return None
    return group, int(number)


def slice_of(worker: str) -> str:
    """Return the name of the slice of a VM. The id of any other worker gives a name that no slice has."""
    return worker.rpartition("-")[0].partition(".")[0]


class SeenSlice(Value, frozen=True, kw_only=True):
    """Observed size of the slices of kind `type`: number of VMs, and the least resources of a VM (memory in bytes)."""

    type: str
    vms: int
    cpu_millis: int
    memory: int
    gpus: int = 0

    @classmethod
    def of(cls, kind: str, vms: int, workers: Sequence[Worker]) -> SeenSlice:
        """Return the size of slices that have these workers."""
        return cls(
            type=kind,
            vms=vms,
            cpu_millis=min(worker.cpu_millis for worker in workers),
            memory=min(worker.memory for worker in workers),
            gpus=min(worker.gpus for worker in workers),
        )


class GroupRecord(Record, kw_only=True):
    """State of a scale group in addition to its slices.

    `requested` counts all slices ever requested; slice names contain this number. After `failures` consecutive
    failures, no slice is created before `backoff_until`. `error` is the last failure. `seen` is the size of the last
    slice that joined.
    """

    name: str
    requested: int = 0
    failures: int = 0
    backoff_until: float = 0.0
    error: str = ""
    seen: SeenSlice | None = None
