"""The schema of the `--json` output: docs/json-schema.json for programs, docs/json.md for people.

Both are generated from the types that `Output.document` receives. msgspec generates a schema. This module adapts it to
the rules of `render/as_json.py` for times, `FLATTENED`, `OMITTED` and constraints.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct
from msgspec.json import schema_components
from msgspec.structs import FieldInfo

from iris_cli.cli import failures, tree
from iris_cli.cli.commands import forward, run, ssh, worker
from iris_cli.core.attributes import AttributeValue
from iris_cli.core.constraints import Constraint
from iris_cli.core.messages import requests
from iris_cli.demo.run import EndedDocument, TourDocument
from iris_cli.journal.log.verify import SalvageReport
from iris_cli.ops.event_rows import Row
from iris_cli.ops.files.pull import Pulled
from iris_cli.ops.views.history import Entry, History
from iris_cli.ops.views.inventory import Inventory, WorkerView
from iris_cli.ops.views.job_status import JobStatus
from iris_cli.ops.views.metrics import Metrics
from iris_cli.ops.views.status import ClusterStatus
from iris_cli.ops.views.why import Why
from iris_cli.render import (
    checks,
    cycles,
    event_log,
    export,
    files,
    imported,
    jobs,
    plans,
    probes,
    setup,
    slices,
)
from iris_cli.render.as_json import SCHEMA_VERSION, is_time_field
from iris_cli.render.logs import log_lines, stacks
from iris_cli.render.report.summary import ReportDocument, WrittenDocument

DOCUMENTS: dict[str, tuple[type[Struct], ...]] = {
    "iris": (setup.NextStepsDocument, tree.VersionDocument),
    "iris launch": (
        jobs.LaunchedDocument,
        plans.PlanDocument,
        jobs.WaitedDocument,
        log_lines.LineDocument,
        requests.Submitted,
    ),
    "iris run": (run.RunDocument,),
    "iris status": (ClusterStatus, JobStatus, requests.JobAnswer),
    "iris schedule": (cycles.CycleDocument, cycles.BusyDocument, plans.PlanDocument),
    "iris autoscale": (
        slices.PassDocument,
        cycles.BusyDocument,
        slices.ScalingDocument,
        slices.AdoptedDocument,
    ),
    "iris watch": (Entry,),
    "iris cancel": (jobs.CancelledDocument, jobs.CancelledInside),
    "iris metrics": (Metrics,),
    "iris retry": (jobs.RetriedDocument,),
    **dict.fromkeys(("iris hold", "iris release", "iris set"), (jobs.ChangedDocument,)),
    "iris logs": (log_lines.LogsDocument, log_lines.LineDocument, log_lines.DiffDocument),
    "iris pull": (Pulled,),
    "iris export": (export.ExportDocument,),
    "iris wait": (jobs.WaitedDocument,),
    "iris why": (Why,),
    "iris history": (History,),
    "iris report": (ReportDocument, WrittenDocument),
    "iris workers": (Inventory,),
    "iris exec": (log_lines.ExecutedDocument,),
    "iris stacks": (stacks.StacksDocument,),
    "iris ssh": (ssh.SshDocument,),
    "iris forward": (forward.ForwardDocument,),
    "iris register-endpoint": (requests.Registered, requests.Removed),
    "iris worker show": (WorkerView,),
    "iris worker probe": (probes.ProbesDocument,),
    "iris worker drain": (worker.Drained,),
    "iris worker uncordon": (worker.Uncordoned,),
    "iris worker taint": (worker.Tainted, worker.Untainted),
    "iris worker forget": (worker.Forgotten,),
    "iris worker unwedge": (probes.WedgeDocument,),
    "iris init": (setup.InitDocument,),
    "iris cluster import": (imported.ImportDocument,),
    "iris config validate": (checks.ValidDocument, checks.InvalidDocument),
    "iris cron install": (cycles.InstalledDocument,),
    "iris cron show": (cycles.CronDocument,),
    "iris cron remove": (cycles.RemovedDocument,),
    "iris loop start": (cycles.StartedDocument,),
    "iris loop stop": (cycles.StoppedDocument,),
    "iris loop show": (cycles.LoopDocument,),
    "iris doctor": (checks.ChecksDocument,),
    "iris log verify": (event_log.VerdictDocument,),
    "iris log salvage": (
        SalvageReport,
        event_log.VerdictDocument,
        event_log.AcceptedDocument,
    ),
    "iris log compact": (event_log.CompactedDocument,),
    "iris log export": (Row,),
    "iris gc": (files.GarbageDocument,),
    "iris demo": (TourDocument, EndedDocument),
    "error": (failures.ErrorDocument,),
}
"""The document types of each command. `error`: the document of every command that fails."""

BY_LINE = (log_lines.LineDocument, Entry, Row, failures.ErrorDocument)
"""Documents that take one line each."""

UNVERSIONED = (Row,)
"""Rows of a table for other programs, without a `schema_version`."""

_TIME = {
    "type": ["string", "null"],
    "format": "date-time",
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$",
}
"""A time is null if its clock was wrong by thousands of years: see `json_time`."""


class Generated(NamedTuple):
    """`documents`: schemas of the documents. `types`: of other types, by name. `structs`: classes by name."""

    documents: dict[type[Struct], dict[str, Any]]
    types: dict[str, dict[str, Any]]
    structs: dict[str, type[Struct]]


def json_schema() -> str:
    """Return the text of docs/json-schema.json: a JSON Schema with a definition for each command."""
    found = generated()
    commands = {
        command: {"anyOf": [found.documents[each] for each in kinds]} for command, kinds in DOCUMENTS.items()
    }
    definitions = (
        f"{json.dumps(name)}: {json.dumps(each)}" for name, each in {**commands, **found.types}.items()
    )
    title = "What iris prints with --json: #/$defs/COMMAND, such as #/$defs/iris status"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps(head)[:-1] + ', "$defs": {\n' + ",\n".join(definitions) + "\n}}\n"


@cache
def generated() -> Generated:
    structs = _structs()
    document_types = list(dict.fromkeys(kind for kinds in DOCUMENTS.values() for kind in kinds))
    _, raw = schema_components(document_types, schema_hook=_schema_hook, ref_template="#/$defs/{name}")
    types = {name: _adapt_schema(structs.get(name), schema, raw, structs) for name, schema in raw.items()}
    documents = {kind: _document(kind, types[kind.__name__]) for kind in document_types}
    return Generated(documents, _referenced_types(documents, types), structs)


def _structs() -> dict[str, type[Struct]]:
    """Return all structs in documents by name. Raises ValueError if two structs have the same name."""
    found: dict[str, type[Struct]] = {}
    todo: list[Any] = [kind for kinds in DOCUMENTS.values() for kind in kinds]
    seen = set()
    while todo:
        kind = todo.pop()
        if isinstance(kind, type) and issubclass(kind, Struct):
            if found.setdefault(kind.__name__, kind) is not kind:
                raise ValueError(f"two types are called {kind.__name__}: {kind}, {found[kind.__name__]}")
            if kind not in seen:
                seen.add(kind)
                _import_for_types(sys.modules[kind.__module__])
                todo += [field.type for field in _fields(kind)]
        else:
            todo += getattr(kind, "__args__", ())
    return found


def _fields(kind: type[Struct]) -> list[FieldInfo]:
    """Return the fields of a type that JSON has."""
    return [each for each in msgspec.structs.fields(kind) if each.name not in getattr(kind, "OMITTED", ())]


def _import_for_types(module: Any) -> None:
    """Run the imports under TYPE_CHECKING in a module, because its annotations need them."""
    for node in _parsed(module).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            imports = [each for each in node.body if isinstance(each, ast.Import | ast.ImportFrom)]
            exec(compile(ast.Module(imports, []), module.__name__, "exec"), vars(module))


@cache
def _parsed(module: Any) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _schema_hook(kind: type) -> dict[str, Any]:
    """Return the schema of a type that msgspec does not know."""
    if kind is AttributeValue:
        return {"type": ["string", "number"]}
    if issubclass(kind, PurePath):
        return {"type": "string", "title": "path"}
    if issubclass(kind, str):
        return {"type": "string", "title": re.sub(r"(?<!^)(?=[A-Z])", " ", kind.__name__).lower()}
    raise NotImplementedError(kind)


def _adapt_schema(
    kind: type[Struct] | None, schema: dict[str, Any], raw: dict[str, Any], structs: dict[str, type[Struct]]
) -> dict[str, Any]:
    """Return the schema of one type, adapted to the rules of `render/as_json.py`."""
    if kind is None:  # an enum
        return {key: value for key, value in schema.items() if key != "description"}
    if kind is Constraint:
        return {"type": "string", "title": "constraint"}
    fields: dict[str, Any] = {}
    flat: dict[str, Any] = {}
    absent: set[str] = set()
    for field in _fields(kind):
        key = field.encode_name
        found = {name: value for name, value in schema["properties"][key].items() if name != "default"}
        if field.name in getattr(kind, "FLATTENED", ()):
            name = found["$ref"].removeprefix("#/$defs/")
            inner = _adapt_schema(structs[name], raw[name], raw, structs)
            flat = {**inner["properties"], **flat}
            absent |= inner["properties"].keys() - {*inner["required"]}
        elif is_time_field(field.name) and "number" in json.dumps(found):
            fields[key] = {"title": "time or null" if "null" in json.dumps(found) else "time", **_TIME}
        else:
            fields[key] = found
        if field.default is UNSET:
            absent.add(key)
    properties = {**flat, **fields}
    return {
        "title": kind.__name__,
        "description": _description(kind),
        "type": "object",
        "properties": properties,
        "required": [key for key in properties if key not in absent],
        "additionalProperties": False,
    }


def _document(kind: type[Struct], schema: dict[str, Any]) -> dict[str, Any]:
    if kind in UNVERSIONED:
        return schema
    version = {"schema_version": {"const": SCHEMA_VERSION}}
    return {
        **schema,
        "properties": {**version, **schema["properties"]},
        "required": ["schema_version", *schema["required"]],
    }


def _referenced_types(documents: dict[type[Struct], dict[str, Any]], types: dict[str, Any]) -> dict[str, Any]:
    """Return the types to which documents refer, by name."""
    found: set[str] = set()
    todo = _references([each["properties"] for each in documents.values()])
    while todo:
        found |= todo
        todo = _references([types[name] for name in todo]) - found
    return {name: types[name] for name in sorted(found)}


def _references(schema: object) -> set[str]:
    return set(re.findall(r'"#/\$defs/([^"]+)"', json.dumps(schema)))


def json_page() -> Iterator[str]:
    """Yield the lines of docs/json.md after its title."""
    yield from _HEAD
    found = generated()
    shown: dict[type[Struct], str] = {}
    for command, kinds in DOCUMENTS.items():
        title = f"{command} --json" if command != "error" else "Errors"
        yield from ("", f"## {title}")
        for kind in kinds:
            yield from ("", _description(kind) + (" One document per line." if kind in BY_LINE else ""))
            first = shown.setdefault(kind, title)
            if first == title:
                yield from ("", *_table(kind, found.documents[kind]))
            else:
                yield f"The fields are those of [{first}](#{first.replace(' ', '-')})."
    yield from ("", "## Types")
    for name, schema in found.types.items():
        if schema.get("type") == "object":
            yield from ("", f"### `{name}`", "", schema["description"], "")
            yield from _table(found.structs[name], schema)
        elif "enum" in schema:
            yield from ("", f"### `{name}`", "", ", ".join(f"`{each}`" for each in schema["enum"]))


_HEAD = """\
With `--json` every command prints one JSON document on stdout, and errors as one document on stderr. Where a command
lists several documents, each belongs to one of its options, or to its use inside a task. Every document also has
`schema_version`, which is 1; the rows of `iris log export` do not. All fields are present, except those marked
*optional*. Later versions may add fields.

A *time* is text in ISO 8601, in UTC: `2026-11-20T14:03:09.120Z`. It is null if no correct clock could have reported it.
Ages and durations are in seconds, sizes in bytes.

[json-schema.json](json-schema.json) is the JSON Schema, with a definition for each command:
`#/$defs/iris status`.
""".splitlines()


def _table(kind: type[Struct], schema: dict[str, Any]) -> Iterator[str]:
    comments = _comments(kind)
    yield from (
        ("| field | type | meaning |", "|---|---|---|") if comments else ("| field | type |", "|---|---|")
    )
    for key, value in schema["properties"].items():
        if key == "schema_version":
            continue
        optional = "" if key in schema["required"] else ", optional"
        meaning = f" {comments.get(key, '')} |" if comments else ""
        yield f"| `{key}` | {_type(value)}{optional} |{meaning}"


def _type(schema: dict[str, Any]) -> str:
    """Describe a type: `list of [JobRow](#jobrow)`."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        target = generated().types[name]
        return (
            f"[{name}](#{name.lower()})"
            if "enum" in target or target["type"] == "object"
            else target["title"]
        )
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    kind = schema.get("type", "any value")
    if kind == "array":
        if "prefixItems" in schema:
            return f"list of {', '.join(map(_type, schema['prefixItems']))}"
        return f"list of {_type(schema['items'])}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"object of {_type(inner)}" if isinstance(inner, dict) and inner else "object"
    return str(schema.get("title") or (kind if isinstance(kind, str) else " or ".join(kind)))


def _description(kind: type[Struct]) -> str:
    """Return the docstring of a type, with JSON's null instead of None."""
    text = " ".join((kind.__doc__ or "").split())
    return re.sub(r"\bNone\b", "null", re.sub(r" Raises [^.]+\.", "", text))


def _comments(kind: type[Struct]) -> dict[str, str]:
    """Return the comments at the fields of a type, and at the fields of its FLATTENED types."""
    found = {}
    omitted = getattr(kind, "OMITTED", ())
    for field in _fields(kind):
        if field.name in getattr(kind, "FLATTENED", ()):
            found |= _comments(field.type)
    module = sys.modules[kind.__module__]
    (source,) = (each for each in _parsed(module).body if getattr(each, "name", "") == kind.__name__)
    for line in inspect.getsource(module).splitlines()[source.lineno - 1 : source.end_lineno]:
        if (match := re.fullmatch(r"    (\w+): .*?  # (.*)", line)) and match[1] not in omitted:
            found[match[1]] = match[2]
    return found
