"""The interface of providers of slices."""

import json
from collections.abc import Iterator
from typing import Protocol

from msgspec import structs

from iris_cli.core import ScaleGroup, count, describe, lookup, slice_attributes
from iris_cli.core.attributes import PREEMPTIBLE_ATTRIBUTE_KEY, REGION_ATTRIBUTE_KEY, TAINT_KEY_PREFIX
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


def instructions(group: ScaleGroup, slices: int) -> Iterator[str]:
    """Yield the lines of instructions for creating slices and adding them to `cluster.yaml`."""
    template = group.template
    what = count(slices, "preemptible slice" if template.preemptible else "slice")
    where = f" in {template.zone}" if template.zone else ""
    wanted = f"{what} of {describe(template.type)}{where}"
    yield f"scale group {group.name} has provider {template.provider}: create {wanted} yourself,"
    known = lookup(template.type)
    hosts = f"HOST-[0-{known.vms - 1}]" if known is not None and known.vms > 1 else "HOST"
    entry: dict[str, object] = {"name": "NAME", "type": template.type, "hosts": [hosts]}
    entry |= {"zone": template.zone} if template.zone else {}
    entry |= {PREEMPTIBLE_ATTRIBUTE_KEY: True} if template.preemptible else {}
    line = json.dumps(entry | _declared_attributes(group))  # JSON is valid YAML
    yield f"then add {'it' if slices == 1 else 'each'} under slices in cluster.yaml, with your NAME and HOST:"
    yield f"- {line}"


def _declared_attributes(group: ScaleGroup) -> dict[str, object]:
    """Return the keys of the entry for the attributes and taints that `cluster.yaml` declares for the group."""
    derived = slice_attributes(structs.replace(group, attributes={}))
    declared = {key: value.value for key, value in group.attributes.items() if key not in derived}
    region = declared.pop(REGION_ATTRIBUTE_KEY, None)  # derived from the zone, if there is one
    taints = [key for key in declared if key.startswith(TAINT_KEY_PREFIX)]
    attributes = {key: value for key, value in declared.items() if key not in taints}
    found = {
        REGION_ATTRIBUTE_KEY: region,
        "attributes": attributes,
        "taints": [key.removeprefix(TAINT_KEY_PREFIX) for key in taints],
    }
    return {key: value for key, value in found.items() if value}
