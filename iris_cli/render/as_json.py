"""Encode views and documents as JSON. `scripts/json_schema.py` derives the schema by the same rules."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import UNSET, Struct

from iris_cli.core import AttributeValue, Constraint
from iris_cli.journal.log.timestamps import iso_time

SCHEMA_VERSION = 1


def json_text(content: Struct, indent: int | None = None) -> str:
    """Return a whole document as printable ASCII."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **document(content)}, indent=indent)
    return text.replace("\x7f", "\\u007f")


def document(view: Struct) -> dict[str, Any]:
    """Return the fields of a struct by their encoded names, without fields that are UNSET.

    Fields listed in `FLATTENED` are structs. Their fields are merged into the result; the struct's other fields
    override them.
    """
    fields: dict[str, Any] = {}
    flat: dict[str, Any] = {}
    flattened = getattr(view, "FLATTENED", ())
    for name, key in zip(view.__struct_fields__, view.__struct_encode_fields__, strict=True):
        value = getattr(view, name)
        if name in flattened:
            flat = {**document(value), **flat}
        elif value is not UNSET:
            is_moment = isinstance(value, int | float) and is_time(name)
            fields[key] = moment(value) if is_moment else plain(value)
    return {**flat, **fields}


def is_time(name: str) -> bool:
    """Return whether the field's name is that of a time: seconds since the epoch, which become ISO 8601 in UTC."""
    return name == "at" or name.endswith("_at")


def plain(value: Any) -> Any:
    """Return one value for JSON: enums, constraints and paths as text, structs as objects."""
    if isinstance(value, Struct):
        if not isinstance(value, Constraint):
            return document(value)
        from iris_cli.core.constraint_syntax import format_constraint

        return format_constraint(value)
    if isinstance(value, AttributeValue | Enum):
        return value.value
    if isinstance(value, Mapping):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def moment(at: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC; None if it is out of range because a clock was wrong."""
    if at is None:
        return None
    try:
        return iso_time(at)
    except OverflowError:  # beyond the year 9999
        return None
