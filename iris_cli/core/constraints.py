"""Constraints: what a job asks of a worker's attributes, the only language of placement.

The whole vocabulary is imported from here; the modules behind it only keep the files short.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from iris_cli.core.attributes import (
    DEVICE_TYPE_ATTRIBUTE_KEY,
    DEVICE_VARIANT_ATTRIBUTE_KEY,
    PREEMPTIBLE_ATTRIBUTE_KEY,
    REGION_ATTRIBUTE_KEY,
    SCALE_GROUP_ATTRIBUTE_KEY,
    TAINT_KEY_PREFIX,
    TPU_NAME_ATTRIBUTE_KEY,
    TPU_TOPOLOGY_ATTRIBUTE_KEY,
    TPU_VM_COUNT_ATTRIBUTE_KEY,
    TPU_WORKER_ID_ATTRIBUTE_KEY,
    ZONE_ATTRIBUTE_KEY,
    AttributeValue,
    RawValue,
    region_of_zone,
    scalar_of,
    taint_key,
    wrap,
)
from iris_cli.core.canonical import (
    NormalizedConstraints,
    contradiction_in,
    merge_constraints,
    normalize_constraints,
    preemptible_constraint,
    preemptible_preference_from_constraints,
    region_constraint,
    required_regions_from_constraints,
)
from iris_cli.core.constraint_types import Constraint, ConstraintMode, ConstraintOp
from iris_cli.core.unique_keys import unique_keys
from iris_cli.core.worker_attributes import WorkerAttributes, build_worker_attributes

__all__ = [
    "DEVICE_TYPE_ATTRIBUTE_KEY",
    "DEVICE_VARIANT_ATTRIBUTE_KEY",
    "PREEMPTIBLE_ATTRIBUTE_KEY",
    "REGION_ATTRIBUTE_KEY",
    "SCALE_GROUP_ATTRIBUTE_KEY",
    "TAINT_KEY_PREFIX",
    "TPU_NAME_ATTRIBUTE_KEY",
    "TPU_TOPOLOGY_ATTRIBUTE_KEY",
    "TPU_VM_COUNT_ATTRIBUTE_KEY",
    "TPU_WORKER_ID_ATTRIBUTE_KEY",
    "ZONE_ATTRIBUTE_KEY",
    "AttributeValue",
    "Constraint",
    "ConstraintMode",
    "ConstraintOp",
    "NormalizedConstraints",
    "RawValue",
    "WorkerAttributes",
    "build_worker_attributes",
    "constraints_from_json",
    "constraints_to_json",
    "contradiction_in",
    "merge_constraints",
    "normalize_constraints",
    "preemptible_constraint",
    "preemptible_preference_from_constraints",
    "region_constraint",
    "region_of_zone",
    "required_regions_from_constraints",
    "scalar_of",
    "taint_key",
    "wrap",
]

_JSON_LIMIT = 1 << 20  # characters


def constraints_to_json(constraints: Iterable[Constraint]) -> str:
    """The constraints as a JSON array in which the type of every value is kept."""
    return json.dumps([_as_dict(each) for each in constraints], separators=(",", ":"), allow_nan=False)


_OBJECT = unique_keys(lambda: ValueError("a constraint has the same field twice"))


def constraints_from_json(raw: str) -> list[Constraint]:
    """Read what `constraints_to_json` wrote. Raises ValueError for anything else."""
    if len(raw) > _JSON_LIMIT:
        raise ValueError(f"constraints are longer than {_JSON_LIMIT} characters")
    try:
        entries = json.loads(raw, object_pairs_hook=_OBJECT, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("constraints are nested too deeply") from None
    if not isinstance(entries, list):
        raise ValueError("constraints are a JSON array")
    return [_from_dict(entry) for entry in entries]


def _as_dict(constraint: Constraint) -> dict[str, object]:
    entry: dict[str, object] = {"key": constraint.key, "op": constraint.op.value}
    if constraint.value is not None:
        entry["value"] = constraint.value.value
    if constraint.values:
        entry["values"] = [each.value for each in constraint.values]
    if not constraint.required:
        entry["mode"] = constraint.mode.value
    return entry


def _from_dict(entry: object) -> Constraint:
    if not isinstance(entry, dict):
        raise ValueError("a constraint is a JSON object")
    unknown = entry.keys() - {"key", "op", "value", "values", "mode"}
    if unknown:
        raise ValueError(f"unknown field of a constraint: {min(unknown)!r}")
    if not {"key", "op"} <= entry.keys() or not isinstance(entry.get("values", []), list):
        raise ValueError("a constraint needs 'key' and 'op', and its 'values' are a list")
    if not isinstance(entry["key"], str):
        raise ValueError("the key of a constraint is text")
    return Constraint(**entry)


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} is not a value")
