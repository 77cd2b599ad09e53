"""Parse the options that describe a job into a request."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.model.job_fields import JOB_FIELDS, JobField, Kind, request_of
from iris_cli.core.text import one_of
from iris_cli.core.units import parse_duration, parse_memory
from iris_cli.errors import IrisError, UsageError

if TYPE_CHECKING:
    from iris_cli.core.model.job import JobRequest

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


def parse_pairs(option: str, texts: Texts) -> dict[str, str]:
    """Parse NAME=VALUE pairs. Raises UsageError."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{option} {text[:80]!r} is not NAME=VALUE")
        found[name] = value
    return found


def _secrets(texts: Texts) -> tuple[str, ...]:
    from iris_cli.config.variable_files import expand_home
    from iris_cli.core.model.variables import secret_source

    sources = map(secret_source, texts)
    return tuple(f"{name}=@{expand_home(file).absolute()}" if file else name for name, file in sources)


def _read_lines(file: str) -> tuple[str, ...]:
    from iris_cli.config.variable_files import read_lines

    return read_lines(Path(file))


def _variables(texts: Texts) -> dict[str, str]:
    env = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign and name not in os.environ:
            raise UsageError(
                f"--env {name[:80]}: not set in this shell", hint=f"write --env {name[:80]}=VALUE"
            )
        env[name] = value if sign else os.environ[name]
    return env


def _read_variables(file: str) -> dict[str, str]:
    from iris_cli.config.variable_files import read_env_file  # loads the YAML library

    return read_env_file(Path(file))


_READERS: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.CONSTRAINTS: lambda texts: tuple(map(parse_constraint, texts)),
    Kind.TAINTS: tuple,
    Kind.JOBS: tuple,
    Kind.PORTS: lambda texts: tuple(name for text in texts for name in text.split(",")),
    Kind.SECRETS: _secrets,
    Kind.VARIABLES: _variables,
    Kind.VARIABLE_FILE: _read_variables,
    Kind.LABELS: partial(parse_pairs, "--label"),
    Kind.LINES: _read_lines,
}
_PARSERS: Mapping[Kind, Callable[[str], Any]] = {Kind.SIZE: parse_memory, Kind.DURATION: parse_duration}
"""Parsers of a single value. `_read` puts the name of the option in front of their error messages."""
