"""Views as plain JSON: the fields of the view by their names, so that tables and JSON tell the same."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

from iris_cli.core.attributes import AttributeValue
from iris_cli.core.constraint_types import Constraint
from iris_cli.core.ids import AttemptId, TaskId, WorkerId
from iris_cli.journal.timestamps import iso_time

_NAMES = {"age": "age_seconds", "duration": "duration_seconds"}


def document(view: Any) -> dict[str, Any]:
    """The fields of a view as JSON.

    Times, in fields named `at` or `..._at`, become ISO 8601 in UTC; the names of others tell their unit.
    """
    entry = {}
    for name in view.__struct_fields__:
        value = getattr(view, name)
        entry[_NAMES.get(name, name)] = found = _field(name, value)
        if name == "id" and isinstance(value, WorkerId):
            entry["worker"] = found  # as in all other documents
    return entry


def flattened(view: Any, row: str) -> dict[str, Any]:
    """The same with the fields of its row beside its own, which win: `.state`, not `.job.state`."""
    entry = document(view)
    return {**entry.pop(row), **entry}


def _field(name: str, value: Any) -> Any:
    is_time = name == "at" or name.endswith("_at")
    return moment(value) if is_time and isinstance(value, int | float) else plain(value)


def plain(value: Any) -> Any:
    """One value as JSON has it: ids, enums and constraints as text, records as objects."""
    if isinstance(value, AttributeValue):
        return value.value
    if isinstance(value, Constraint):
        from iris_cli.core.constraint_syntax import format_constraint

        return format_constraint(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, TaskId | AttemptId):
        return str(value)
    if isinstance(value, Struct):
        return document(value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value


def moment(at: float) -> str | None:
    """ISO 8601 in UTC; None for what no clock that is right could have said."""
    try:
        return iso_time(at)
    except OverflowError:  # a clock that was wrong by thousands of years
        return None
