"""Views as plain JSON: the fields of the view by their names, so that tables and JSON tell the same."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from iris_cli.core.attributes import AttributeValue
from iris_cli.core.constraint_types import Constraint
from iris_cli.core.dataclass import fields, is_dataclass
from iris_cli.core.ids import AttemptId, TaskId
from iris_cli.journal.timestamps import iso_time

_NAMES = {"age": "age_seconds", "duration": "duration_seconds"}
_ALSO: Mapping[tuple[str, Any], str] = {("id", "WorkerId"): "worker"}
"""By name and type of a field, the name that it has besides: the one that it has in all other documents."""


def document(view: Any) -> dict[str, Any]:
    """The fields of a view (a dataclass) as JSON.

    Times, in fields named `at` or `..._at`, become ISO 8601 in UTC; the names of others tell their unit.
    """
    entry = {}
    for item in fields(view):
        entry[_NAMES.get(item.name, item.name)] = value = _field(item.name, getattr(view, item.name))
        if (also := _ALSO.get((item.name, item.type))) is not None:
            entry[also] = value
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
    if is_dataclass(value):
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
