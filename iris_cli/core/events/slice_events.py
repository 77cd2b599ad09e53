"""The events of slices that are made on demand."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from iris_cli.core.events.event import Event
from iris_cli.core.ids import JobId
from iris_cli.core.model.slice import SliceHost, SliceTemplate


class SliceRequested(Event, frozen=True, kw_only=True):
    """A slice is to be made, by this name and no other; `wanted_by` are jobs that it was asked for."""

    slice: str
    group: str
    template: SliceTemplate
    setup: str = ""
    wanted_by: tuple[JobId, ...] = ()


class SliceCreated(Event, frozen=True, kw_only=True):
    """The provider makes it."""

    slice: str


class SliceRefused(Event, frozen=True, kw_only=True):
    """The provider will not make it: there is nothing to delete."""

    slice: str
    error: str


class SliceStarted(Event, frozen=True, kw_only=True):
    """The provider says that it is there; its VMs are probed before they are given anything."""

    slice: str
    hosts: tuple[SliceHost, ...]
    incarnation: str = ""


class SliceSetUp(Event, frozen=True, kw_only=True):
    """The set-up of a slice ended on one VM. If it failed, `error` says why, `log_tail` how its output ends."""

    slice: str
    vm: int
    error: str = ""
    log_tail: str = ""


class SliceJoined(Event, frozen=True, kw_only=True):
    """Every VM of it has passed its probe, and is set up."""

    slice: str


class SliceDeletionRequested(Event, frozen=True, kw_only=True):
    """A slice is to be deleted. `group` and `template` of a slice of ours that the log does not know."""

    slice: str
    reason: str
    group: str = ""
    template: SliceTemplate | None = None


class SliceDeleted(Event, frozen=True, kw_only=True):
    """Nothing is left of it: its provider lists it no more."""

    slice: str


class SlicesAdopted(Event, frozen=True, kw_only=True):
    """Slices are managed from this `place` (for people: `where`) alone; `counted`: numbers beyond those of the log."""

    place: str
    where: str = ""
    counted: Mapping[str, int] = field(default_factory=dict)


class ScaleGroupBackedOff(Event, frozen=True, kw_only=True):
    """Nothing more is made in a scale group before `until`. `failures` in a row are the whole state of that."""

    group: str
    error: str
    failures: int
    until: float
