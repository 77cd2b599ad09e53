"""Cycles and passes of the autoscaler: one, or one every so many seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from iris_cli.cli.context import Context
from iris_cli.errors import ConfigError, ExitCode, LockedError, LogReplacedError, NotWritableError, UsageError

if TYPE_CHECKING:
    from iris_cli.ops.session import Session
    from iris_cli.render.slices import PassDocument

_CRON = 60.0  # seconds between two cycles of cron, where its line says nothing else


def schedule(
    iris: Context,
    *,
    once: bool = False,
    interval: float | None = None,
    scale: bool = False,
    cron: float | None = None,
) -> int:
    """Run one cycle, or one every so many seconds. `scale`: a pass of the autoscaler before each.

    `cron`: it is run by cron every so many seconds. A crontab that an older iris wrote does not say so, but waits for
    nobody, and has no terminal.
    """
    from iris_cli.ops.cycle import compaction, cycle
    from iris_cli.ops.loop.watch import running
    from iris_cli.render import cycles as render

    every = _only_one(once=once, interval=interval)
    iris.starts_loop = False
    session = iris.session("iris schedule")
    if once and (cron or (iris.lock_timeout == 0 and not sys.stdin.isatty())):
        session.runs_as, session.recorded = "cron", lambda: {"interval": cron or _CRON}

    def one() -> None:
        wanted = scale or session.config.scales
        scaling = _pass(iris, session, in_cycle=True) if wanted else None
        render.show_cycle(iris.output, session.cluster, cycle.run(session), scaling)
        if (done := compaction.when_large(session)) is not None:
            iris.output.message(compaction.words(done))

    if every is None:
        return _again_and_again(iris, session, one, None)
    with running(session, "command", interval=every):
        return _again_and_again(iris, session, one, every)


def autoscale(iris: Context, *, once: bool = False, interval: float | None = None) -> int:
    """One pass of the autoscaler, or one every so many seconds."""
    every = _only_one(once=once, interval=interval)
    session = iris.session("iris autoscale")
    return _again_and_again(iris, session, lambda: _pass(iris, session), every)


def _only_one(*, once: bool, interval: float | None) -> float | None:
    """Once, or every so many seconds: not both."""
    if once and interval is not None:
        raise UsageError("--once and --interval exclude each other", hint="drop one of them")
    return interval


def _again_and_again(
    iris: Context, session: Session, act: Callable[[], object], interval: float | None
) -> int:
    """Act once, or every `interval` seconds. With --lock-timeout 0 it is no failure that others hold the lock.

    But it is one if what was asked of workers can't be written down: who has had the lock once waits for it again. Who
    goes on and on then tries again later, as `iris watch` does: a disk that is full for a while ends no schedule. Only
    what keeps it from its very beginning does.
    """
    from iris_cli.ops.loop.changes import change_warning

    tell_of_change = change_warning(session.config.path, session.tell)
    has_worked, told = False, ""
    while True:
        try:
            act()
            has_worked, told = True, ""
        except (LockedError, NotWritableError, LogReplacedError) as error:
            busy = isinstance(error, LockedError) and iris.lock_timeout == 0 and not session.begun
            if not busy and (interval is None or not (has_worked or session.begun)):
                raise
            # Of cron no hint: the other one does the work.
            words = f"busy: {error.message}" if busy else "; ".join(filter(None, (error.message, error.hint)))
            if words != told:
                (iris.output.message if busy else iris.output.warning)(words)
            told = words
        if interval is None:
            return ExitCode.OK
        iris.output.flush()
        session.clock.sleep(interval)
        tell_of_change()


def _pass(iris: Context, session: Session, *, in_cycle: bool = False) -> PassDocument | None:
    """One pass of the autoscaler. `in_cycle`: before a cycle, which probes new slices, and shows this in its JSON."""
    from iris_cli.ops import autoscale as operation
    from iris_cli.ops.views.scale_status import scaling_rows
    from iris_cli.render import slices as render

    done = operation.run(session, probe=not in_cycle)
    if done.objection is not None and not in_cycle:
        raise ConfigError(str(done.objection), hint=render.way_out(done.objection))
    rows = scaling_rows(session.cluster, done.plan, session.clock.now())
    if in_cycle and iris.output.as_json:
        return render.pass_document(done, rows)
    render.show_pass(iris.output, done, rows)
    return None
