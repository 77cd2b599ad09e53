"""The way from the options that describe a job to a request."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from iris_cli.errors import IrisError, UsageError

if TYPE_CHECKING:
    from iris_cli.core.constraints import Constraint
    from iris_cli.core.job import JobRequest

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
Texts = list[str] | None

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
    "keep_going",
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
        spread=options["spread"] or None,
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


def _one_of(words: type[E]) -> Callable[[str], E]:
    from iris_cli.core.nearest import one_of

    return lambda text: words(one_of(text, words))


def _tuple(texts: Texts) -> tuple[str, ...] | None:
    return tuple(texts) if texts else None


def _constraints(options: Mapping[str, Any]) -> tuple[Constraint, ...] | None:
    preferred = ["~" + text.strip().removeprefix("~") for text in options["prefer"] or ()]
    texts = [*(options["constraint"] or ()), *preferred]
    if not texts:
        return None
    from iris_cli.core.constraint_syntax import parse_constraint

    return tuple(map(parse_constraint, texts))


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
    if not texts:
        return None
    from iris_cli.config.locate import at_home
    from iris_cli.core.variables import secret_source

    sources = map(secret_source, texts)
    return _tuple([f"{name}=@{at_home(file).absolute()}" if file else name for name, file in sources])


def _lines(file: Path | None) -> tuple[str, ...] | None:
    if file is None:
        return None
    from iris_cli.config.lines_file import read_lines

    return read_lines(file)


def _environment(texts: Texts, file: Path | None) -> dict[str, str] | None:
    env = _variables_of(file) if file is not None else {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not sign and name not in os.environ:
            raise UsageError(
                f"--env {name[:80]}: there is no such variable here", hint=f"write --env {name[:80]}=VALUE"
            )
        env[name] = value if sign else os.environ[name]
    return env or None


def _variables_of(file: Path) -> dict[str, str]:
    from iris_cli.config.env_file import read_env_file  # which loads the library of YAML

    return read_env_file(file)
