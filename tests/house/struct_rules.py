"""The rules on structs: one kind of data class, and records that only `evolve` changes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.house.rules import PACKAGE, Module, name_of, names_in


def home_made_classes(module: Module) -> Iterator[str]:
    """Records, values and views are msgspec's structs: no other kind of data class, and nothing that makes code."""
    if not module.layer:
        return
    for line, name in module.imports:
        if name.split(".")[0] == "dataclasses":
            yield f"{module.name}:{line} imports dataclasses: a msgspec.Struct is defined in a fiftieth of the time"
    for node in module.nodes:
        if isinstance(node, ast.Call) and name_of(node.func) in ("exec", "eval", "compile"):
            yield f"{module.name}:{node.lineno} calls {name_of(node.func)}: no code is made at run time"
        elif isinstance(node, ast.Attribute) and node.attr == "__class__" and isinstance(node.ctx, ast.Store):
            yield f"{module.name}:{node.lineno} swaps the class of an object"


_REPLACED = re.compile(r"\b(structs\.replace|from msgspec\.structs import .*\breplace\b)")


def unchecked_changes(module: Module) -> Iterator[str]:
    """What the type checker does not see into: `replace` takes any name, and Any takes anything."""
    if module.layer == "core" and _REPLACED.search(module.text):
        yield f"{module.name} uses structs.replace, where a misspelt field passes the type checker"
    strict = ("evolve", "events", "event", "slice_events")
    if module.name.startswith(tuple(f"{PACKAGE}.core.{name}" for name in strict)):
        for line, name in names_in(module):
            if name in ("Any", "cast"):
                yield f"{module.name}:{line} uses {name}: events and records are typed to the last field"


def assigned_records(module: Module) -> Iterator[str]:
    """Assignments to fields of records outside `evolve`, unless to a copy that the function has just made."""
    if not module.layer or module.name.startswith(f"{PACKAGE}.core.evolve"):
        return
    fields = _record_fields()
    assigned = {
        node
        for node in module.nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in fields
        if name_of(node.value) in _RECORDS
    }
    for function in filter(_is_function, module.nodes if assigned else ()):
        own = {
            name.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            if name_of(node.value.func) == "copy"
            for target in node.targets
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and node in assigned:
                of = name_of(node.value)
                if of not in own:
                    yield f"{module.name}:{node.lineno} assigns to {of}.{node.attr}: only evolve changes records"


_RECORDS = frozenset({"job", "task", "attempt", "worker", "slice", "group", "record"})
"""What a variable is called that holds a record."""


_DECODED = {"Decoder": 0, "convert": 1}
"""Calls of msgspec, each with the place of the type among its arguments."""


def unprepared_types(module: Module) -> Iterator[str]:
    """Types that msgspec decodes without `prepare_type`: two threads at once would crash the interpreter.

    What the core decodes is prepared by its import.
    """
    if module.layer in ("core", "decoding"):
        return
    for node in module.nodes:
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else name_of(node.func)
        if (place := _DECODED.get(called)) is not None:
            kind = node.args[place] if place < len(node.args) else None
            if not (isinstance(kind, ast.Call) and name_of(kind.func) == "prepare_type"):
                yield f"{module.name}:{node.lineno} {ast.unparse(node)[:60]} of a type that is not prepared"


@cache
def _record_fields() -> frozenset[str]:
    from iris_cli.core.model.job import Job
    from iris_cli.core.model.slice import GroupRecord, Slice
    from iris_cli.core.model.task import Attempt, Task
    from iris_cli.core.model.worker import Worker

    return frozenset(
        name
        for record in (Job, Task, Attempt, Worker, Slice, GroupRecord)
        for name in record.__struct_fields__
    )


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
