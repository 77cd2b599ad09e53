"""Options that describe a job, derived from the table of job fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from iris_cli.cli import complete
from iris_cli.cli.command_types import number, whole_number
from iris_cli.core.model.job_fields import JOB_FIELDS, JobField, Kind

_TYPES: Mapping[Kind, Any] = {
    Kind.CORES: float | None,
    Kind.POSITIVE: int | None,
    Kind.COUNT: int | None,
    Kind.FLAG: bool | None,
    **dict.fromkeys((Kind.LINES, Kind.DIRECTORY, Kind.VARIABLE_FILE), Path | None),
    **dict.fromkeys((Kind.CONSTRAINTS, Kind.TAINTS, Kind.JOBS, Kind.PORTS), list[str] | None),
    **dict.fromkeys((Kind.VARIABLES, Kind.LABELS, Kind.SECRETS), list[str] | None),
}
"""Types of option values. All other kinds are text."""
_NUMBERS: Mapping[Kind, Callable[[str], float]] = {
    Kind.CORES: number,
    Kind.POSITIVE: whole_number,
    Kind.COUNT: whole_number,
}
_OFFERS: Mapping[Kind, complete.Callback] = {
    Kind.TPU: complete.TPU,
    Kind.JOB: complete.JOB,
    Kind.JOBS: complete.JOB,
    Kind.GROUP: complete.ATTRIBUTE,
}
_GROUP_ORDER = {row.group: index for index, row in enumerate(JOB_FIELDS)}


def option(flags: str, *, group: str, text: str, value: str | None = None) -> Any:
    """Return an option of `launch` that is not a job field."""
    return typer.Option(flags, rich_help_panel=group, metavar=value, help=text, show_default=False)


def add_job_options(launch: Callable[..., int], without: Collection[str] = frozenset()) -> Callable[..., int]:
    """Replace the `**fields` of `launch` by a parameter for each job field with an option that is not in `without`."""
    signature = inspect.signature(launch, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    fields = [_parameter(row) for row in JOB_FIELDS if row.option and row.name not in without]
    launch.__signature__ = signature.replace(  # type: ignore[attr-defined]  # inspect.signature reads it
        parameters=sorted([*own, *fields], key=lambda each: _GROUP_ORDER.get(_group(each), -1))
    )
    return launch


def _parameter(row: JobField) -> inspect.Parameter:
    offer = complete.offer_words(row.choices) if row.choices is not None else _OFFERS.get(row.kind)
    typer_option = typer.Option(
        *row.flags,
        rich_help_panel=row.group,
        metavar=row.metavar or None,
        help=row.help,
        show_default=False,
        autocompletion=offer,
        parser=_NUMBERS.get(row.kind),
    )
    return inspect.Parameter(
        row.name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=None,
        annotation=Annotated[_TYPES.get(row.kind, str | None), typer_option],
    )


def _group(parameter: inspect.Parameter) -> str:
    options = get_args(parameter.annotation)[1:]
    return options[0].rich_help_panel or "" if options else ""
