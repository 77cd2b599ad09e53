"""The port for providers of slices. All implementations pass one conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from iris_cli.core import ScaleGroup, count, describe, lookup
from iris_cli.core.messages.cloud import CloudSlice, Refusal


class ProviderError(Exception):
    """A provider refused a request or did not answer (`Refusal.UNANSWERED`: it may have carried it out)."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal
        self.message = message


class SliceProvider(Protocol):
    """The slices of one owner in one scope.

    Every call can be repeated at any time, by several processes at once and after one was killed during it. No call
    waits until a slice is created or deleted: the list shows the progress. All raise ProviderError.
    """

    def list(self) -> tuple[CloudSlice, ...]:
        """Return all slices of the owner in this scope, in any state: all pages, or an error.

        A slice whose creation failed is listed as FAILED until it is deleted, or not at all.
        """
        ...

    def create(self, name: str, group: ScaleGroup) -> None:
        """Request a slice. An existing one with that name and owner is no error.

        A slice of another owner is refused (`Refusal.INVALID`) and never touched.
        """
        ...

    def delete(self, name: str) -> None:
        """Request the deletion of a slice in any state. A missing slice is no error."""
        ...


# Slices created by a person: what is needed, and the entry for `cluster.yaml`.


def instructions(group: ScaleGroup, slices: int) -> Iterator[str]:
    """Yield the instructions, line by line."""
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
