"""Slices that a person makes: what is needed, and what to write once they are there."""

from __future__ import annotations

from collections.abc import Iterator

from iris_cli.core.model.slice import ScaleGroup
from iris_cli.core.topology import describe, lookup
from iris_cli.core.units import count


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
