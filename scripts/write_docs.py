"""Write the generated pages and pictures of docs/. With --check only report which of them are out of date."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from json_schema import json_page, json_schema
from page_tables import update_counterparts, update_transitions
from page_texts import EXIT_CODES, JOB_FILES, KNOWN_CAUSES, QUIET
from pictures import draw_pictures
from session_picture import draw_session

from iris_cli import client
from iris_cli.cli.command_types import example_lines, panel_of
from iris_cli.cli.tree import COMMANDS, parser
from iris_cli.client.fields import JobFields
from iris_cli.core import constraints, resources, topology
from iris_cli.core.autoscaling import (
    DemandEntry,
    GroupState,
    RoutingDecision,
    UnmetKind,
    UnmetReason,
    compute_demand_entries,
    route_demand,
)
from iris_cli.core.autoscaling.demand import IdleSite
from iris_cli.core.autoscaling.routing import UnmetDemand
from iris_cli.core.events import events
from iris_cli.core.events.events import AnyEvent
from iris_cli.core.evolve import evolve, replay
from iris_cli.core.invariants import breaches
from iris_cli.core.known_causes import rules
from iris_cli.core.model import job, task, worker
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job_fields import JOB_FIELDS
from iris_cli.core.model.slice import Provider, ScaleGroup, SliceTemplate
from iris_cli.core.model.worker import Amounts
from iris_cli.core.resources import device_compatible
from iris_cli.core.scheduling import Assignment, Reason, ReasonKind, SchedulingResult, find_assignments
from iris_cli.core.scheduling.placement import Shape
from iris_cli.errors import ExitCode

DOCS = Path(__file__).parent.parent / "docs"
NOTE = "<!-- Written by scripts/write_docs.py (make docs); a test checks that it is up to date. -->"

TYPES: tuple[type, ...] = (
    job.Job,
    job.JobState,
    job.Priority,
    job.CoschedulingConfig,
    task.Task,
    task.TaskState,
    task.Attempt,
    task.AttemptState,
    task.Assigned,
    task.Running,
    task.Stopping,
    task.Ended,
    task.StopOrder,
    worker.Worker,
    worker.WorkerCondition,
    worker.Claim,
    resources.Resources,
    resources.Device,
    task.End,
    task.EndReason,
    constraints.AttributeValue,
    constraints.Constraint,
    constraints.ConstraintOp,
    constraints.ConstraintMode,
    constraints.NormalizedConstraints,
    constraints.WorkerAttributes,
    topology.Topology,
    Cluster,
    events.Transaction,
    SchedulingResult,
    Assignment,
    Reason,
    ReasonKind,
    ScaleGroup,
    SliceTemplate,
    Provider,
    GroupState,
    DemandEntry,
    Shape,
    IdleSite,
    Amounts,
    RoutingDecision,
    UnmetDemand,
    UnmetReason,
    UnmetKind,
)
CLIENT_TYPES: tuple[type, ...] = (
    client.JobInfo,
    client.JobStatus,
    client.TaskStatus,
    client.Endpoint,
    client.LogLine,
)
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    find_assignments,
    compute_demand_entries,
    route_demand,
    evolve,
    replay,
    breaches,
    device_compatible,
    constraints.build_worker_attributes,
    constraints.preemptible_constraint,
    constraints.region_constraint,
    constraints.preemptible_preference_from_constraints,
    constraints.required_regions_from_constraints,
    constraints.normalize_constraints,
    constraints.merge_constraints,
    constraints.constraints_to_json,
    constraints.constraints_from_json,
)


def main() -> int:
    generators = {
        "api.md": api,
        "cli.md": cli,
        "job-files.md": job_files,
        "json.md": json,
        "known-causes.md": known_causes,
    }
    pages = {DOCS / name: "\n".join(write()) + "\n" for name, write in generators.items()}
    states, leaving = DOCS / "task-states.md", DOCS / "leaving.md"
    pages[states] = update_transitions(states.read_text(encoding="utf-8"))
    pages[leaving] = update_counterparts(leaving.read_text(encoding="utf-8"))
    pages[DOCS / "json-schema.json"] = json_schema()
    stale = []
    for path, text in {**pages, **dict([*draw_pictures(), draw_session()])}.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"out of date: {', '.join(stale)}; run: make docs")
        return 1
    return 0


def api() -> Iterator[str]:
    yield from ("# Core library", "", NOTE, "")
    yield (
        "Programs can use the scheduler, the event log and the client of iris as a library. Types have keyword "
        "constructors. Times are seconds since the epoch, durations are seconds, memory is bytes."
    )
    for kind in TYPES:
        yield from ("", f"## `{kind.__module__}.{kind.__name__}`", "", _first_paragraph(kind), "")
        yield from _members(kind)
    yield from ("", "## The client", "", "`iris_cli.client`; [the page about it](client.md) has examples.")
    for kind in (client.IrisClient, client.Job):
        yield from _methods(kind)
    for kind in (client.AsyncIrisClient, client.AsyncJob):
        yield from ("", f"### `iris_cli.client.{kind.__name__}`", "", _first_paragraph(kind))
    yield from ("", "### `iris_cli.client.get_job_info`", "", _first_paragraph(client.get_job_info))
    yield from ("", "### `JobFields`", "", _first_paragraph(JobFields), "")
    yield from (f"- `{name}`: `{hint}`" for name, hint in _annotations(JobFields).items())
    for kind in CLIENT_TYPES:
        yield from ("", f"### `iris_cli.client.{kind.__name__}`", "", _first_paragraph(kind), "")
        yield from _members(kind)
    yield from ("", "## Functions")
    for function in FUNCTIONS:
        yield from ("", f"### `{function.__module__}.{function.__name__}`", "", "```python")
        yield f"{function.__name__}{_signature(function)}"
        yield from ("```", "", _first_paragraph(function))
    yield from ("", "## Events", "")
    yield "`iris_cli.core.events.events`; the name of the class is the `type` in the log."
    yield ""
    for event in typing.get_args(AnyEvent):
        fields = ", ".join(f"`{name}`" for name in event.__struct_fields__)
        yield f"- `{event.__name__}`: {fields}"


def _methods(kind: type) -> Iterator[str]:
    """Yield the public methods of a class, each with its signature."""
    yield from ("", f"### `iris_cli.client.{kind.__name__}`", "", _first_paragraph(kind), "")
    for name, method in vars(kind).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            signature = str(_signature(method)).replace("(self, ", "(").replace("(self)", "()")
            yield f"- `{name}{re.sub(_QUOTED_TYPE, _UNQUOTED, signature)}`: {_first_paragraph(method)}"


_QUOTED_TYPE, _UNQUOTED = r"(: |-> )'([^']*)'", r"\1\2"


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, with the annotations of its source."""
    signature, written = inspect.signature(function), _annotations(function)
    parameters = [
        each.replace(annotation=written.get(each.name, each.empty)) for each in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters, return_annotation=written["return"])


def _annotations(thing: Any) -> dict[str, str]:
    """Return the annotations of a class or function as its source writes them."""
    node = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    if isinstance(node, ast.ClassDef):
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        return {ast.unparse(each.target): ast.unparse(each.annotation) for each in fields}
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    arguments = [each for each in ast.walk(node.args) if isinstance(each, ast.arg) and each.annotation]
    found = [(each.arg, each.annotation) for each in arguments] + [("return", node.returns)]
    return {name: ast.unparse(annotation) for name, annotation in found if annotation}


def _members(kind: type) -> Iterator[str]:
    if issubclass(kind, Enum):
        yield ", ".join(f"`{member.name}` = `{member.value}`" for member in kind)
        return
    yield from ("| field | type | default |", "|---|---|---|")
    if not issubclass(kind, msgspec.Struct):
        for name, hint in typing.get_type_hints(kind).items():
            yield f"| `{name}` | `{_type(hint)}` | |"
        return
    written = [_annotations(base) for base in reversed(kind.__mro__) if inspect.get_annotations(base)]
    hints = {name: hint for each in written for name, hint in each.items()}
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    required = [msgspec.NODEFAULT] * (len(names) - len(defaults))
    for name, default in zip(names, [*required, *defaults], strict=True):
        yield f"| `{name}` | `{_escaped(hints[name])}` | {_default(default)} |"


def _type(hint: Any) -> str:
    return _escaped(hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint))


def _escaped(text: str) -> str:
    """Return a text as the content of a table's cell."""
    return text.replace("|", "\\|")


def _default(default: Any) -> str:
    if default is msgspec.NODEFAULT:
        return "required"
    if (factory := getattr(default, "factory", None)) is not None:
        return f"`{factory()!r}`"
    return f"`{default.value!r}`" if isinstance(default, Enum) else f"`{default!r}`"


def _first_paragraph(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def cli() -> Iterator[str]:
    yield from ("# Command line", "", NOTE, "")
    yield "Global options are accepted anywhere before `--`. Every command accepts `--json`: [JSON output](json.md)."
    yield from ("", "## Quiet output", "", *QUIET)
    yield from ("", "## Exit codes", "", "| code | meaning |", "|---|---|")
    yield from (f"| {code.value} | {EXIT_CODES[code]} |" for code in ExitCode)
    root = parser(COMMANDS)
    yield from _command("iris", root)


def job_files() -> Iterator[str]:
    yield from ("# Job files", "", NOTE, "", *JOB_FILES)
    rows = [row for row in JOB_FIELDS if row.job_file]
    for group in dict.fromkeys(row.group for row in rows):
        title = ("", f"## {group}") if group else ()
        yield from (
            *title,
            "",
            "| key | value | meaning | option | `defaults:` | in a task |",
            "|---|---|---|---|---|---|",
        )
        for row in rows:
            if row.group == group:
                words = ", ".join(f"`{word}`" for word in row.choices) if row.choices else row.kind.value
                option = f"`{row.option.split(',')[0].split()[0]}`" if row.option else ""
                defaults, inside = (
                    "yes" if row.defaults else "",
                    f"no: {row.not_inside}" if row.not_inside else "yes",
                )
                cells = (f"`{row.file_key}`", words, row.help, option, defaults, inside)
                yield f"| {' | '.join(map(_escaped, cells))} |"


def json() -> Iterator[str]:
    yield from ("# JSON output", "", NOTE, "", *json_page())


def known_causes() -> Iterator[str]:
    yield from ("# Known causes", "", NOTE, "")
    yield from (
        *KNOWN_CAUSES,
        "",
        "| rule | output or exit | cause | fix | source |",
        "|---|---|---|---|---|",
    )
    for rule in rules():
        signs = (
            *(f"`` {saying.strip()} ``" for saying in rule.text),
            *([rule.signal] if rule.signal else []),
            *(f"exit {code}" for code in rule.exits),
            *(f"reason `{reason}`" for reason in rule.reasons),
        )
        host = rule.source.split("/")[2]
        cells = (
            f"`{rule.name}`" + (" (*echo*)" if rule.echo else ""),
            "<br>".join(signs).replace("\r", "^M"),
            rule.cause,
            rule.fix,
            f"[{host}]({rule.source})",
        )
        yield f"| {' | '.join(map(_escaped, cells))} |"


def _command(path: str, command: Any) -> Iterator[str]:
    yield from ("", f"## `{path}`", "", inspect.cleandoc(command.help or ""), "")
    options = [each for each in command.params if each.param_type_name == "option"]
    context = command.context_class(command, info_name=path)
    yield from ("```", " ".join((path, *command.collect_usage_pieces(context))), "```")
    rows = [each for each in options if "--help" not in each.opts and not getattr(each, "hidden", False)]
    for group in dict.fromkeys(map(panel_of, rows)):
        title = ("", f"{group}:") if group else ()
        yield from (*title, "", "| option | |", "|---|---|")
        yield from (
            f"| `{_option_names(each)}` | {_escaped(_option_help(each))} |"
            for each in rows
            if panel_of(each) == group
        )
    if command.epilog:
        yield from ("", "```console", *(f"$ {line}" for line in example_lines(command.epilog)), "```")
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from _command(f"{path} {name}", child)


def _option_help(option: Any) -> str:
    """Return the option's help, with its default if `--help` shows it: `Keep files newer than this (default: 0s).`"""
    text = option.help or ""
    is_shown = option.show_default and not option.is_flag and option.default is not None
    return f"{text.removesuffix('.')} (default: {option.default})." if is_shown else text


def _option_names(option: Any) -> str:
    """Return the option's names and its metavar, escaped for a table: `--tail, -n N\\|all`."""
    value = f" {option.metavar}" if option.metavar else ""
    return _escaped(", ".join((*option.opts, *option.secondary_opts)) + value)


if __name__ == "__main__":
    sys.exit(main())
