"""Slices that were made on demand: each from the decision to make it to the proof that nothing of it is left."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.model.scale_group import SliceTemplate
from iris_cli.core.structs import Record, Value

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
        """The ids of its VMs."""
        return tuple(WorkerId(f"{self.name}-{index}") for index in range(len(self.hosts)))

    @property
    def to_set_up(self) -> tuple[int, ...]:
        """The VMs that have not run its set-up command yet, by number."""
        return tuple(vm for vm in range(len(self.hosts)) if vm not in self.set_up) if self.setup else ()

    def expected(self, now: float, patience: float) -> bool:
        """Whether its VMs may be counted on, though they are no workers yet.

        A request that no provider has taken on for `patience` seconds is given up: others may serve meanwhile.
        """
        since = now - self.requested_at  # less than nothing where a clock was wrong
        in_vain = self.state is SliceState.REQUESTED and not -patience < since < patience
        return self.coming and not in_vain

    @property
    def coming(self) -> bool:
        """Whether its VMs are no workers yet, and will be."""
        return self.state in (SliceState.REQUESTED, SliceState.CREATING, SliceState.BOOTING)


class Keeper(Value, frozen=True, kw_only=True):
    """The state directory that looks after slices. `place` tells it from its copies, `where` tells people."""

    place: str
    where: str


def slice_name(group: str, owner: str, number: int) -> str:
    """The name of a slice, never used twice: whoever asks for it again asks for the same one.

    Clusters that share a cloud project are told apart by a piece of their random ids. A worker's name ends in its
    number there: `west-c0ff-1-0`.
    """
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
