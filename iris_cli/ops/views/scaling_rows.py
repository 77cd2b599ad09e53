"""Rows about scale groups. The module `scale_status`, which is slow to import, creates the rows."""

from msgspec import Struct, field


class CreatedSliceRow(Struct, frozen=True, kw_only=True):
    """One slice that was created on demand. `since_at`: the time at which the slice entered its state."""

    name: str
    group: str
    state: str
    since_at: float
    age: float = field(name="age_seconds")
    vms: int
    reason: str


class ScaleGroupRow(Struct, frozen=True, kw_only=True):
    """One scale group. `wanted`: number of slices that a pass would request now. `by_hand`: steps for the operator."""

    name: str
    type: str
    provider: str
    region: str
    preemptible: bool
    priority: int
    min_slices: int
    max_slices: int
    slices: tuple[CreatedSliceRow, ...]
    wanted: int
    backing_off: str
    by_hand: tuple[str, ...]


class UnmetRow(Struct, frozen=True, kw_only=True):
    """A task that no scale group serves, and the reason. `id` is the task, or the job of a gang."""

    id: str
    reason: str
    text: str


class Scaling(Struct, frozen=True, kw_only=True):
    """All scale groups, in the order in which iris tries them for a task, and the demand that no group serves."""

    groups: tuple[ScaleGroupRow, ...]
    unmet: tuple[UnmetRow, ...]


NO_SCALING = Scaling(groups=(), unmet=())
