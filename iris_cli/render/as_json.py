"""Encode views and documents as JSON. `scripts/json_schema.py` derives the schema by the same rules."""

import json
import os
from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import UNSET, Struct

from iris_cli.clock import iso_time
from iris_cli.core import AttributeValue, Constraint

SCHEMA_VERSION = 1


def json_text(content: Struct, indent: int | None = None) -> str:
    """Return a document with its schema version, as printable ASCII."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **document(content)}, indent=indent)
    return text.replace("\x7f", "\\u007f")


def document(view: Struct) -> dict[str, Any]:
    """Return the fields of a struct by their encoded names. Omit UNSET fields.

    `FLATTENED` of a struct class lists fields whose value is a struct. The fields of that inner struct are added to
    the result, unless the outer struct has a field with the same name. `OMITTED` lists fields without a place in JSON.
    """
    fields: dict[str, Any] = {}
    flat: dict[str, Any] = {}
    flattened, omitted = getattr(view, "FLATTENED", ()), getattr(view, "OMITTED", ())
    for name, key in zip(view.__struct_fields__, view.__struct_encode_fields__, strict=True):
        value = getattr(view, name)
        if name in flattened:
            flat = {**document(value), **flat}
        elif value is not UNSET and name not in omitted:
            is_time_value = isinstance(value, int | float) and is_time_field(name)
            fields[key] = json_time(value) if is_time_value else document_value(value)
    return {**flat, **fields}


def is_time_field(name: str) -> bool:
    """Return whether a field with this name contains a time in seconds since the epoch. JSON has ISO 8601 instead."""
    return name == "at" or name.endswith("_at")


def document_value(value: Any) -> Any:
    """Convert one value for JSON: enums, constraints and paths to text, structs to objects."""
    if isinstance(value, Struct):
        if not isinstance(value, Constraint):
            return document(value)
        from iris_cli.core.constraint_syntax import format_constraint

        return format_constraint(value)
    if isinstance(value, AttributeValue | Enum):
        return value.value
    if isinstance(value, Mapping):
        return {document_value(key): document_value(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [document_value(each) for each in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def json_time(at: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC; None if it is out of range because a clock was wrong."""
    if at is None:
        return None
    try:
        return iso_time(at)
    except OverflowError:  # beyond the year 9999
        return None
