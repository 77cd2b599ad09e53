"""Constraints: what a job asks of a worker's attributes, the only language of placement.

The whole vocabulary is imported from here; the modules behind it only keep the files short.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import MsgspecError, json

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
from iris_cli.core.constraints.canonical import (
    NormalizedConstraints,
    contradiction_in,
    merge_constraints,
    normalize_constraints,
    preemptible_constraint,
    preemptible_preference_from_constraints,
    region_constraint,
    required_regions_from_constraints,
)
from iris_cli.core.constraints.types import Constraint, ConstraintMode, ConstraintOp
from iris_cli.core.constraints.worker_attributes import WorkerAttributes, build_worker_attributes
from iris_cli.core.structs import plain

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
    return _ENCODER.encode(list(constraints)).decode("utf-8")


def constraints_from_json(raw: str) -> list[Constraint]:
    """Read what `constraints_to_json` wrote. Raises ValueError for anything else."""
    if len(raw) > _JSON_LIMIT:
        raise ValueError(f"constraints are longer than {_JSON_LIMIT} characters")
    try:
        return _DECODER.decode(raw)
    except RecursionError:
        raise ValueError("constraints are nested too deeply") from None
    except MsgspecError as error:
        raise ValueError(str(error)) from error


_ENCODER = json.Encoder(enc_hook=plain)
_DECODER = json.Decoder(list[Constraint], dec_hook=lambda _, content: AttributeValue(content))
