"""What `cluster.yaml` says, as values. Defaults are filled in, slices are expanded to their hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, field

from iris_cli.config.reading import Place, Section
from iris_cli.core import NOWHERE, Connection, Device, JobRequest, Limits, ReplaceLost, ScaleGroup, WorkerId
from iris_cli.core.attributes import (
    PREEMPTIBLE_ATTRIBUTE_KEY,
    REGION_ATTRIBUTE_KEY,
    ZONE_ATTRIBUTE_KEY,
    AttributeValue,
    region_of_zone,
)
from iris_cli.core.topology import describe, lookup


class HostConfig(Struct, frozen=True, kw_only=True):
    """One worker. None, or an attribute that is missing, means: as the probe finds it.

    `memory` is in bytes, `cpu` in cores. `env` is the default environment of its tasks, `slice` the name of
    the slice that it is a member of.
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
        """Changes whenever something is written otherwise that lies over what a probe finds."""
        import hashlib  # slow to load, and seldom needed

        attributes = sorted((key, repr(value.value)) for key, value in self.attributes.items())
        said = repr((self.connection, attributes, self.cpu, self.memory, self.device))
        return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Mode(StrEnum):
    """Whether iris does something by itself."""

    AUTO = "auto"
    OFF = "off"


class Notify(Struct, frozen=True, kw_only=True):
    """Whom to tell what happens to jobs: an argument vector to run here, and a URL to post to, which may be secret."""

    command: tuple[str, ...] = ()
    webhook: str = ""

    def __repr__(self) -> str:
        return f"Notify({', '.join(self.channels)})"

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of the ways to tell that there are."""
        return ("command",) * bool(self.command) + ("webhook",) * bool(self.webhook)


class Defaults(Struct, frozen=True, kw_only=True):
    """What jobs get that say nothing of it. `env` lies beneath the environment of every host."""

    job: JobRequest = field(default_factory=JobRequest)
    env: Mapping[str, str] = field(default_factory=dict)


class ClusterConfig(Struct, frozen=True, kw_only=True):
    """A whole `cluster.yaml`. `ssh` holds the defaults of all connections, `warnings` are in words.

    `loop`: whether commands that leave open jobs start the background loop; `autoscale`: whether the loop and the
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
        """Whether cycles that nobody has typed create and delete slices."""
        return self.autoscale is Mode.AUTO and bool(self.scale_groups)

    @property
    def offered(self) -> tuple[Device, ...]:
        """The devices of workers that scale groups could add."""
        return tuple(Device("tpu", each.template.type) for each in self.scale_groups if each.max_slices)


# Checks across fields and across entries: each alone may be right, together they can't be meant.


_EIGHT_CHIPS = 8  # VMs of eight chips exist in the TPU API only; on GKE they are two of four


def region_and_zone(attributes: dict[str, AttributeValue], region_place: Place) -> None:
    """A region must be that of the zone; one that is left out is filled in from it."""
    zone = attributes.get(ZONE_ATTRIBUTE_KEY)
    derived = region_of_zone(str(zone.value)) if zone else ""
    if not derived:
        return
    region = attributes.setdefault(REGION_ATTRIBUTE_KEY, AttributeValue(derived))
    if region.value != derived:
        region_place.problem(
            f"region {region.value!r} does not fit zone {str(zone)!r}", f"that zone is in {derived!r}"
        )


def preemptible_as_template(
    attributes: dict[str, AttributeValue], place: Place, *, template_preemptible: bool
) -> None:
    """The word of a scale group's workers must be that of its slice template, which fills it in."""
    wanted = AttributeValue(template_preemptible)
    said = attributes.setdefault(PREEMPTIBLE_ATTRIBUTE_KEY, wanted)
    if said != wanted:
        place.problem(
            f"preemptible is {said} for the workers and {wanted} in slice_template",
            "set the same value in both",
        )


def host_count(tpu_type: str, hosts: int, place: Place) -> None:
    """A slice has as many hosts as its type has VMs. Types that aren't known pass with a warning."""
    known = lookup(tpu_type)
    if known is None:
        place.warn(f"TPU type {tpu_type} is unknown; assuming {hosts} VMs")
    elif hosts != known.vms and not (known.chips_per_vm == _EIGHT_CHIPS and hosts == 2):
        place.problem(
            f"{describe(tpu_type)} has {known.vms} hosts, not {hosts}",
            "list every VM of the slice, in order of worker index",
        )


def unique(what: str, named: Iterable[tuple[str, Place]]) -> None:
    """No two entries may have the same name."""
    first: dict[str, Place] = {}
    for name, place in named:
        if name in first:
            place.problem(f"{what} {name!r} already exists", f"first on line {first[name].node.line}")
        else:
            first[name] = place


def hosts(found: Sequence[tuple[HostConfig, Place]]) -> None:
    """What must hold among all workers, whichever entries they come from."""
    unique("worker id", ((host.worker, place) for host, place in found))
    unique("host", ((_address(host.connection), place) for host, place in found))
    for key in (REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY):
        _alike_but_for_case(key, found)


def limits(found: Limits, place: Section) -> None:
    if found.backoff_first > found.backoff_max:
        place.at("backoff_first").problem("backoff_first is longer than backoff_max")
    if found.scale_backoff_first > found.scale_backoff_max:
        place.at("scale_backoff_first").problem("scale_backoff_first is longer than scale_backoff_max")


def _address(connection: Connection) -> str:
    """Where a connection ends: the same address behind another jump host is another machine."""
    port = connection.port or 22
    host = connection.host.lower() + ("" if port == 22 else f" port {port}")
    return f"{host} via {connection.proxy_jump}" if connection.proxy_jump else host


def _alike_but_for_case(key: str, found: Sequence[tuple[HostConfig, Place]]) -> None:
    spellings: dict[str, str] = {}
    for host, place in found:
        value = host.attributes.get(key)
        if value is None:
            continue
        text = str(value)
        other = spellings.setdefault(text.casefold(), text)
        if other != text:
            spellings[text.casefold()] = text  # one warning per change of spelling, not per host
            place.warn(f"{key} {text!r} differs from {other!r} only in case; values are compared exactly")
