"""Read job files, which contain the options of `iris launch` as YAML."""

import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from iris_cli.config import reading
from iris_cli.config.reading import Section, Setting
from iris_cli.config.variable_files import expand_home, path_of, read_env_file, read_lines, read_variables
from iris_cli.config.yaml_source import Report, read_yaml
from iris_cli.core import canonical_type, parse_array, parse_job_id, pattern, secret_source
from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.model.job import JobRequest, parse_early_signal
from iris_cli.core.model.job_fields import JOB_FIELDS, JobField, Kind, request_of
from iris_cli.core.model.variables import check_port_name
from iris_cli.core.resources import AUTO, Device, Resources
from iris_cli.core.units import parse_duration, parse_memory
from iris_cli.errors import ConfigError, UsageError

_SHELL_OPERATORS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>&1"})
_SHEBANG_OF_SH = pattern(r"#!\s*(/usr)?/bin/(env\s+)?(ba|da)?sh\b")


def load_job_file(path: Path) -> JobRequest:
    """Read a job file. Raises ConfigError with all problems of the file."""
    report = Report(path)
    root = read_yaml(path, report)
    request = Setting(root, "", report).read(job_request) if root else None
    report.raise_if_any()
    return request or JobRequest()


def require_command(request: JobRequest, path: Path) -> JobRequest:
    """Return the request of a job file. Raises UsageError if it has no command."""
    if not request.command:
        raise UsageError(f"{path} has no command", hint="add command: or script: to the file")
    return request


duration = reading.parsed(parse_duration)
"""Reader of seconds: `90s`, `10m`, `2h` or a number."""
size = reading.parsed(parse_memory)
"""Reader of bytes: `512MiB` or `8GB`."""
_job_id = reading.parsed(lambda text: str(parse_job_id(text)))


def cores(setting: Setting) -> float:
    return Resources(cpu=reading.number(setting)).cpu


def tpu_type(setting: Setting) -> str:
    return canonical_type(reading.text(setting))


def gpu(setting: Setting) -> str:
    """Parse `VARIANT`, `VARIANT:COUNT`, or `COUNT` for any variant."""
    device = gpu_device(setting)
    return f"{device.variant}:{device.count}" if device.count > 1 else device.variant


def gpu_device(setting: Setting) -> Device:
    """Parse `VARIANT`, `VARIANT:COUNT`, or `COUNT` for any variant, and return a Device."""
    variant, _, count = reading.scalar_text(setting).partition(":")
    if variant.isdecimal() and not count:
        variant, count = AUTO, variant
    if count and not (count.isascii() and count.isdecimal() and len(count) <= 3):
        raise UsageError(
            f"{count[:80]!r} is not a number of GPUs", hint="write VARIANT:COUNT, such as h100:8"
        )
    return Device("gpu", variant, int(count or 1))


def argv(setting: Setting) -> tuple[str, ...]:
    """Parse an argument vector: a list of words, or one line that is split into words like in a shell."""
    if isinstance(setting.node.value, tuple):
        return reading.list_of(reading.scalar_text)(setting)
    words = tuple(shlex.split(reading.text(setting)))
    if operators := _SHELL_OPERATORS.intersection(words):
        raise UsageError(
            f"{min(operators)!r} has a meaning only in a shell",
            hint='write [sh, -c, "..."], or script: in a job file',
        )
    return words


def _script(setting: Setting) -> tuple[str, ...]:
    """Return the argument vector that runs a shell script."""
    body = reading.text(setting)
    if body.startswith("#!") and _SHEBANG_OF_SH.match(body) is None:
        raise UsageError("a script runs with sh", hint="put it in a file and write command: [...]")
    return ("/bin/bash" if "bash" in body.partition("\n")[0] else "/bin/sh", "-c", body)


def _secret(setting: Setting) -> str:
    """Parse `NAME` or `NAME=@FILE`. A path relative to the job file becomes absolute."""
    name, file = secret_source(reading.text(setting))
    return f"{name}=@{setting.report.file.absolute().parent / expand_home(file)}" if file else name


def _check_text(parse: Callable[[str], object], words: str) -> str:
    """Return the text if `parse` accepts it. Otherwise raise the error of `parse`."""
    parse(words)
    return words


def _group_by(setting: Setting) -> str:
    with reading.section(setting) as coscheduling:
        return coscheduling.require("group_by", reading.text, "")


def _env_files(setting: Setting) -> dict[str, str]:
    """Read variables from files, whose paths are relative to the job file. Later files override earlier files."""
    is_list = isinstance(setting.node.value, tuple)
    names = [reading.scalar_text(item) for item in setting.items()] if is_list else [reading.text(setting)]
    found: dict[str, str] = {}
    for name in names:
        try:
            found |= read_env_file(setting.report.file.parent / expand_home(name))
        except ConfigError as error:
            for problem in error.problems:
                setting.problem(problem)
    return found


_READERS: Mapping[Kind, Callable[[Setting], Any]] = {
    Kind.NAME: _job_id,
    Kind.TEXT: reading.text,
    Kind.COMMAND: argv,
    Kind.SCRIPT: _script,
    Kind.TPU: lambda setting: AUTO if setting.node.value == AUTO else tpu_type(setting),
    Kind.GPU: gpu,
    Kind.CORES: cores,
    Kind.SIZE: size,
    Kind.POSITIVE: reading.integer(1),
    Kind.COUNT: reading.integer(0),
    Kind.FLAG: reading.boolean,
    Kind.DURATION: duration,
    Kind.SIGNAL: reading.parsed(partial(_check_text, parse_early_signal)),
    Kind.ARRAY: reading.parsed(partial(_check_text, parse_array)),
    Kind.CONSTRAINTS: reading.list_of(reading.parsed(parse_constraint)),
    Kind.TAINTS: reading.list_of(reading.matching_text(reading.NAME, "the name of a taint")),
    Kind.JOBS: reading.list_of(_job_id),
    Kind.PORTS: reading.list_of(reading.parsed(partial(_check_text, check_port_name))),
    Kind.SECRETS: reading.list_of(_secret),
    Kind.VARIABLES: read_variables,
    Kind.LABELS: reading.mapping_of(reading.scalar_text),
    Kind.GROUP: _group_by,
    Kind.DIRECTORY: lambda setting: str(path_of(setting)),
    Kind.VARIABLE_FILE: _env_files,
    Kind.LINES: lambda setting: read_lines(path_of(setting)),
}


_HINTS = {
    "regions": "write constraints: [region in a,b], or -c region=...",
    "group_by": "write coscheduling: {group_by: ATTRIBUTE}",
}
"""Keys that users write in place of the keys of job files."""


def reader_of(row: JobField) -> Callable[[Setting], Any]:
    return reading.one_of(row.choices) if row.choices is not None else _READERS[row.kind]


def read_field(found: Section, row: JobField) -> Any:
    """Return the value of a field in a section; None if it is omitted or invalid."""
    return found.get(row.file_key, reader_of(row))


def job_request(setting: Setting) -> JobRequest:
    """Parse the root of a job file."""
    with reading.section(setting) as job:
        fields = {row.name: read_field(job, row) for row in JOB_FIELDS if row.job_file}
        if "command" in job and "script" in job:
            job.setting_for("script").problem("a command is already given", "keep one of command and script")
        for key, hint in _HINTS.items():
            if key in job:
                job.get(key, lambda setting: setting)  # reported as a known key, with a more helpful hint
                job.setting_for(key).problem(f"{key} is not a field of jobs", hint)
    return request_of(fields)
