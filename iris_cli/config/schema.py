"""The content of `cluster.yaml`, with defaults filled in and slices expanded to hosts.

The VMs of slices created on demand have the same configuration as hosts in the file.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, field

from iris_cli.config.reading import Setting
from iris_cli.core import NOWHERE, Connection, Device, JobRequest, Limits, ReplaceLost, WorkerId, count
from iris_cli.core import attributes as keys
from iris_cli.core.attributes import REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY, AttributeValue, region_of_zone
from iris_cli.core.model.slice import ScaleGroup, Slice, SliceState, slice_attributes, with_template
from iris_cli.core.topology import describe, lookup


class HostConfig(Struct, frozen=True, kw_only=True):
    """The configuration of one worker.

    If a value is None or an attribute is missing, iris uses the value that the probe finds. `memory`: bytes. `cpu`:
    cores. `env`: the default environment of tasks on the worker. `slice`: the name of the worker's slice.
    """

    worker: WorkerId
    connection: Connection
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    cpu: float | None = None
    memory: int | None = None
    device: Device | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    slice: str | None = None
    replace_lost: ReplaceLost = ReplaceLost.PREEMPTIBLE

    @property
    def fingerprint(self) -> str:
        """A hash of the settings that override values of the probe."""
        import hashlib  # slow to import, and rarely needed

        attributes = sorted((key, repr(value.value)) for key, value in self.attributes.items())
        settings = repr((self.connection, attributes, self.cpu, self.memory, self.device))
        return hashlib.sha256(settings.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Mode(StrEnum):
    """Value of a setting that is automatic or off."""

    AUTO = "auto"
    OFF = "off"


class Notify(Struct, frozen=True, kw_only=True):
    """Notification channels. `command`: the words of a command to run on this machine. `webhook`: a URL to post to.

    The URL may be secret, so `repr` omits it.
    """

    command: tuple[str, ...] = ()
    webhook: str = ""

    def __repr__(self) -> str:
        return f"Notify({', '.join(self.channels)})"

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of the configured channels."""
        return ("command",) * bool(self.command) + ("webhook",) * bool(self.webhook)


class Defaults(Struct, frozen=True, kw_only=True):
    """Default values for jobs. The environments of hosts override `env`."""

    job: JobRequest = field(default_factory=JobRequest)
    env: Mapping[str, str] = field(default_factory=dict)


class ClusterConfig(Struct, frozen=True, kw_only=True):
    """The content of a `cluster.yaml`. `ssh`: the defaults of all connections.

    `loop` AUTO: commands that leave open jobs start the background loop. `autoscale` AUTO: the background loop and the
    cycles of cron create and delete slices.
    """

    path: Path
    name: str = "cluster"
    ssh: Connection = NOWHERE
    hosts: tuple[HostConfig, ...] = ()
    scale_groups: tuple[ScaleGroup, ...] = ()
    replace_lost: ReplaceLost = ReplaceLost.PREEMPTIBLE
    notify: Notify = field(default_factory=Notify)
    loop: Mode = Mode.AUTO
    autoscale: Mode = Mode.OFF
    limits: Limits = field(default_factory=Limits)
    defaults: Defaults = field(default_factory=Defaults)
    warnings: tuple[str, ...] = ()

    @property
    def scales(self) -> bool:
        """True if the cycles of the background loop and of cron create and delete slices."""
        return self.autoscale is Mode.AUTO and bool(self.scale_groups)

    @property
    def addable_devices(self) -> tuple[Device, ...]:
        """The devices of workers that scale groups can add."""
        return tuple(each.template.device for each in self.scale_groups if each.max_slices)


# Checks that need several fields, workers or slices together


_EIGHT_CHIPS = 8  # a VM with eight chips in the TPU API corresponds to two VMs with four chips on GKE


def check_region(attributes: dict[str, AttributeValue], setting: Setting) -> None:
    """Check that the region matches the zone, or add an omitted region. `setting`: the setting of the region."""
    zone = attributes.get(ZONE_ATTRIBUTE_KEY)
    derived = region_of_zone(str(zone.value)) if zone else ""
    if not derived:
        return
    region = attributes.setdefault(REGION_ATTRIBUTE_KEY, AttributeValue(derived))
    if region.value != derived:
        setting.problem(
            f"region {region.value!r} does not fit zone {str(zone)!r}", f"that zone is in {derived!r}"
        )


def check_host_count(tpu_type: str, hosts: int, setting: Setting) -> None:
    """Check that a slice has as many hosts as its type has VMs. Warn of an unknown type."""
    known = lookup(tpu_type)
    if known is None:
        setting.warn(f"TPU type {tpu_type} is unknown; assuming {count(hosts, 'VM')}")
    elif hosts != known.vms and not (known.chips_per_vm == _EIGHT_CHIPS and hosts == 2):
        setting.problem(
            f"{describe(tpu_type)} has {known.vms} hosts, not {hosts}",
            "list every VM of the slice, in order of worker index",
        )


def check_unique(noun: str, named: Iterable[tuple[str, Setting]]) -> None:
    """Report names that occur twice. `noun`: the kind of the named setting, such as `slice`, for the message."""
    first: dict[str, Setting] = {}
    for name, setting in named:
        if name in first:
            setting.problem(f"{noun} {name!r} already exists", f"first on line {first[name].node.line}")
        else:
            first[name] = setting


def check_hosts(found: Sequence[tuple[HostConfig, Setting]]) -> None:
    """Report workers with equal ids or hosts, and regions or zones that differ only in case."""
    check_unique("worker id", ((host.worker, setting) for host, setting in found))
    check_unique("host", ((_address(host.connection), setting) for host, setting in found))
    for key in (REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY):
        _report_differences_in_case(key, found)


def _address(connection: Connection) -> str:
    """Return host, port and jump host, because the same address behind different jump hosts may be two machines."""
    port = connection.port or 22
    host = connection.host.lower() + ("" if port == 22 else f" port {port}")
    return f"{host} via {connection.proxy_jump}" if connection.proxy_jump else host


def _report_differences_in_case(key: str, found: Sequence[tuple[HostConfig, Setting]]) -> None:
    spellings: dict[str, str] = {}
    for host, setting in found:
        value = host.attributes.get(key)
        if value is None:
            continue
        text = str(value)
        other = spellings.setdefault(text.casefold(), text)
        if other != text:
            spellings[text.casefold()] = text  # so that following hosts with this spelling cause no warning
            setting.warn(f"{key} {text!r} differs from {other!r} only in case; values are compared exactly")


_EXISTING = (SliceState.BOOTING, SliceState.READY)


def hosts_of_slices(slices: Mapping[str, Slice], config: ClusterConfig) -> dict[WorkerId, HostConfig]:
    """Return a HostConfig for each VM of the existing slices whose scale group is in cluster.yaml."""
    groups = {group.name: group for group in config.scale_groups}
    return {
        host.worker: host
        for each in slices.values()
        if each.state in _EXISTING and each.group in groups
        for host in _hosts(each, groups[each.group], config)
    }


def _hosts(each: Slice, group: ScaleGroup, config: ClusterConfig) -> list[HostConfig]:
    from iris_cli.core.lifecycle.slices import connections_of

    group = with_template(group, each.template)
    shared = slice_attributes(group)
    return [
        HostConfig(
            worker=worker,
            connection=connection,
            attributes={**shared, **_vm_attributes(each, index)},
            cpu=each.hosts[index].cpus or None,
            memory=each.hosts[index].memory or None,
            device=group.template.device,
            env=group.env,
            slice=each.name,
            replace_lost=config.replace_lost,
        )
        for index, (worker, connection) in enumerate(connections_of(each, group.connection).items())
    ]


def _vm_attributes(each: Slice, index: int) -> dict[str, AttributeValue]:
    gpus = ",".join(map(str, each.hosts[index].gpus))
    found: dict[str, str | int] = {
        keys.TPU_NAME_ATTRIBUTE_KEY: each.name,
        keys.TPU_WORKER_ID_ATTRIBUTE_KEY: index,
        keys.TPU_VM_COUNT_ATTRIBUTE_KEY: len(each.hosts),
        keys.ALLOCATION_ATTRIBUTE_KEY: each.allocation,
        keys.GPU_INDEXES_ATTRIBUTE_KEY: gpus,
    }
    return {key: AttributeValue(value) for key, value in found.items() if value != ""}
