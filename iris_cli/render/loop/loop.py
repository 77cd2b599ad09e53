"""The background loop: what it writes into its log, and how it is shown."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.config.schema import Mode
from iris_cli.core.model.cluster import Cluster
from iris_cli.journal.files.runners import LOOP
from iris_cli.ops.loop import log_file
from iris_cli.ops.views.cycles import VALIDATE, Cycles
from iris_cli.ops.views.who_runs import cycles_words, fix_of
from iris_cli.render.clean import clean_line
from iris_cli.render.console import Output
from iris_cli.render.loop.cycles import placement_lines, silence_lines

if TYPE_CHECKING:
    from iris_cli.journal.files.loop_order import LoopOrder
    from iris_cli.journal.files.runners import Runner
    from iris_cli.ops.loop.run import Turn


class StartedDocument(Struct, frozen=True):
    """The result of `iris loop start`. `running` is false if no job is open."""

    pid: int | None
    running: bool


class StoppedDocument(Struct, frozen=True):
    """The result of `iris loop stop`. `pid` is null if no loop was running."""

    stopped: bool
    pid: int | None


class LoopDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris loop show`. `loop` is the setting in cluster.yaml, `output` the end of the loop's log.

    While cluster.yaml is invalid, `loop` is null and `invalid` is its first problem; else `invalid` is empty.
    """

    cycles: Cycles
    loop: Mode | None
    invalid: str
    stopped: bool
    stopped_by: str
    killed_at_logout: bool
    output: Sequence[str]


class LoopLog:
    """Standard output of a loop. What the turn before said as well is not repeated. Text from workers is cleaned."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._before: frozenset[str] = frozenset()

    def say(self, *lines: str) -> None:
        log_file.write(map(clean_line, lines), self._now())

    def turn(self, cluster: Cluster, turn: Turn) -> None:
        """What a turn did."""
        lines = [f"no cycle: {turn.trouble}"] if turn.trouble else []
        if turn.result is not None:
            lines += [*placement_lines(turn.result), *silence_lines(cluster, turn.result)]
        if new := [line for line in lines if line not in self._before]:
            self.say(*new)
            if turn.fault is not None:
                self.say(*"".join(traceback.format_exception(turn.fault)).splitlines())
        self._before = frozenset(lines)


def show_started(output: Output, loop: Runner) -> None:
    if output.as_json:
        output.document(StartedDocument(loop.pid or None, running=True))
    else:
        output.done(f"the background loop runs (pid {loop.pid}); it ends with the last job")


def show_nothing_to_do(output: Output) -> None:
    if output.as_json:
        output.document(StartedDocument(None, running=False))
    else:
        output.done("nothing to do: no job is open")


def show_stopped(output: Output, loop: Runner | None) -> None:
    if output.as_json:
        output.document(StoppedDocument(stopped=True, pid=loop.pid or None if loop is not None else None))
        return
    was = f"stopped the background loop (pid {loop.pid})" if loop is not None else "no loop was running"
    output.done(f"{was}; none starts until: iris loop start")


def show(
    output: Output,
    cycles: Cycles,
    order: LoopOrder,
    *,
    mode: Mode | None,
    log: Sequence[str],
    killed_at_logout: bool,
    invalid: str = "",
) -> None:
    """Show who runs cycles, whether a loop may start, and the end of its log.

    `invalid` is the first problem of an invalid cluster.yaml; `mode` is None then.
    """
    if output.as_json:
        output.document(
            LoopDocument(
                cycles=cycles,
                loop=mode,
                invalid=invalid,
                stopped=order.stopped,
                stopped_by=order.by if order.stopped else "",
                killed_at_logout=killed_at_logout,
                output=log,
            )
        )
        return
    output.line(cycles_words(cycles))
    if output.quiet:
        return
    if invalid:
        output.line(f"cluster.yaml is invalid{_what_follows(cycles)}: {clean_line(invalid)}")
    if mode is Mode.OFF:
        output.line("cluster.yaml says loop: off")
    elif order.stopped:
        output.line(f"stopped at {order.since} by {order.by}: iris loop start")
    if killed_at_logout:
        output.line("a loop ends when you log out: loginctl enable-linger keeps it running")
    for trouble in cycles.troubles:
        if not (invalid and fix_of(trouble) == VALIDATE):  # printed above, with the problem
            output.line(trouble)
    for line in log:
        output.line(f"  {line}")


def _what_follows(cycles: Cycles) -> str:
    """Return what an invalid cluster.yaml means for cycles. What runs already goes on by the last valid one."""
    if not cycles.by:
        return f", so no cycle runs ({VALIDATE})"
    return f", so the loop places nothing ({VALIDATE})" if cycles.by == LOOP else f" ({VALIDATE})"
