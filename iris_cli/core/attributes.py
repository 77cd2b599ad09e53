"""The keys and values of worker attributes, and the attributes that result from a probe and the configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache, total_ordering
from typing import Final, NoReturn

from iris_cli.core.text import pattern
from iris_cli.core.topology import canonical_type, lookup
from iris_cli.errors import UsageError

TPU_NAME_ATTRIBUTE_KEY: Final = "tpu-name"
TPU_WORKER_ID_ATTRIBUTE_KEY: Final = "tpu-worker-id"  # int, 0-based
TPU_TOPOLOGY_ATTRIBUTE_KEY: Final = "tpu-topology"  # the accelerator type, such as v5litepod-16
TPU_VM_COUNT_ATTRIBUTE_KEY: Final = "tpu-vm-count"  # int
DEVICE_TYPE_ATTRIBUTE_KEY: Final = "device-type"  # cpu, gpu or tpu
DEVICE_VARIANT_ATTRIBUTE_KEY: Final = "device-variant"
REGION_ATTRIBUTE_KEY: Final = "region"
ZONE_ATTRIBUTE_KEY: Final = "zone"
PREEMPTIBLE_ATTRIBUTE_KEY: Final = "preemptible"  # "true" or "false"
SCALE_GROUP_ATTRIBUTE_KEY: Final = "scale-group"
ALLOCATION_ATTRIBUTE_KEY: Final = "slurm-job"  # the Slurm job whose allocation the worker belongs to
CGROUP_OF_JOB_ATTRIBUTE_KEY: Final = "slurm-cgroup"  # the Slurm job in whose cgroup the probe ran
GPU_INDEXES_ATTRIBUTE_KEY: Final = "gpu-indexes"  # the granted GPUs by their numbers on the node: "2,3"
WORKER_ID_ATTRIBUTE_KEY: Final = "worker-id"  # the worker's own id, always text
TAINT_KEY_PREFIX: Final = "taint:"

RawValue = str | int | float | bool
"""Types of raw attribute values. A boolean becomes the text `true` or `false`."""

_INTEGER = pattern(r"[-+]?(0|[1-9][0-9]{0,999})")
_DECIMAL = pattern(r"[-+]?((0|[1-9][0-9]{0,999})(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,9})?")
_TOO_LARGE = 10**1000  # Python can't print integers from 10**4300 on
_TYPE_WORDS = {str: "text", int: "integer", float: "decimal"}


@total_ordering
class AttributeValue:
    """One attribute value. `1`, `"1"` and `1.0` are three different values, also as keys of a dict.

    Raises ValueError for NaN, infinities, integers of more than 1000 digits and anything that is not a str, int,
    float or bool. Ordering two values of different types raises TypeError.
    """

    __slots__ = ("value",)
    value: str | int | float

    def __init__(self, value: RawValue) -> None:
        object.__setattr__(self, "value", _plain(value))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("an attribute value can't be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("an attribute value can't be changed")

    def __reduce__(self) -> tuple[type[AttributeValue], tuple[str | int | float]]:
        return AttributeValue, (self.value,)

    def __repr__(self) -> str:
        return f"AttributeValue(value={self.value!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AttributeValue):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: AttributeValue) -> bool:
        if not isinstance(other, AttributeValue):
            return NotImplemented
        left, right = self.value, other.value
        if type(left) is not type(right):
            raise TypeError(f"{self.type_word} {left!r} and {other.type_word} {right!r} have no order")
        return left < right  # type: ignore[operator]  # both are of one type

    def __str__(self) -> str:
        return str(self.value)

    @property
    def is_number(self) -> bool:
        return not isinstance(self.value, str)

    @property
    def type_word(self) -> str:
        """The type for messages about a type mismatch: `text`, `integer` or `decimal`."""
        return _TYPE_WORDS[type(self.value)]


def int_attribute(attributes: Mapping[str, AttributeValue], key: str) -> int | None:
    """Return an integer attribute; None if it is missing or no integer."""
    value = attributes.get(key)
    return value.value if value is not None and isinstance(value.value, int) else None


def _plain(value: object) -> str | int | float:
    """Return a plain str, int or float, because values of a subclass (such as enum members) would have another type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if abs(value) >= _TOO_LARGE:
            raise ValueError("an attribute value has 1000 digits at most")
        return int.__int__(value)
    if not isinstance(value, float):
        raise ValueError(f"an attribute value is text or a number, not {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"an attribute value must be finite, not {value}")
    return float.__float__(value) + 0.0  # -0.0 equals 0.0 but prints differently


@lru_cache(maxsize=1 << 14, typed=True)
def interned(value: RawValue) -> AttributeValue:
    """Return an AttributeValue, the same object for equal values: many workers have the same attributes."""
    return AttributeValue(value)


def wrap(value: AttributeValue | RawValue) -> AttributeValue:
    """Return a raw value as an AttributeValue; an AttributeValue unchanged. Raises ValueError."""
    return value if isinstance(value, AttributeValue) else AttributeValue(value)


def scalar_of(text: str) -> str | int | float:
    """Return `text` as a number if it is one, otherwise unchanged. `017`, `0x1`, `1_000` and `inf` are not numbers."""
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def taint_key(name: str) -> str:
    return TAINT_KEY_PREFIX + name


def region_of_zone(zone: str) -> str:
    """Return the region of a zone: `us-west4-a` -> `us-west4`; '' if the name has no dash."""
    return zone.rpartition("-")[0]


_WHOLE_NUMBER = pattern(r"[0-9]{1,9}")


class WorkerAttributes(dict[str, AttributeValue]):
    """The attributes of a worker. A worker with `errors` must be registered as unschedulable."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def build_worker_attributes(
    metadata: Mapping[str, object], declared: Mapping[str, AttributeValue] | None = None
) -> WorkerAttributes:
    """Return the attributes of a worker.

    `metadata` is the result of the probe. Its keys are keys of the TPU metadata server (`accelerator-type`,
    `agent-worker-number`, `instance-id`, `worker-network-endpoints`, `zone`) or attribute keys (`device-type`,
    `device-variant`, `tpu-name`, `preemptible`, ...); other keys and blank values are ignored. The attributes in
    `declared` come from the configuration: they override the probe, and all of them are in the result.

    `device-type` and `preemptible` are always in the result; `region` is derived from the zone. A VM of a multi-host
    slice (or of a slice of unknown size) must have a whole number as worker id; otherwise the result has an error. The
    VM count in `metadata` overrides the table of TPU types. A type that is not in the table gives a warning.
    """
    facts, warnings = _merge_sources(metadata, declared or {}), list[str]()
    tpu_type = _tpu_type(facts, warnings)
    vms = _vm_count(facts, tpu_type, warnings)
    # On a TPU VM the metadata server's `instance-id` is the name of the TPU.
    name = facts.get(TPU_NAME_ATTRIBUTE_KEY) or (tpu_type and facts.get("instance-id", ""))
    number, error = _worker_number(facts, name, needed=bool(name or tpu_type) and vms != 1)
    zone = facts.get(ZONE_ATTRIBUTE_KEY, "").rpartition("/")[2]  # projects/N/zones/ZONE
    preemptible = facts.get(PREEMPTIBLE_ATTRIBUTE_KEY, "false").lower()
    if preemptible not in ("true", "false"):
        warnings.append(f"preemptible is {preemptible[:40]!r}, not true or false: using false")
        preemptible = "false"
    found = {
        DEVICE_TYPE_ATTRIBUTE_KEY: facts.get(DEVICE_TYPE_ATTRIBUTE_KEY) or ("tpu" if tpu_type else "cpu"),
        DEVICE_VARIANT_ATTRIBUTE_KEY: facts.get(DEVICE_VARIANT_ATTRIBUTE_KEY) or tpu_type,
        TPU_TOPOLOGY_ATTRIBUTE_KEY: tpu_type,
        TPU_NAME_ATTRIBUTE_KEY: name,
        TPU_VM_COUNT_ATTRIBUTE_KEY: vms or "",
        TPU_WORKER_ID_ATTRIBUTE_KEY: number,
        ZONE_ATTRIBUTE_KEY: zone,
        REGION_ATTRIBUTE_KEY: facts.get(REGION_ATTRIBUTE_KEY) or region_of_zone(zone),
        PREEMPTIBLE_ATTRIBUTE_KEY: preemptible,
        CGROUP_OF_JOB_ATTRIBUTE_KEY: facts.get(CGROUP_OF_JOB_ATTRIBUTE_KEY, ""),
    }
    attributes = WorkerAttributes(declared or {})
    attributes.update((key, AttributeValue(value)) for key, value in found.items() if value != "")
    attributes.errors, attributes.warnings = (error,) if error else (), tuple(warnings)
    return attributes


def _merge_sources(metadata: Mapping[str, object], declared: Mapping[str, AttributeValue]) -> dict[str, str]:
    """Return the values of both sources as stripped text, without blank values. Declared values override the probe."""
    texts = {
        key: str(AttributeValue(value) if isinstance(value, bool) else value)
        for key, value in metadata.items()
    }
    texts.update((key, str(value)) for key, value in declared.items())
    return {key: text.strip() for key, text in texts.items() if text.strip()}


def _tpu_type(facts: Mapping[str, str], warnings: list[str]) -> str:
    text = facts.get(TPU_TOPOLOGY_ATTRIBUTE_KEY) or facts.get("accelerator-type", "")
    if not text:
        return ""
    try:
        tpu_type = canonical_type(text.rpartition("/")[2])
    except UsageError:
        tpu_type = text
    if lookup(tpu_type) is None:
        warnings.append(f"unknown TPU type {tpu_type[:40]!r}: using the VM count of the slice")
    return tpu_type


def _vm_count(facts: Mapping[str, str], tpu_type: str, warnings: list[str]) -> int | None:
    known = lookup(tpu_type)
    table = known.vms if known else None
    reported = facts.get(TPU_VM_COUNT_ATTRIBUTE_KEY, "")
    endpoints = facts.get("worker-network-endpoints", "")
    if _WHOLE_NUMBER.fullmatch(reported):
        count = int(reported)
    elif endpoints:
        count = endpoints.strip(",").count(",") + 1
    else:
        return table
    if table is not None and count != table:
        warnings.append(f"{tpu_type} should have {table} VMs, this slice has {count}")
    return count


def _worker_number(facts: Mapping[str, str], name: str, *, needed: bool) -> tuple[int | str, str]:
    """Return a worker's number in its slice, or "", and an error if it is invalid or `needed` and missing."""
    text = facts.get(TPU_WORKER_ID_ATTRIBUTE_KEY) or facts.get("agent-worker-number", "")
    tpu = f"TPU {name or 'of unknown name'}"
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text), ""
    if text:
        return "", f"worker id {text[:40]!r} of {tpu} is not a whole number"
    return "", f"{tpu} reports no worker id" if needed else ""
