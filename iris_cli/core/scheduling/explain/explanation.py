"""What there is to say about an entry that waits, as data."""

from __future__ import annotations

from msgspec import Struct

from iris_cli.core import Constraint, WorkerId
from iris_cli.core.scheduling.explain.ahead import Taker
from iris_cli.core.scheduling.explain.what_if import Change
from iris_cli.core.scheduling.reasons import Reason, ReasonKind


class ConstraintCount(Struct, frozen=True, kw_only=True):
    """Of `workers` with a compatible device, `satisfied` satisfy the constraint."""

    constraint: Constraint
    satisfied: int
    workers: int


class DimensionCount(Struct, frozen=True, kw_only=True):
    """Of `workers` with a compatible device, `lacking` did not have `need` free when the cycle began.

    In thousandths of a core, bytes or GPUs; for chips, 1 stands for all chips of a worker.
    """

    kind: ReasonKind
    need: int
    lacking: int
    workers: int


class NearMiss(Struct, frozen=True, kw_only=True):
    """A worker or group that almost fits, the first kind of reason against it, and the workers it applies to.

    `text` says what is lacking: `2 cores free, not 4 cores`.
    """

    name: str
    kind: ReasonKind
    lacking: tuple[WorkerId, ...]
    text: str = ""


class Explanation(Struct, frozen=True, kw_only=True):
    """Everything that the cycle knows about why a task or a gang is pending.

    `refused`: the number of workers that each kind of reason rejects, of those that the kinds before accept. For
    gangs, `groups_found` counts the groups with a compatible device, and `largest` is the name and size of the
    largest. `near_misses` begin with the nearest. `behind`: jobs that took room earlier in this cycle. `hints`:
    probable typing errors in the constraints. `change`: the one change that would place it, found by a trial.
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
