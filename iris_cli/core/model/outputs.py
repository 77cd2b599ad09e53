"""What is still on a worker of attempts that have ended: their output and the other files, until these are reaped."""

from __future__ import annotations

from msgspec import Struct

from iris_cli.core.ids import AttemptId

BATCH = 32
"""The most attempts that are reaped in one call."""

PULLED = "iris-out"
"""Default directory of files fetched from workers; a directory of this name is never shipped."""


class Outputs(Struct, frozen=True, kw_only=True):
    """Attempts in the order in which they ended, and when a worker was last asked to reap some of them.

    They stand in batches, so that adding one copies few of them, however many there are.
    """

    full: tuple[tuple[AttemptId, ...], ...] = ()
    last: tuple[AttemptId, ...] = ()
    asked_at: float | None = None

    @property
    def first(self) -> tuple[AttemptId, ...]:
        """The oldest ones, no more than are reaped at a time."""
        return self.full[0] if self.full else self.last

    @property
    def attempts(self) -> tuple[AttemptId, ...]:
        """All of them."""
        return (*(attempt for batch in self.full for attempt in batch), *self.last)

    def plus(self, attempt: AttemptId) -> Outputs:
        """With one more, which has ended last."""
        if len(self.last) < BATCH:
            return Outputs(full=self.full, last=(*self.last, attempt), asked_at=self.asked_at)
        return Outputs(full=(*self.full, self.last), last=(attempt,), asked_at=self.asked_at)

    def minus(self, count: int) -> Outputs:
        """Without so many of the `first` ones."""
        rest = self.first[count:]
        if not self.full:
            return Outputs(last=rest, asked_at=self.asked_at)
        full = (*((rest,) if rest else ()), *self.full[1:])
        return Outputs(full=full, last=self.last, asked_at=self.asked_at)


NO_OUTPUTS = Outputs()
