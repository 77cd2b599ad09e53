"""Node selection for pods: selectors for TPUs, and affinity for constraints that match a node label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from iris_cli.core.constraints import (
    PREEMPTIBLE_ATTRIBUTE_KEY,
    REGION_ATTRIBUTE_KEY,
    ZONE_ATTRIBUTE_KEY,
    Constraint,
    ConstraintOp,
    preemptible_preference_from_constraints,
)
from iris_cli.core.model.job import Job
from iris_cli.ops.export.counterparts import ExportNote, lost_constraints
from iris_cli.ops.export.gke_tpu import GkeTpu
from iris_cli.ops.export.names import is_label_value

_LABELS: Mapping[str, str] = {
    REGION_ATTRIBUTE_KEY: "topology.kubernetes.io/region",
    ZONE_ATTRIBUTE_KEY: "topology.kubernetes.io/zone",
}
_SPOT = "cloud.google.com/gke-spot"
_OPERATORS = {ConstraintOp.EQ: "In", ConstraintOp.IN: "In", ConstraintOp.NE: "NotIn"}


def selector(tpu: GkeTpu | None) -> dict[str, str]:
    """Return the labels that GKE gives the nodes of a TPU slice; {} without a TPU."""
    if tpu is None:
        return {}
    return {
        "cloud.google.com/gke-tpu-accelerator": tpu.accelerator,
        "cloud.google.com/gke-tpu-topology": tpu.topology,
    }


def affinity(job: Job) -> dict[str, Any]:
    """Return the node affinity for required constraints on region, zone and preemptible; {} if there are none."""
    terms = [*_terms(job)]
    if not terms:
        return {}
    required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _terms(job: Job) -> Iterator[dict[str, Any]]:
    for each in filter(_is_exported, job.constraints):
        if each.key in _LABELS:
            values = [str(value.value) for value in each.operands]
            yield {"key": _LABELS[each.key], "operator": _OPERATORS[each.op], "values": values}
    spot = preemptible_preference_from_constraints(job.constraints)
    if spot is not None:
        yield {"key": _SPOT, "operator": "In" if spot else "NotIn", "values": ["true"]}


def notes(job: Job) -> list[ExportNote]:
    """Return a note on each constraint without a matching node label."""
    return lost_constraints(each for each in job.constraints if not _is_exported(each))


def _is_exported(constraint: Constraint) -> bool:
    if not constraint.required:
        return False
    if constraint.key == PREEMPTIBLE_ATTRIBUTE_KEY:
        return True
    known = constraint.key in _LABELS and constraint.op in _OPERATORS
    return known and all(is_label_value(str(value.value)) for value in constraint.operands)
