"""The events of slices that are created on demand."""

from collections.abc import Mapping

from msgspec import field

from iris_cli.core import JobId, SliceHost, SliceTemplate
from iris_cli.core.events import Event


class SliceRequested(Event, frozen=True, kw_only=True):
    """A slice with this unique name will be requested. `wanted_by` are the jobs that need it."""

    slice: str
    group: str
    template: SliceTemplate
    setup: str = ""
    wanted_by: tuple[JobId, ...] = ()


class SliceCreated(Event, frozen=True, kw_only=True):
    """The provider is creating the slice."""

    slice: str


class SliceRefused(Event, frozen=True, kw_only=True):
    """The provider will not create the slice, so there is nothing to delete."""

    slice: str
    error: str


class SliceStarted(Event, frozen=True, kw_only=True):
    """The provider reports the slice ready. Its VMs get no tasks before their first probes."""

    slice: str
    hosts: tuple[SliceHost, ...]
    incarnation: str = ""


class SliceReported(Event, frozen=True, kw_only=True):
    """The provider's remark about the slice, or the end of its time limit, has changed."""

    slice: str
    remark: str = ""
    ends_at: float | None = None


class SliceSetUp(Event, frozen=True, kw_only=True):
    """The set-up on one VM of a slice ended. After a failure, `log_tail` is the end of its output."""

    slice: str
    vm: int
    error: str = ""
    log_tail: str = ""


class SliceJoined(Event, frozen=True, kw_only=True):
    """Every VM of the slice has passed its probe and is set up."""

    slice: str


class SliceDeletionRequested(Event, frozen=True, kw_only=True):
    """A slice will be deleted. `group` and `template` are set if no earlier event requested this slice."""

    slice: str
    reason: str
    group: str = ""
    template: SliceTemplate | None = None


class SliceDeleted(Event, frozen=True, kw_only=True):
    """The slice is gone: its provider no longer lists it."""

    slice: str


class SlicesAdopted(Event, frozen=True, kw_only=True):
    """From now on only the state directory with the id `place` and the path `where` manages slices.

    `counted`: for each scale group, the highest slice number that another state directory has used.
    """

    place: str
    where: str = ""
    counted: Mapping[str, int] = field(default_factory=dict)


class ScaleGroupBackedOff(Event, frozen=True, kw_only=True):
    """No slice is created in the scale group before `until`. `failures` counts the consecutive failures."""

    group: str
    error: str
    failures: int
    until: float
