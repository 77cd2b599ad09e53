"""What jobs need beside workers, and what of it is not to be had where the scheduler runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from iris_cli.core.ids import JobId


class Missing(Struct, frozen=True, kw_only=True):
    """Open jobs that can't start from this machine.

    `secrets`: those that can't be read, each with the reason; `files`: the files that are gone, in words.
    """

    secrets: Mapping[JobId, Sequence[str]] = field(default_factory=dict)
    files: Mapping[JobId, str] = field(default_factory=dict)

    @property
    def jobs(self) -> frozenset[JobId]:
        """All of them."""
        return frozenset((*self.secrets, *self.files))


NOTHING_MISSING = Missing()
