"""The interface of providers of slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from iris_cli.core import ScaleGroup, count, describe, lookup
from iris_cli.core.messages.cloud import CloudSlice, Refusal


class ProviderError(Exception):
    """A provider refused a request, or did not answer. After `Refusal.UNANSWERED` the request may have taken effect."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal
        self.message = message


class SliceProvider(Protocol):
    """The slices of an owner in a scope. An owner is a cluster. A scope is, for example, a project and a zone.

    Calls are idempotent, even if several processes call at the same time, or if a process is killed. No call waits
    until a slice is created or deleted. All calls raise ProviderError.
    """

    def list(self) -> tuple[CloudSlice, ...]:
        """Return all slices of the owner in this scope, in any state.

        A slice whose creation failed is FAILED until it is deleted, unless the provider omits such slices.
        """
        ...

    def create(self, name: str, group: ScaleGroup) -> None:
        """Request a slice, unless the owner has it. Raises ProviderError (INVALID) if another owner has that name."""
        ...

    def delete(self, name: str) -> None:
        """Request the deletion of a slice in any state. Do nothing if the slice does not exist."""
        ...


# Slices that the operator creates


def instructions(group: ScaleGroup, slices: int) -> Iterator[str]:
    """Yield the lines of instructions for creating slices and adding them to `cluster.yaml`."""
    template = group.template
    what = count(slices, "preemptible slice" if template.preemptible else "slice")
    where = f" in {template.zone}" if template.zone else ""
    yield f"create {what} of {describe(template.type)}{where} by hand for group {group.name},"
    known = lookup(template.type)
    hosts = f"[HOST-[0-{known.vms - 1}]]" if known is not None and known.vms > 1 else "[HOST]"
    entry = f"{{name: NAME, type: {template.type}, hosts: {hosts}"
    entry += f", zone: {template.zone}" if template.zone else ""
    entry += ", preemptible: true" if template.preemptible else ""
    yield f"then add {'it' if slices == 1 else 'each'} to slices in cluster.yaml: - {entry}}}"
