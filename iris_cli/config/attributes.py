"""Attributes of workers in `cluster.yaml`: written by the operator, or imported from a provider's labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from iris_cli.config.reading import Section, Setting, boolean, list_of, scalar, scalar_text, text
from iris_cli.config.schema import check_region
from iris_cli.core import attributes as keys
from iris_cli.core import clip, is_name, pattern
from iris_cli.core.attributes import AttributeValue, taint_key
from iris_cli.errors import UsageError

_KEY = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
_MAX_LABEL = 63  # characters; Google's limit for keys and values
_SET_BY_SLICE = frozenset(
    {keys.REGION_ATTRIBUTE_KEY, keys.ZONE_ATTRIBUTE_KEY, keys.PREEMPTIBLE_ATTRIBUTE_KEY}
)
_RESERVED = frozenset(
    {
        keys.TPU_NAME_ATTRIBUTE_KEY,
        keys.TPU_WORKER_ID_ATTRIBUTE_KEY,
        keys.TPU_TOPOLOGY_ATTRIBUTE_KEY,
        keys.TPU_VM_COUNT_ATTRIBUTE_KEY,
        keys.DEVICE_TYPE_ATTRIBUTE_KEY,
        keys.DEVICE_VARIANT_ATTRIBUTE_KEY,
        keys.SCALE_GROUP_ATTRIBUTE_KEY,
        keys.WORKER_ID_ATTRIBUTE_KEY,
        keys.ALLOCATION_ATTRIBUTE_KEY,
        keys.CGROUP_OF_JOB_ATTRIBUTE_KEY,
        keys.GPU_INDEXES_ATTRIBUTE_KEY,
    }
)


def attributes_of(entry: Section) -> dict[str, AttributeValue]:
    """Return all attributes of a slice or worker. The keys `region`, `zone` and `preemptible` become attributes too.

    `attributes` override `labels`. If the region is omitted, it is derived from the zone.
    """
    attributes = {**(entry.get("labels", _mapping_of(_label)) or {}), **operator_attributes(entry)}
    for key in (keys.REGION_ATTRIBUTE_KEY, keys.ZONE_ATTRIBUTE_KEY):
        _declare(attributes, entry, key, entry.get(key, text))
    _declare(
        attributes, entry, keys.PREEMPTIBLE_ATTRIBUTE_KEY, entry.get(keys.PREEMPTIBLE_ATTRIBUTE_KEY, boolean)
    )
    path = () if keys.REGION_ATTRIBUTE_KEY in entry else ("attributes",)
    check_region(attributes, entry.setting.child(*path, keys.REGION_ATTRIBUTE_KEY))
    return attributes


def operator_attributes(entry: Section) -> dict[str, AttributeValue]:
    """Return the attributes that the operator wrote under `attributes` and `taints`."""
    attributes = entry.get("attributes", _mapping_of(_attribute)) or {}
    for taint in entry.get("taints", list_of(_taint), ()):
        attributes[taint_key(taint)] = AttributeValue("true")
    return attributes


def _mapping_of(
    reader: Callable[[str, Setting], AttributeValue],
) -> Callable[[Setting], dict[str, AttributeValue]]:
    """Return a function that reads a mapping, each value with `reader`. It reports and omits invalid values."""

    def read(setting: Setting) -> dict[str, AttributeValue]:
        values = {key: entry.read(partial(reader, key)) for key, entry in setting.entries().items()}
        return {key: value for key, value in values.items() if value is not None}

    return read


def _label(key: str, setting: Setting) -> AttributeValue:
    """Parse a label that `iris cluster import` has written under `labels`."""
    value = scalar(setting)
    if fault := label_fault(key, str(value)):
        raise UsageError(fault, hint="write your own attributes under attributes")
    return AttributeValue(value)


def label_fault(key: str, value: object) -> str:
    """Return why a provider's label can't become an attribute; "" if the label is valid."""
    if key in _SET_BY_SLICE:
        return "iris takes it from the slice"
    if key in _RESERVED or key.startswith(keys.TAINT_KEY_PREFIX):
        return "the name is reserved"
    if _KEY.fullmatch(key) is None:
        return "not a valid attribute name"
    if not isinstance(value, str) or not value.isprintable():
        return "the value is not printable"
    return "" if len(value) <= _MAX_LABEL else f"the value is longer than {_MAX_LABEL} characters"


def _attribute(key: str, setting: Setting) -> AttributeValue:
    if key.startswith(keys.TAINT_KEY_PREFIX):
        raise UsageError(
            "taints are not attributes", hint=f"write taints: [{key.removeprefix(keys.TAINT_KEY_PREFIX)}]"
        )
    if key in _RESERVED:
        raise UsageError(f"{key!r} is reserved", hint="iris sets it from the type or the probe")
    if _KEY.fullmatch(key) is None:
        raise UsageError(
            f"{clip(key)!r} can't be the key of an attribute", hint="use letters, digits and _ . : / -"
        )
    if key in (keys.REGION_ATTRIBUTE_KEY, keys.ZONE_ATTRIBUTE_KEY):
        return AttributeValue(text(setting))
    return AttributeValue(boolean(setting) if key == keys.PREEMPTIBLE_ATTRIBUTE_KEY else scalar(setting))


def _declare(
    attributes: dict[str, AttributeValue], entry: Section, key: str, value: str | bool | None
) -> None:
    """Add an attribute that has its own key in the entry. Report a different value under `attributes`."""
    if value is None:
        return
    attribute = AttributeValue(value)
    if attributes.setdefault(key, attribute) != attribute:
        entry.setting_for(key).problem(
            f"{key} is {str(attribute)!r}, but {str(attributes[key])!r} under attributes", "set it once"
        )


def _taint(setting: Setting) -> str:
    name = scalar_text(setting)
    if not is_name(name):
        raise UsageError(f"{clip(name)!r} is not the name of a taint", hint="use letters, digits and . _ -")
    return name
