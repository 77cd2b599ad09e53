"""What is known of a worker: attribute keys, and values whose type is part of their identity."""

from __future__ import annotations

import math
from functools import total_ordering
from typing import Final

from iris_cli.core.patterns import pattern

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
WORKER_ID_ATTRIBUTE_KEY: Final = "worker-id"  # the worker's own id, always text
TAINT_KEY_PREFIX: Final = "taint:"

RawValue = str | int | float | bool
"""What may become an attribute value; a boolean becomes the text `true` or `false`."""

_INTEGER = pattern(r"[-+]?(0|[1-9][0-9]{0,999})")
_DECIMAL = pattern(r"[-+]?((0|[1-9][0-9]{0,999})(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,9})?")
_TOO_LARGE = 10**1000  # from 10**4300 on, Python does not even print integers
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
        self.value = _plain(value)

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
        mine, theirs = self.value, other.value
        if isinstance(mine, str) and isinstance(theirs, str):
            return mine < theirs
        if isinstance(mine, str) or isinstance(theirs, str) or type(mine) is not type(theirs):
            raise TypeError(f"{self.type_word} {mine!r} and {other.type_word} {theirs!r} have no order")
        return mine < theirs

    def __str__(self) -> str:
        return str(self.value)

    @property
    def is_number(self) -> bool:
        return not isinstance(self.value, str)

    @property
    def type_word(self) -> str:
        """`text`, `integer` or `decimal`: for messages about a clash of types."""
        return _TYPE_WORDS[type(self.value)]


def _plain(value: object) -> str | int | float:
    """The value as exactly str, int or float: a subclass (an enum member, say) would break type identity."""
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
    return float.__float__(value) + 0.0  # -0.0, which is equal to 0.0, would read differently


def wrap(value: AttributeValue | RawValue) -> AttributeValue:
    """The value itself, or a raw one wrapped. Raises ValueError."""
    return value if isinstance(value, AttributeValue) else AttributeValue(value)


def scalar_of(text: str) -> str | int | float:
    """What unquoted text means: a number if it reads as a finite decimal one, else the text.

    Leading zeros (`017`), hexadecimals, `1_000` and `inf` stay text.
    """
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def taint_key(name: str) -> str:
    """The attribute key of a taint."""
    return TAINT_KEY_PREFIX + name


def region_of_zone(zone: str) -> str:
    """The region of a zone: `us-west4-a` -> `us-west4`; '' for a name without a last part."""
    return zone.rpartition("-")[0]
