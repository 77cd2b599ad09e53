"""The job fields of the client and their conversion to a request."""

from __future__ import annotations

import operator
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from msgspec.structs import replace

from iris_cli.core import Constraint, JobRequest, constraint_syntax, did_you_mean, units
from iris_cli.core.model.array import MAX_INDEXES, check_line
from iris_cli.core.model.job_fields import JOB_FIELDS, JobField, Kind, request_of
from iris_cli.errors import UsageError

Constraints = Sequence[Constraint | str]
"""Constraints, or their texts as on the command line: `"region=us-west4"`, `"~pool"`."""


class JobFields(TypedDict, total=False):
    """The fields of a job. Omitted fields have the defaults of a job file.

    Sizes are bytes or text (`"8GiB"`). Durations are seconds or text (`"2h"`). `prefer` are soft constraints: iris
    prefers workers that match, but may use other workers. `group_by` makes the job a gang. `secrets` are names of
    variables in the operator's environment. `array` creates a task for each index (`"0-9"`). `each_line` creates a task
    for each line. With `signal="USR1@120"`, iris sends SIGUSR1 to the tasks 120 seconds before the time limit.
    """

    name: str | None
    tpu: str | None
    gpu: str | int | None
    cpu: float | None
    memory: int | str | None
    replicas: int | None
    slices: int | None
    spread: bool | None
    keep_going: bool | None
    prefer: Constraints | None
    tolerate: Sequence[str] | None
    group_by: str | None
    env: Mapping[str, str] | None
    secrets: Sequence[str] | None
    setup: str | None
    env_preset: str | None
    priority: str | None
    max_retries_failure: int | None
    max_retries_preemption: int | None
    max_task_failures: int | None
    scheduling_timeout: float | str | None
    timeout: float | str | None
    setup_timeout: float | str | None
    grace: float | str | None
    lease: float | str | None
    silent_after: float | str | None
    replace_lost: str | None
    labels: Mapping[str, str] | None
    after: Sequence[str] | None
    workdir: str | os.PathLike[str] | None
    ports: Sequence[str] | None
    signal: str | None
    array: str | None
    each_line: Sequence[str] | None
    image: str | None
    force: bool | None


def job_request(
    command: Sequence[str] | str,
    constraints: Constraints | None,
    fields: Mapping[str, Any],
    method: str = "submit",
) -> JobRequest:
    """Return the request with these fields. `method`: the name of the called method, for the error message.

    Raises UsageError for an invalid value, and TypeError for an unknown field.
    """
    if unknown := fields.keys() - _FIELDS.keys():
        name = min(unknown)
        meant = did_you_mean("group_by" if name == "coscheduling" else name, {"constraints", *_FIELDS})
        raise TypeError(
            f"{method}() got an unexpected keyword argument {name!r}" + (f": {meant}" if meant else "")
        )
    values = {name: _read(_FIELDS[name], value) for name, value in fields.items() if value is not None}
    parsed = None if constraints is None else _read(_CONSTRAINTS, constraints)
    return request_of({**values, "command": _command(command), "constraints": parsed})


def without_inheritance(request: JobRequest) -> JobRequest:
    """Return the request of a child job that inherits no constraints."""
    own = request.constraints or ()
    return replace(request, constraints=own, inherit_constraints=False if own else None)


def _command(command: Sequence[str] | str) -> tuple[str, ...]:
    if isinstance(command, str):
        try:
            return tuple(shlex.split(command))
        except ValueError as error:
            raise UsageError(f"the command can't be split into words: {error}") from None
    words = (os.fspath(each) if isinstance(each, os.PathLike) else each for each in command)
    return tuple(_text(each, "a word of the command") for each in words)


def _read(row: JobField, value: Any) -> Any:
    reader = row.choices or _READERS.get(row.kind)
    try:
        return value if reader is None else reader(value)
    except UsageError as error:
        raise UsageError(f"{row.name}: {error.message}", hint=error.hint) from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"{row.name}: {error}") from None


def _constraints(constraints: Constraints) -> tuple[Constraint, ...]:
    return tuple(map(_constraint, _list(constraints)))


def _constraint(value: Any) -> Constraint:
    if isinstance(value, Constraint):
        return value
    return constraint_syntax.parse_constraint(_text(value, "a constraint"))


def _list(values: Any) -> Sequence[Any]:
    if isinstance(values, str | bytes | Mapping):
        raise UsageError(f"must be a list, not {type(values).__name__}", hint="write [...]")
    return tuple(values)


def _texts(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(_text(each, "an item") for each in _list(values))


def _lines(values: Sequence[str]) -> tuple[str, ...]:
    lines = _texts(values)
    if not 0 < len(lines) <= MAX_INDEXES:
        raise UsageError(f"{len(lines)} lines; a job has 1 to {MAX_INDEXES}")
    for number, line in enumerate(lines, start=1):
        check_line(f"line {number}", line.encode())
    return lines


def _pairs(values: Mapping[str, str]) -> dict[str, str]:
    return {_text(key, "a name"): _text(each, key) for key, each in dict(values).items()}


def _text(value: Any, subject: str = "") -> str:
    """Return the text. Raises UsageError for another type. `subject`: the item of a field that must be text."""
    if not isinstance(value, str):
        hint = "pass str(VALUE)" if subject else ""
        raise UsageError(f"{subject} must be text, not {value!r:.80}".strip(), hint=hint)
    return value


def _directory(value: Any) -> str:
    directory = _text(os.fspath(value))
    if not directory:
        raise UsageError("must not be blank")
    return directory


def _whole_number(value: Any) -> int:
    if isinstance(value, bool):
        raise UsageError(f"must be a whole number, not {value}")
    try:
        return operator.index(value)
    except TypeError:
        raise UsageError(f"must be a whole number, not {value!r:.80}") from None


def _number(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise UsageError(f"must be a number, not {value!r:.80}")


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"must be True or False, not {value!r:.80}")
    return value


_FIELDS = {row.name: row for row in JOB_FIELDS if row.client}
_CONSTRAINTS = next(row for row in JOB_FIELDS if row.name == "constraints")
_READERS: Mapping[Kind, Callable[[Any], Any]] = {
    **dict.fromkeys((Kind.NAME, Kind.TEXT, Kind.TPU, Kind.SIGNAL, Kind.ARRAY, Kind.GROUP), _text),
    **dict.fromkeys((Kind.TAINTS, Kind.JOBS, Kind.PORTS, Kind.SECRETS), _texts),
    **dict.fromkeys((Kind.POSITIVE, Kind.COUNT), _whole_number),
    **dict.fromkeys((Kind.VARIABLES, Kind.LABELS), _pairs),
    Kind.GPU: lambda value: value if isinstance(value, str) else f"auto:{_whole_number(value)}",
    Kind.CORES: _number,
    Kind.FLAG: _flag,
    Kind.SIZE: units.parse_memory,
    Kind.DURATION: units.parse_duration,
    Kind.CONSTRAINTS: _constraints,
    Kind.LINES: _lines,
    Kind.DIRECTORY: _directory,
}
