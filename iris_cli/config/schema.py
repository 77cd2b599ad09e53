"""What `cluster.yaml` says, as values. Defaults are filled in, slices are expanded to their hosts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, field

from iris_cli.core.attributes import AttributeValue
from iris_cli.core.ids import WorkerId
from iris_cli.core.model.job import JobRequest, ReplaceLost
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.slice import ScaleGroup
from iris_cli.core.model.worker import NOWHERE, Connection
from iris_cli.core.resources import Device


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
