"""Options that describe a job, derived from the table of job fields, and the request that they describe."""

import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from iris_cli.cli import complete
from iris_cli.cli.command_types import number, option, parse_path, whole_number
from iris_cli.core import JobRequest
from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.model.job_fields import JOB_FIELDS, JobField, Kind, request_of
from iris_cli.core.text import one_of, parse_pairs, parse_variables
from iris_cli.core.units import parse_duration, parse_memory
from iris_cli.errors import IrisError, UsageError

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
_TYPER_PARSERS: Mapping[Kind, Callable[[str], float | Path]] = {
    Kind.CORES: number,
    Kind.POSITIVE: whole_number,
    Kind.COUNT: whole_number,
    **dict.fromkeys((Kind.LINES, Kind.DIRECTORY, Kind.VARIABLE_FILE), parse_path),
}
_OFFERS: Mapping[Kind, complete.Callback] = {
    Kind.TPU: complete.TPU,
    Kind.JOB: complete.JOB,
    Kind.JOBS: complete.JOB,
    Kind.GROUP: complete.ATTRIBUTE,
}
_GROUP_ORDER = {row.group: index for index, row in enumerate(JOB_FIELDS)}


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
    parser = _TYPER_PARSERS.get(row.kind)
    typer_option = option(
        row.metavar or None, row.help, *row.flags, offer=offer, parser=parser, rich_help_panel=row.group
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


E = TypeVar("E", bound=StrEnum)
Texts = Sequence[str]


def parse_request(options: Mapping[str, Any], command: tuple[str, ...]) -> JobRequest:
    """Return the request that the options describe. Fields without an option are None. Raises UsageError."""
    values = {row.name: _read(row, options.get(row.name)) for row in JOB_FIELDS if row.option}
    return request_of({**values, "command": command or None})


def _read(row: JobField, value: Any) -> Any:
    if value is None or value in ([], ()):  # an omitted repeatable option is empty
        return None
    if row.kind in _READERS:
        return _READERS[row.kind](value)
    parse = _one_of(row.choices) if row.choices is not None else _PARSERS.get(row.kind)
    if parse is None:
        return value
    try:
        return parse(value)
    except IrisError as error:
        raise UsageError(f"{row.flags[0]}: {error.message}", hint=error.hint) from error


def _one_of(words: type[E]) -> Callable[[str], E]:
    return lambda text: words(one_of(text, words))


def _secrets(texts: Texts) -> tuple[str, ...]:
    from iris_cli.config.variable_files import expand_home
    from iris_cli.core.model.variables import secret_source

    sources = map(secret_source, texts)
    return tuple(f"{name}=@{expand_home(file).absolute()}" if file else name for name, file in sources)


def _read_lines(file: str) -> tuple[str, ...]:
    from iris_cli.config.variable_files import read_lines

    return read_lines(Path(file))


def _read_variables(file: str) -> dict[str, str]:
    from iris_cli.config.variable_files import read_env_file  # loads the YAML library

    return read_env_file(Path(file))


_READERS: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.CONSTRAINTS: lambda texts: tuple(map(parse_constraint, texts)),
    Kind.TAINTS: tuple,
    Kind.JOBS: tuple,
    Kind.PORTS: lambda texts: tuple(name for text in texts for name in text.split(",")),
    Kind.SECRETS: _secrets,
    Kind.VARIABLES: lambda texts: parse_variables(texts, os.environ),
    Kind.VARIABLE_FILE: _read_variables,
    Kind.LABELS: partial(parse_pairs, "--label"),
    Kind.LINES: _read_lines,
    Kind.DIRECTORY: str,
}
_PARSERS: Mapping[Kind, Callable[[str], Any]] = {Kind.SIZE: parse_memory, Kind.DURATION: parse_duration}
"""Parsers of a single value. `_read` puts the name of the option in front of their error messages."""
