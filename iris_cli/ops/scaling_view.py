"""What is shown of scale groups: rows, without what fills them, which takes time to load."""

from __future__ import annotations

from msgspec import Struct, field


class MadeRow(Struct, frozen=True, kw_only=True):
    """One slice that was made on demand. `since_at`: since when it is in its state."""

    name: str
    group: str
    state: str
    since_at: float
    age: float = field(name="age_seconds")
    vms: int
    reason: str


class ScaleGroupRow(Struct, frozen=True, kw_only=True):
    """One scale group. `wanted`: slices that it is asked for now; `by_hand`: what a person is to do for that."""

    name: str
    type: str
    provider: str
    region: str
    preemptible: bool
    priority: int
    min_slices: int
    max_slices: int
    slices: tuple[MadeRow, ...]
    wanted: int
    backing_off: str
    by_hand: tuple[str, ...]


class UnmetRow(Struct, frozen=True, kw_only=True):
    """What waits for a slice that nobody makes, and why: a single task by its id, a gang by that of its job."""

    id: str
    reason: str
    text: str


class Scaling(Struct, frozen=True, kw_only=True):
    """All scale groups in the order in which they are tried, and what none of them serves."""

    groups: tuple[ScaleGroupRow, ...]
    unmet: tuple[UnmetRow, ...]


NO_SCALING = Scaling(groups=(), unmet=())
