"""Print the result of `iris init`, and the next steps that `iris` without a command suggests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from iris_cli.core import JobState, count
from iris_cli.core.lifecycle.display import word_of
from iris_cli.ops.setup.next_steps import NextSteps, Situation, Step
from iris_cli.ops.views.cycles import Cycles
from iris_cli.ops.views.status import ClusterStatus, in_display_order
from iris_cli.render import layout, tables
from iris_cli.render.console import Output
from iris_cli.render.views.status import header

if TYPE_CHECKING:
    from iris_cli.config.schema import ClusterConfig
    from iris_cli.ops.setup.cluster_import.source import Offer

_MAX_COMMAND_WIDTH = 44
"""Maximum width of a command whose description is on the same line. After a longer command it is on the next line."""


class InitDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris init`. `imports` and `next` are commands to type."""

    config: Path
    state: Path
    cluster: str
    workers: int
    imports: Sequence[str]
    next: Sequence[str]


def show_initialized(
    output: Output,
    config: ClusterConfig,
    state: Path,
    messages: Sequence[str],
    offers: Sequence[Offer] = (),
    *,
    has_log: bool = False,
) -> None:
    """Print the created files, the hosts that could be imported, and the next commands to type.

    `has_log`: the state directory already had a log.
    """
    named = len(config.hosts)
    if named:
        steps = ["iris doctor", "iris launch -- hostname"]
    elif offers:
        steps = [offers[0].command, "iris doctor"]
    else:
        steps = [f"edit {config.path}", "iris config validate", "iris doctor"]
    if not output.as_json:
        output.done(f"wrote {config.path}")
        output.done(f"{state} is unchanged" if has_log else f"created {state}")
    for message in (*config.warnings, *messages):
        output.message(message)
    if output.as_json:
        output.document(
            InitDocument(
                config=config.path,
                state=state,
                cluster=config.name,
                workers=named,
                imports=[each.command for each in offers],
                next=steps,
            )
        )
        return
    for each in offers:
        output.done(f"found {_offer_words(each)}: {each.command}")
    output.done(f"next: {', then '.join(steps)}")


def _offer_words(offer: Offer) -> str:
    if offer.slices:
        return f"a list of {count(offer.slices, 'TPU slice')}"
    return f"an SSH configuration with {count(offer.hosts, 'host')}" if offer.hosts else "gcloud"


class JobCounts(Struct, frozen=True):
    """Numbers of running, pending and ended jobs."""

    running: int
    waiting: int
    ended: int


class NextStepsDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris` without a command. `cluster` and all fields after it are absent if no cluster exists yet."""

    place: Situation
    words: str
    steps: Sequence[Step]
    cluster: str | UnsetType = UNSET
    jobs: JobCounts | UnsetType = UNSET
    last_cycle_age_seconds: float | UnsetType | None = UNSET
    cycles: Cycles | UnsetType | None = UNSET


def show_next_steps(output: Output, found: NextSteps) -> None:
    """Print the next steps; with --quiet only the commands."""
    if output.as_json:
        output.document(_document(found))
    elif output.quiet:
        for step in found.steps:
            output.line(step.command)
    else:
        output.show(*_head(found), tables.text(""))
        steps = [*found.steps, Step(command="iris --help", words="all commands")]
        for step in steps:
            if len(step.command) > _MAX_COMMAND_WIDTH:
                output.line(f"  {step.command}")  # never wrapped: users paste it
                output.show(_words(step, "    "))
        rows = [
            [tables.text(f"  {step.command}", "bold"), _words(step)]
            for step in steps
            if len(step.command) <= _MAX_COMMAND_WIDTH
        ]
        output.show(layout.Table(styles=("", ""), rows=rows))


def _document(found: NextSteps) -> NextStepsDocument:
    status = found.status
    if status is None:
        return NextStepsDocument(place=found.place, words=found.words, steps=found.steps)
    return NextStepsDocument(
        place=found.place,
        words=found.words,
        steps=found.steps,
        cluster=status.name,
        jobs=_counts(status),
        last_cycle_age_seconds=status.cycles.last if status.cycles is not None else None,
        cycles=status.cycles,
    )


def _head(found: NextSteps) -> list[layout.Text | layout.Table]:
    if found.status is None:
        return [tables.text(found.words, "bold")]
    status = found.status
    words = [word_of(job.display).lower() for job in in_display_order(status.jobs) if not job.state.terminal]
    counts = {**Counter(words), "ended": _counts(status).ended}
    jobs = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
    return [header(status), tables.text(f"jobs: {jobs or 'none'}")]


def _words(step: Step, indent: str = "") -> layout.Text:
    workers = f"{tables.fold(list(step.workers))}: " if len(step.workers) > 1 else ""
    return tables.text(f"{indent}{workers}{step.words}", "red" if step.urgent else "dim")


def _counts(status: ClusterStatus) -> JobCounts:
    still_open = [job for job in status.jobs if not job.state.terminal]
    running = sum(job.display == JobState.RUNNING for job in still_open)
    ended = len(status.jobs) - len(still_open) + status.older
    return JobCounts(running, len(still_open) - running, ended)
