"""Rows about scale groups, without the code that fills them, which is slow to load."""

from __future__ import annotations

from msgspec import Struct, field


class MadeRow(Struct, frozen=True, kw_only=True):
    """One slice that was created on demand. `since_at`: when it entered its state."""

    name: str
    group: str
    state: str
    since_at: float
    age: float = field(name="age_seconds")
    vms: int
    reason: str


class ScaleGroupRow(Struct, frozen=True, kw_only=True):
    """One scale group. `wanted`: slices requested now; `by_hand`: instructions for an operator."""

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
    """A task, or a gang by its job, that no scale group serves, and the reason."""

    id: str
    reason: str
    text: str


class Scaling(Struct, frozen=True, kw_only=True):
    """All scale groups in the order in which they are tried, and the demand that no group serves."""

    groups: tuple[ScaleGroupRow, ...]
    unmet: tuple[UnmetRow, ...]


NO_SCALING = Scaling(groups=(), unmet=())
