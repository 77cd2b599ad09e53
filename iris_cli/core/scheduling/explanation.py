"""What there is to say about an entry that waits, as data."""

from __future__ import annotations

from msgspec import Struct

from iris_cli.core.constraints import Constraint
from iris_cli.core.ids import WorkerId
from iris_cli.core.scheduling.ahead import Taker
from iris_cli.core.scheduling.reasons import Reason, ReasonKind
from iris_cli.core.scheduling.what_if import Change


class ConstraintCount(Struct, frozen=True, kw_only=True):
    """Of `workers` with a compatible device, `satisfied` satisfy the constraint."""

    constraint: Constraint
    satisfied: int
    workers: int


class DimensionCount(Struct, frozen=True, kw_only=True):
    """Of `workers` with a compatible device, `lacking` did not have `need` free when the cycle began.

    In thousandths of a core, bytes or GPUs; of chips 1 stands for all those of a worker.
    """

    kind: ReasonKind
    need: int
    lacking: int
    workers: int


class NearMiss(Struct, frozen=True, kw_only=True):
    """A worker or group that almost serves, the first kind that speaks against it, and who lacks it.

    `text` says in words what is lacking: `2 cores free, not 4 cores`.
    """

    name: str
    kind: ReasonKind
    lacking: tuple[WorkerId, ...]
    text: str = ""


class Explanation(Struct, frozen=True, kw_only=True):
    """All that the cycle knows about what an entry waits for.

    `refused`: for each kind, how many workers it refuses of those left by the kinds before. For gangs,
    `groups_found` have workers with a compatible device; `largest` is the name and size of the largest.
    `near_misses`: the nearest first. `behind`: who took room in this cycle before its turn. `hints`: slips of the
    pen among its constraints, as far as one can guess. `change`: the single change that would place it, as a
    trial has shown.
    """

    reasons: tuple[Reason, ...]
    workers: int = 0
    equipped: int = 0
    constraints: tuple[ConstraintCount, ...] = ()
    dimensions: tuple[DimensionCount, ...] = ()
    refused: tuple[tuple[ReasonKind, int], ...] = ()
    group_by: str = ""
    groups_found: int = 0
    largest: tuple[str, int] | None = None
    near_misses: tuple[NearMiss, ...] = ()
    behind: tuple[Taker, ...] = ()
    hints: tuple[str, ...] = ()
    change: Change | None = None
