"""The port to whoever makes slices. All implementations pass one conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from iris_cli.core import ScaleGroup, count, describe, lookup
from iris_cli.core.messages.cloud import CloudSlice, Refusal


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


# Slices that a person makes: what is needed, and what to write once they are there.


def instructions(group: ScaleGroup, slices: int) -> Iterator[str]:
    """What to do, line by line."""
    template = group.template
    what = count(slices, "preemptible slice" if template.preemptible else "slice")
    where = f" in {template.zone}" if template.zone else ""
    yield f"{group.name}: make {what} of {describe(template.type)}{where},"
    known = lookup(template.type)
    hosts = f"[HOST-[0-{known.vms - 1}]]" if known is not None and known.vms > 1 else "[HOST]"
    entry = f"{{name: NAME, type: {template.type}, hosts: {hosts}"
    entry += f", zone: {template.zone}" if template.zone else ""
    entry += ", preemptible: true" if template.preemptible else ""
    yield f"then write each under slices in cluster.yaml: - {entry}}}"
