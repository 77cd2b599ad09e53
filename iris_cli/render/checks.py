"""Print the findings of `iris doctor` with their fixes, and the problems of `cluster.yaml`."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from iris_cli.config.schema import ClusterConfig
from iris_cli.core.units import count, format_memory
from iris_cli.errors import ConfigError
from iris_cli.ops.checks.findings import Finding, Level
from iris_cli.ops.views.cycles import Cycles
from iris_cli.render.console import Output
from iris_cli.render.layout import clean_line
from iris_cli.render.tables import fold

if TYPE_CHECKING:
    from iris_cli.ops.checks.bundle import Part

_WORKER = "worker "  # prefix of a subject
_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


class BundlePart(Struct, frozen=True):
    """One part of a bundle. `size` in bytes."""

    name: str
    lines: int
    size: int


class WrittenBundle(Struct, frozen=True):
    """The file that `iris doctor --bundle` wrote."""

    file: Path
    parts: Sequence[BundlePart]


class ChecksDocument(Struct, frozen=True):
    """The result of `iris doctor`. `ok`: true if no check failed. `cycles` is null without a valid configuration.

    `bundle` is absent without `--bundle`.
    """

    findings: Sequence[Finding]
    ok: bool
    cycles: Cycles | None
    bundle: WrittenBundle | UnsetType = UNSET


def show_checks(
    output: Output,
    findings: Iterable[Finding],
    cycles: Callable[[], Cycles | None] = lambda: None,
    bundle: Callable[[list[Finding]], WrittenBundle | None] = lambda _: None,
) -> list[Finding]:
    """Print the findings while they arrive, equal findings of several subjects once. Return all findings.

    `cycles` returns what runs cycles, for JSON. `bundle` writes the findings to a file if the user requested a bundle.
    """
    if output.as_json:
        found = list(findings)
        is_ok, runner = not _count(found, Level.FAIL), cycles()
        output.document(ChecksDocument(found, ok=is_ok, cycles=runner, bundle=bundle(found) or UNSET))
        return found
    found = []
    printed: list[Finding] = []
    for (_, _, _, hidden_if_ok), group in groupby(
        findings, key=lambda each: (each.level, each.text, each.fix, each.hidden_if_ok)
    ):
        alike = list(group)
        found += alike
        if not hidden_if_ok:
            printed.append(alike[0])
            _show(output, alike[0], _subjects([each.subject for each in alike]))
            output.flush()
    output.message(_summary(printed))
    bundle(found)
    return found


def show_contents(output: Output, file: Path, parts: "Iterable[Part]") -> None:
    """Print a list of the parts of a bundle. The bundle is not written yet."""
    if output.as_json:
        return
    output.message(f"contents of {file}, without secrets, names of hosts and names of users:")
    for each in parts:
        size = f"{count(len(each.lines), 'line')}, {format_memory(each.size)}"
        output.message(f"  {each.name:<12}  {each.about} ({size})")


def show_written(output: Output, file: Path, parts: "Iterable[Part]") -> WrittenBundle:
    if not output.as_json:
        output.done(f"wrote {file}; read it before you send it")
    return WrittenBundle(file, [BundlePart(each.name, len(each.lines), each.size) for each in parts])


def _show(output: Output, finding: Finding, subject: str) -> None:
    if output.quiet and finding.level is Level.OK:
        return
    from rich.text import Text

    mark = (f"{finding.level:<4}", _STYLES[finding.level])
    # Do not wrap lines: users copy commands from them.
    output.console.print(Text.assemble(mark, clean_line(f"  {subject}: {finding.text}")), soft_wrap=True)
    if finding.fix:
        output.console.print(Text(clean_line(f"      fix: {finding.fix}")), soft_wrap=True)


def _subjects(subjects: list[str]) -> str:
    """Return the folded subjects. If all are workers, return `each of the workers a-[0-3], b`."""
    names = [subject.removeprefix(_WORKER) for subject in subjects if subject.startswith(_WORKER)]
    if len(names) < max(2, len(subjects)):
        return fold(subjects)
    return f"each of the workers {fold(names)}"


def _summary(findings: list[Finding]) -> str:
    counts = {level: _count(findings, level) for level in (Level.FAIL, Level.WARN, Level.OK)}
    warned = f"warning{'s' if counts[Level.WARN] > 1 else ''}"
    words = {Level.FAIL: "failed", Level.WARN: warned, Level.OK: "ok"}
    if not counts[Level.FAIL] and not counts[Level.WARN]:
        return "no problems found"
    return ", ".join(f"{number} {words[level]}" for level, number in counts.items() if number)


def _count(findings: list[Finding], level: Level) -> int:
    return sum(each.level is level for each in findings)


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
    """Print the numbers of slices, workers and scale groups; print warnings on stderr."""
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
    """Print the problems as JSON."""
    problems = error.problems or (error.message,)
    output.document(InvalidDocument(valid=False, problems=problems, hint=error.hint))
