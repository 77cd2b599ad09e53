"""The options that describe a job, one for each field of a job file, and the way from them to a request."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from iris_cli.errors import IrisError, UsageError

if TYPE_CHECKING:
    from iris_cli.core.constraints import Constraint
    from iris_cli.core.job import JobRequest

T = TypeVar("T")


def _option(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, show_default=False)


Texts = list[str] | None

Name = Annotated[str | None, _option("--name", text="Name of the job; made from the command if left out.")]
Tpu = Annotated[str | None, _option("--tpu", text="TPU type, such as v5litepod-16, or auto.")]
Gpu = Annotated[str | None, _option("--gpu", text="GPU model or auto, with :N for N of them.")]
Cpu = Annotated[float | None, _option("--cpu", text="Cores for each task.")]
Memory = Annotated[str | None, _option("--memory", text="Memory for each task: 512MiB, 8GB.")]
Replicas = Annotated[int | None, _option("--replicas", text="Number of tasks.")]
Slices = Annotated[int | None, _option("--slices", text="Number of slices, or groups, of a gang.")]
Constraints = Annotated[
    Texts, _option("--constraint", "-c", text="region=us-west4, pool, !pool, tpu-worker-id>=1")
]
Prefer = Annotated[Texts, _option("--prefer", text="A constraint that ranks and never excludes.")]
Tolerate = Annotated[Texts, _option("--tolerate", text="A taint that doesn't matter.")]
GroupBy = Annotated[
    str | None, _option("--group-by", text="Make a gang on workers that share this attribute.")
]
Env = Annotated[Texts, _option("--env", "-e", text="NAME=VALUE, or NAME to take it from here.")]
EnvFile = Annotated[Path | None, _option("--env-file", text="File of NAME=VALUE lines.")]
Secret = Annotated[
    Texts, _option("--secret", text="NAME of a variable, or NAME=@FILE: read at each start only.")
]
Workdir = Annotated[
    Path | None, _option("--workdir", text="Directory to ship: what git doesn't ignore, less .irisignore.")
]
Setup = Annotated[str | None, _option("--setup", text="Shell command to run before the task.")]
Preset = Annotated[str | None, _option("--env-preset", text="Variables for jax, torchrun or slurm programs.")]
PriorityName = Annotated[str | None, _option("--priority", text="high, normal or low.")]
RetriesFailure = Annotated[int | None, _option("--max-retries-failure", text="Tries after a failure.")]
RetriesPreemption = Annotated[
    int | None, _option("--max-retries-preemption", text="Tries after a lost host.")
]
TaskFailures = Annotated[
    int | None, _option("--max-task-failures", text="Failed tasks that the job survives.")
]
SchedulingTimeout = Annotated[
    str | None, _option("--scheduling-timeout", text="Give up if not placed by then.")
]
Timeout = Annotated[str | None, _option("--timeout", text="Time limit of each task: 90s, 10m, 2h.")]
SetupTimeout = Annotated[str | None, _option("--setup-timeout", text="Time limit of --setup.")]
Grace = Annotated[str | None, _option("--grace", text="Time between SIGTERM and SIGKILL.")]
Lease = Annotated[str | None, _option("--lease", text="Stop a task that nobody could ask about for so long.")]
ReplaceLost = Annotated[
    str | None, _option("--replace-lost", text="Whose long silence is death: never, preemptible or always.")
]
Label = Annotated[Texts, _option("--label", text="NAME=VALUE, to find the job by.")]
After = Annotated[Texts, _option("--after", text="Start when this job has succeeded.")]
Ports = Annotated[
    Texts, _option("--ports", text="Names of ports, such as http,metrics: IRIS_PORT_HTTP has a free number.")
]
Signal = Annotated[
    str | None, _option("--signal", text="USR1@120: this signal, 120 s before the time limit.")
]
Array = Annotated[
    str | None, _option("--array", text="A task for each index: 0-9,20 or 0-99%4, four at a time.")
]
EachLine = Annotated[Path | None, _option("--each-line", text="A task for each line of this file.")]
Force = Annotated[bool, typer.Option("--force", help="Queue it even if no worker could run it now.")]
NoInherit = Annotated[
    bool,
    typer.Option("--no-inherit-constraints", help="Inside a task: without the constraints of its job."),
]
RequestId = Annotated[
    str | None, _option("--request-id", text="Inside a task: the same id is answered the same, ever again.")
]

_AS_THEY_ARE = (
    "name",
    "tpu",
    "gpu",
    "cpu",
    "replicas",
    "slices",
    "group_by",
    "setup",
    "signal",
    "array",
    "max_retries_failure",
    "max_retries_preemption",
    "max_task_failures",
)
_DURATIONS = ("scheduling_timeout", "timeout", "setup_timeout", "grace", "lease")


def request(options: Mapping[str, Any], command: tuple[str, ...]) -> JobRequest:
    """The request that the options describe; what wasn't said is None. Raises UsageError."""
    from iris_cli.core.job import EnvPreset, JobRequest, Priority
    from iris_cli.core.job import ReplaceLost as Policy
    from iris_cli.core.units import parse_duration, parse_memory

    fields: dict[str, Any] = {name: options[name] for name in _AS_THEY_ARE}
    fields |= {name: _read(parse_duration, options, name) for name in _DURATIONS}
    return JobRequest(
        command=command or None,
        memory=_read(parse_memory, options, "memory"),
        constraints=_constraints(options),
        tolerate=_tuple(options["tolerate"]),
        env=_environment(options["env"], options["env_file"] and Path(options["env_file"])),
        secrets=_secrets(options["secret"]),
        workdir=None if options["workdir"] is None else str(options["workdir"]),
        env_preset=_read(_one_of(EnvPreset), options, "env_preset"),
        priority=_read(_one_of(Priority), options, "priority"),
        replace_lost=_read(_one_of(Policy), options, "replace_lost"),
        labels=pairs("--label", options["label"]),
        after=_tuple(options["after"]),
        ports=_tuple([name for words in options["ports"] or () for name in words.split(",")]),
        each_line=_lines(options["each_line"] and Path(options["each_line"])),
        force=options["force"] or None,
        **fields,
    )


def _read(parse: Callable[[str], T], options: Mapping[str, Any], name: str) -> T | None:
    if options[name] is None:
        return None
    try:
        return parse(options[name])
    except IrisError as error:
        raise UsageError(f"--{name.replace('_', '-')}: {error.message}", hint=error.hint) from error


def _one_of(words: type[T]) -> Callable[[str], T]:
    def parse(text: str) -> T:
        try:
            return words(text)  # type: ignore[call-arg]  # an enum is called with a value
        except ValueError:
            known = ", ".join(str(each) for each in words)  # type: ignore[attr-defined]  # an enum is iterable
            raise UsageError(f"{text[:80]!r} is not one of {known}") from None

    return parse


def _tuple(texts: Texts) -> tuple[str, ...] | None:
    return tuple(texts) if texts else None


def _constraints(options: Mapping[str, Any]) -> tuple[Constraint, ...] | None:
    from iris_cli.core.constraint_syntax import parse_constraint

    preferred = ["~" + text.strip().removeprefix("~") for text in options["prefer"] or ()]
    texts = [*(options["constraint"] or ()), *preferred]
    return tuple(map(parse_constraint, texts)) if texts else None


def pairs(option: str, texts: Texts) -> dict[str, str] | None:
    """NAME=VALUE pairs. Raises UsageError."""
    if not texts:
        return None
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{option} {text[:80]!r} is not NAME=VALUE")
        found[name] = value
    return found


def _secrets(texts: Texts) -> tuple[str, ...] | None:
    from iris_cli.core.variables import secret_source

    sources = map(secret_source, texts or ())
    return _tuple(
        [f"{name}=@{Path(file).expanduser().absolute()}" if file else name for name, file in sources]
    )


def _lines(file: Path | None) -> tuple[str, ...] | None:
    if file is None:
        return None
    from iris_cli.config.lines_file import read_lines

    return read_lines(file)


def _environment(texts: Texts, file: Path | None) -> dict[str, str] | None:
    from iris_cli.config.env_file import read_env_file

    env = read_env_file(file) if file is not None else {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not sign and name not in os.environ:
            raise UsageError(
                f"--env {name[:80]}: there is no such variable here", hint=f"write --env {name[:80]}=VALUE"
            )
        env[name] = value if sign else os.environ[name]
    return env or None
