"""What `cluster.yaml` says, in one line, or everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.config.schema import ClusterConfig
from iris_cli.core.units import count
from iris_cli.errors import ConfigError
from iris_cli.render.console import Output


class ValidDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris config validate` for a valid file. `problems` is empty."""

    valid: bool
    file: Path
    cluster: str
    slices: int
    workers: int
    scale_groups: int
    problems: Sequence[str]
    warnings: Sequence[str]


class InvalidDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris config validate` for a file that is not valid. `valid` is false."""

    valid: bool
    problems: Sequence[str]
    hint: str


def show_valid(output: Output, config: ClusterConfig) -> None:
    """How much was found; what is odd goes to stderr."""
    slices = len({host.slice for host in config.hosts if host.slice})
    if output.as_json:
        output.document(
            ValidDocument(
                valid=True,
                file=config.path,
                cluster=config.name,
                slices=slices,
                workers=len(config.hosts),
                scale_groups=len(config.scale_groups),
                problems=(),
                warnings=config.warnings,
            )
        )
        return
    for warning in config.warnings:
        output.warning(f"warning: {warning}")
    found = [count(slices, "slice"), count(len(config.hosts), "worker")]
    if config.scale_groups:
        found.append(count(len(config.scale_groups), "scale group"))
    output.done(f"{config.path}: ok, cluster {config.name}: {', '.join(found)}")


def show_problems(output: Output, error: ConfigError) -> None:
    """The problems as JSON."""
    problems = error.problems or (error.message,)
    output.document(InvalidDocument(valid=False, problems=problems, hint=error.hint))
