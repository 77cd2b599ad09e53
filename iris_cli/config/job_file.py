"""Job files: the options of `iris launch` as YAML."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from iris_cli.config.locate import at_home
from iris_cli.config.reading import (
    Place,
    Section,
    boolean,
    integer,
    list_of,
    mapping_of,
    matching,
    number,
    one_of,
    section,
    text,
    written,
)
from iris_cli.config.variable_files import env, read_env_file, read_lines
from iris_cli.config.yaml_source import Report, read_yaml
from iris_cli.core import Constraint, canonical_type, parse_array, parse_job_id, pattern, secret_source
from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.model.job import JobRequest, parse_early_signal
from iris_cli.core.model.job_fields import JOB_FIELDS, JobField, Kind, request_of
from iris_cli.core.resources import AUTO, Device, Resources
from iris_cli.core.units import parse_duration, parse_memory
from iris_cli.errors import ConfigError, UsageError

_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SHELL_SIGNS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>&1"})
_SHEBANG_OF_SH = pattern(r"#!\s*(/usr)?/bin/(env\s+)?(ba|da)?sh\b")


def load_job_file(path: Path) -> JobRequest:
    """Read a job file. Raises ConfigError with all its problems."""
    report = Report(path)
    root = read_yaml(path, report)
    request = Place(root, "", report).read(job_request) if root else None
    report.raise_if_any()
    return request or JobRequest()


def duration(place: Place) -> float:
    """Parse seconds from `90s`, `10m`, `2h` or a number."""
    return parse_duration(written(place))


def size(place: Place) -> int:
    """Parse bytes from `512MiB` or `8GB`."""
    return parse_memory(written(place))


def cores(place: Place) -> float:
    return Resources(cpu=number(place)).cpu


def tpu_type(place: Place) -> str:
    """Parse a TPU type into its canonical form."""
    return canonical_type(text(place))


def gpu(place: Place) -> str:
    """Parse `VARIANT`, `VARIANT:COUNT`, or a count of any variant."""
    device = gpu_device(place)
    return f"{device.variant}:{device.count}" if device.count > 1 else device.variant


def gpu_device(place: Place) -> Device:
    """Parse GPUs, as `gpu` does, into a device."""
    variant, _, count = written(place).partition(":")
    if variant.isdecimal() and not count:
        variant, count = AUTO, variant
    if count and not (count.isascii() and count.isdecimal() and len(count) <= 3):
        raise UsageError(
            f"{count[:80]!r} is not a number of GPUs", hint="write VARIANT:COUNT, such as h100:8"
        )
    return Device("gpu", variant, int(count or 1))


def argv(place: Place) -> tuple[str, ...]:
    """Parse an argument vector: a list, or a line split into words as in a shell, without any other shell syntax."""
    if isinstance(place.node.value, tuple):
        return list_of(written)(place)
    words = tuple(shlex.split(text(place)))
    if signs := _SHELL_SIGNS.intersection(words):
        raise UsageError(
            f"{min(signs)!r} has a meaning only in a shell",
            hint='write [sh, -c, "..."], or script: in a job file',
        )
    return words


def _script(place: Place) -> tuple[str, ...]:
    """Return the argument vector that runs this shell script."""
    body = text(place)
    if body.startswith("#!") and _SHEBANG_OF_SH.match(body) is None:
        raise UsageError("a script runs with sh", hint="put it in a file and write command: [...]")
    return ("/bin/bash" if "bash" in body.partition("\n")[0] else "/bin/sh", "-c", body)


def _constraint(place: Place) -> Constraint:
    return parse_constraint(written(place))


def _secret(place: Place) -> str:
    """Parse `NAME` or `NAME=@FILE`; a relative path starts at the job file and becomes absolute."""
    name, file = secret_source(text(place))
    return f"{name}=@{place.report.file.absolute().parent / at_home(file)}" if file else name


def _tpu_or_auto(place: Place) -> str:
    return AUTO if place.node.value == AUTO else tpu_type(place)


def _checked(parse: Callable[[str], object], words: str) -> str:
    """Return the words unchanged if `parse` accepts them."""
    parse(words)
    return words


def _each_line(place: Place) -> tuple[str, ...]:
    """Read the lines of a file; a relative path starts at the job file."""
    return read_lines(place.report.file.parent / at_home(text(place)))


def _group_by(place: Place) -> str:
    with section(place) as coscheduling:
        return coscheduling.need("group_by", text, "")


def _workdir(place: Place) -> str:
    """Parse a directory; a relative path starts at the job file."""
    return str(place.report.file.parent / at_home(text(place)))


def _env_files(place: Place) -> dict[str, str]:
    """Read variables from one or more files; later ones override. Relative paths start at the job file."""
    names = (
        [written(item) for item in place.items()] if isinstance(place.node.value, tuple) else [text(place)]
    )
    found: dict[str, str] = {}
    for name in names:
        try:
            found |= read_env_file(place.report.file.parent / at_home(name))
        except ConfigError as error:
            for problem in error.problems:
                place.problem(problem)
    return found


_READERS: Mapping[Kind, Callable[[Place], Any]] = {
    Kind.NAME: lambda place: str(parse_job_id(written(place))),
    Kind.TEXT: text,
    Kind.COMMAND: argv,
    Kind.SCRIPT: _script,
    Kind.TPU: _tpu_or_auto,
    Kind.GPU: gpu,
    Kind.CORES: cores,
    Kind.SIZE: size,
    Kind.POSITIVE: integer(1),
    Kind.COUNT: integer(0),
    Kind.FLAG: boolean,
    Kind.DURATION: duration,
    Kind.SIGNAL: lambda place: _checked(parse_early_signal, written(place)),
    Kind.ARRAY: lambda place: _checked(parse_array, written(place)),
    Kind.CONSTRAINTS: list_of(_constraint),
    Kind.TAINTS: list_of(matching(_NAME, "the name of a taint")),
    Kind.JOBS: list_of(lambda place: str(parse_job_id(written(place)))),
    Kind.PORTS: list_of(written),
    Kind.SECRETS: list_of(_secret),
    Kind.VARIABLES: env,
    Kind.LABELS: mapping_of(written),
    Kind.GROUP: _group_by,
    Kind.DIRECTORY: _workdir,
    Kind.VARIABLE_FILE: _env_files,
    Kind.LINES: _each_line,
}


def reader_of(row: JobField) -> Callable[[Place], Any]:
    """Return the reader of a field's value."""
    return one_of(row.choices) if row.choices is not None else _READERS[row.kind]


def read_field(found: Section, row: JobField) -> Any:
    """Return the value of a field in a section, None if it is omitted or wrong."""
    return found.get(row.file_key, reader_of(row))


def job_request(place: Place) -> JobRequest:
    """Parse the root of a job file."""
    with section(place) as job:
        fields = {row.name: read_field(job, row) for row in JOB_FIELDS if row.job_file}
        if "command" in job and "script" in job:
            job.at("script").problem("a command is already given", "keep one of command and script")
        _report_misleading_keys(job)
    return request_of(fields)


def _report_misleading_keys(job: Section) -> None:
    """Report keys for which "unknown key" would be misleading."""
    if "regions" in job.entries:
        job.get("regions", lambda place: place)
        hint = "write constraints: [region in a,b], or -c region=..."
        job.at("regions").problem("regions is not a field of jobs", hint)
