"""The port to whoever makes slices. All implementations pass one conformance suite."""

from __future__ import annotations

from typing import Protocol

from iris_cli.core.messages.cloud import CloudSlice, Refusal
from iris_cli.core.model.slice import ScaleGroup


class ProviderError(Exception):
    """A provider said no, or nothing (`Refusal.UNANSWERED`: it may have done what it was asked)."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal
        self.message = message


class SliceProvider(Protocol):
    """The slices of one owner in one place.

    Every call may be made again at any time, by several processes at once, also after one of them was killed in it.
    None waits until something is made or gone: an operation that takes long shows in the list. All raise
    ProviderError.
    """

    def list(self) -> tuple[CloudSlice, ...]:
        """Every slice of the owner in this place, whatever became of it: all pages, or an error.

        One that is asked for and could not be made is listed as FAILED until it is deleted, or not at all.
        """
        ...

    def create(self, name: str, group: ScaleGroup) -> None:
        """Take on a request for a slice. That there is one of that name and owner already is fine.

        One of another owner is refused (`Refusal.INVALID`), and never touched.
        """
        ...

    def delete(self, name: str) -> None:
        """Take on the request to delete a slice, whatever state it is in. That there is none is fine."""
        ...
