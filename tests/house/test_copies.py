"""A copy of a struct carries all fields of its type.

The core does not use `structs.replace`, whose keywords the type checker can't check: it writes copies out, field by
field. A new field with a default would be missing from such a copy without an error.
"""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from tests.house.rules import Module, house

FEWEST = 3
"""A call that takes so many fields of one object, by their names, is a copy of the object."""

DROPPED = {
    "without_times": {"started_ago", "ended_ago", "last_output_ago", "waited", "ran"},
    "without_details": {"log_tail", "ran", "facts"},
}
"""The fields that a copy leaves at their defaults on purpose, by the name of its function."""


def copies(module: Module) -> Iterator[tuple[ast.FunctionDef, ast.Call, type[Struct]]]:
    """The calls that copy a parameter of their function, or `self`, to another struct of its type."""
    defined = importlib.import_module(module.name)
    for outer in module.nodes:
        functions = outer.body if isinstance(outer, ast.ClassDef | ast.Module) else ()
        for function in functions:
            if not isinstance(function, ast.FunctionDef):
                continue
            types = {each.arg: ast.unparse(each.annotation) for each in function.args.args if each.annotation}
            if isinstance(outer, ast.ClassDef):
                types["self"] = outer.name
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and ast.unparse(call.func) in _copied(call, types):
                    kind = getattr(defined, ast.unparse(call.func), None)
                    if isinstance(kind, type) and issubclass(kind, Struct):
                        yield function, call, kind


def _copied(call: ast.Call, types: dict[str, str]) -> set[str]:
    """The types of the objects that the call takes fields of."""
    taken = Counter(
        name.id
        for each in call.keywords
        for name in [_object(each.value, each.arg)]
        if name is not None and name.id in types
    )
    return {types[name] for name, count in taken.items() if count >= FEWEST}


def _object(value: ast.expr, field: str | None) -> ast.Name | None:
    """`job` of `job.field`."""
    found = isinstance(value, ast.Attribute) and value.attr == field and isinstance(value.value, ast.Name)
    return value.value if found else None  # type: ignore[attr-defined]  # seen above


def test_a_copy_names_every_field() -> None:
    found = [each for module in house() if module.layer == "core" for each in copies(module)]
    for function, call, kind in found:
        named = {each.arg for each in call.keywords}
        missing = {*kind.__struct_fields__} - named - DROPPED.get(function.name, set())
        assert not missing, f"{function.name}: the copy of {kind.__name__} lacks {missing}"
    # If none were found the test could not fail.
    assert {"with_template", "with_cause", "_with_boot_id", *DROPPED} <= {each.name for each, _, _ in found}
