"""Attributes of workers in `cluster.yaml`: the operator's own, and a provider's labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from iris_cli.config.reading import Place, Section, boolean, list_of, scalar, text, written
from iris_cli.config.schema import region_and_zone
from iris_cli.core import clip, is_name, pattern
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
    WORKER_ID_ATTRIBUTE_KEY,
    ZONE_ATTRIBUTE_KEY,
    AttributeValue,
    taint_key,
)
from iris_cli.errors import UsageError

_KEY = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
_LONGEST_LABEL = 63  # Google's limit for keys and values
_PLACE = frozenset({REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY, PREEMPTIBLE_ATTRIBUTE_KEY})
_RESERVED = frozenset(
    {
        TPU_NAME_ATTRIBUTE_KEY,
        TPU_WORKER_ID_ATTRIBUTE_KEY,
        TPU_TOPOLOGY_ATTRIBUTE_KEY,
        TPU_VM_COUNT_ATTRIBUTE_KEY,
        DEVICE_TYPE_ATTRIBUTE_KEY,
        DEVICE_VARIANT_ATTRIBUTE_KEY,
        SCALE_GROUP_ATTRIBUTE_KEY,
        WORKER_ID_ATTRIBUTE_KEY,
    }
)


def attributes_of(entry: Section) -> dict[str, AttributeValue]:
    """Return all declared attributes of an entry; `attributes` override `labels`.

    An omitted region is derived from the zone.
    """
    attributes = {**(entry.get("labels", _labels) or {}), **free_attributes(entry)}
    for key in (REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY):
        _declare(attributes, entry, key, entry.get(key, text))
    _declare(attributes, entry, PREEMPTIBLE_ATTRIBUTE_KEY, entry.get(PREEMPTIBLE_ATTRIBUTE_KEY, boolean))
    direct = REGION_ATTRIBUTE_KEY in entry
    place = entry.place.down(*(() if direct else ("attributes",)), REGION_ATTRIBUTE_KEY)
    region_and_zone(attributes, place)
    return attributes


def free_attributes(entry: Section) -> dict[str, AttributeValue]:
    """Return the attributes under `attributes` and `taints`."""
    attributes = entry.get("attributes", _attributes) or {}
    for taint in entry.get("taints", list_of(_taint), ()):
        attributes[taint_key(taint)] = AttributeValue("true")
    return attributes


def _attributes(place: Place) -> dict[str, AttributeValue]:
    return _each(place, _attribute)


def _labels(place: Place) -> dict[str, AttributeValue]:
    """Parse labels written by `iris cluster import` as attributes."""
    return _each(place, _label)


def _each(place: Place, read: Callable[[str, Place], AttributeValue]) -> dict[str, AttributeValue]:
    """Return the entries of a mapping that `read` accepts, by key."""
    values = {key: entry.read(partial(read, key)) for key, entry in place.entries().items()}
    return {key: value for key, value in values.items() if value is not None}


def _label(key: str, place: Place) -> AttributeValue:
    value = scalar(place)
    if fault := label_fault(key, str(value)):
        raise UsageError(fault, hint="write your own attributes under attributes")
    return AttributeValue(value)


def label_fault(key: str, value: object) -> str:
    """Return why a provider's label can't be an attribute; "" if it can."""
    if key in _PLACE:
        return "iris takes it from the slice"
    if key in _RESERVED or key.startswith(TAINT_KEY_PREFIX):
        return "the name is reserved"
    if _KEY.fullmatch(key) is None:
        return "not a valid attribute name"
    if not isinstance(value, str) or not value.isprintable():
        return "the value is not printable"
    return "" if len(value) <= _LONGEST_LABEL else f"the value is longer than {_LONGEST_LABEL} characters"


def _attribute(key: str, place: Place) -> AttributeValue:
    if key.startswith(TAINT_KEY_PREFIX):
        raise UsageError(
            "taints are not attributes", hint=f"write taints: [{key.removeprefix(TAINT_KEY_PREFIX)}]"
        )
    if key in _RESERVED:
        raise UsageError(f"{key!r} is reserved", hint="iris sets it from the type or the probe")
    if _KEY.fullmatch(key) is None:
        raise UsageError(
            f"{clip(key)!r} can't be the key of an attribute", hint="use letters, digits and _ . : / -"
        )
    if key in (REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY):
        return AttributeValue(text(place))
    return AttributeValue(boolean(place) if key == PREEMPTIBLE_ATTRIBUTE_KEY else scalar(place))


def _declare(
    attributes: dict[str, AttributeValue], entry: Section, key: str, value: str | bool | None
) -> None:
    if value is None:
        return
    declared = AttributeValue(value)
    if attributes.setdefault(key, declared) != declared:
        entry.at(key).problem(
            f"{key} is {str(declared)!r}, but {str(attributes[key])!r} under attributes", "set it once"
        )


def _taint(place: Place) -> str:
    name = written(place)
    if not is_name(name):
        raise UsageError(f"{clip(name)!r} is not the name of a taint", hint="use letters, digits and . _ -")
    return name
