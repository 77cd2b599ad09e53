"""Reasons why tasks and gangs are pending. Each reason has a kind, a text and numbers."""

from enum import StrEnum

from msgspec import Struct

from iris_cli.core.ids import JobId, TaskId

WaitingKey = TaskId | JobId
"""The key of a pending task or gang: the id of a task outside a gang, or the id of a gang's job."""


def job_of(key: WaitingKey) -> JobId:
    return key.job if isinstance(key, TaskId) else key


class ReasonKind(StrEnum):
    """Kind of a reason, in order of precedence. A worker rejected for several reasons counts under the first."""

    INVALID = "invalid"
    NO_SUCH_DEVICE = "no_such_device"
    CONSTRAINT = "constraint"
    TAINT = "taint"
    GROUP_SHAPE = "group_shape"
    UNHEALTHY = "unhealthy"
    COOLDOWN = "cooldown"
    CHIPS = "chips"
    GPUS = "gpus"
    MEMORY = "memory"
    CPU = "cpu"
    TIME_LEFT = "time_left"
    REGION = "region"
    SECRET = "secret"  # noqa: S105  # a word of the vocabulary, not a password
    AFTER = "after"
    HELD = "held"
    THROTTLED = "throttled"
    STOPPING = "stopping"
    RESERVED = "reserved"
    BEHIND = "behind"

    @property
    def rank(self) -> int:
        return _RANK[self]


BUSY_KINDS = frozenset({ReasonKind.CHIPS, ReasonKind.GPUS, ReasonKind.MEMORY, ReasonKind.CPU})
"""Kinds for which live attempts on the worker may be the reason."""

_RANK = {kind: rank for rank, kind in enumerate(ReasonKind)}


class Reason(Struct, frozen=True, kw_only=True):
    """One reason, as a text and in numbers.

    `need` and `have` are in the unit of the kind: thousandths of a core, bytes, GPUs, workers with free chips; for the
    shape of a gang, workers or groups. `refused` is the number of workers (for a gang: groups) rejected for this
    reason.
    """

    kind: ReasonKind
    text: str
    need: int = 0
    have: int = 0
    refused: int = 0

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"
