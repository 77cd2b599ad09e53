"""Run cycles or the autoscaler, once or at an interval. Show live views."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from iris_cli import errors
from iris_cli.cli.context import Context

if TYPE_CHECKING:
    from iris_cli.ops.loop.foreground import Step
    from iris_cli.ops.session import Session
    from iris_cli.render.slices import PassDocument
    from iris_cli.render.watch.board import DrawScreen


_CRON_INTERVAL = 60.0  # seconds, if an older crontab does not pass it


def schedule(
    iris: Context,
    *,
    once: bool = False,
    interval: float | None = None,
    scale: bool = False,
    cron: float | None = None,
) -> int:
    """Run one cycle, or a cycle every `interval` seconds. `scale`: run the autoscaler before each cycle.

    `cron`: cron's interval in seconds, if cron runs the command. A crontab of an older iris does not pass `cron`; its
    command is recognized by --lock-timeout 0 without a terminal.
    """
    from iris_cli.ops.cycle import compaction, cycle
    from iris_cli.ops.loop.foreground import runner_lock
    from iris_cli.render import cycles as render

    _check_options(once=once, interval=interval)
    iris.starts_loop = False
    session = iris.session("iris schedule")
    if once and (cron or (iris.lock_timeout == 0 and not sys.stdin.isatty())):
        session.runs_as, session.cycle_details = "cron", lambda: {"interval": cron or _CRON_INTERVAL}

    def run_cycle() -> None:
        scales = scale or session.config.scales
        scaling = _run_autoscaler(iris, session, in_cycle=True) if scales else None
        render.show_cycle(iris.output, session.cluster, cycle.run(session), scaling)
        if (compacted := compaction.compact_if_large(session)) is not None:
            iris.output.message(compaction.compaction_words(compacted))

    if interval is None:
        return _repeat(iris, session, run_cycle, None)
    with runner_lock(session, "command", interval=interval):
        return _repeat(iris, session, run_cycle, interval)


def autoscale(iris: Context, *, once: bool = False, interval: float | None = None) -> int:
    """Run the autoscaler once, or every `interval` seconds."""
    _check_options(once=once, interval=interval)
    session = iris.session("iris autoscale")
    return _repeat(iris, session, lambda: _run_autoscaler(iris, session), interval)


def _check_options(*, once: bool, interval: float | None) -> None:
    if once and interval is not None:
        raise errors.UsageError("--once and --interval can't be combined", hint="drop one of them")


def _repeat(iris: Context, session: Session, action: Callable[[], object], interval: float | None) -> int:
    """Call `action` once, or every `interval` seconds.

    With --lock-timeout 0, a lock that was busy from the start is not a failure, because its holder does the work. After
    the session has held the lock, a busy lock is a failure, because workers' answers were not recorded. With an
    interval, a lock or write error (such as a full disk) ends the command only before the first success. A later error
    is only printed.
    """
    from iris_cli.ops.loop.changes import change_warning
    from iris_cli.render.cycles import show_busy

    warn_of_change = change_warning(session.config.path, session.tell)
    has_succeeded, printed = False, ""
    while True:
        try:
            action()
            has_succeeded, printed = True, ""
        except (errors.LockedError, errors.NotWritableError, errors.LogReplacedError) as error:
            busy = _is_busy(iris, session, error)
            if not busy and (interval is None or not (has_succeeded or session.has_locked)):
                raise
            text = error.message if busy else "; ".join(filter(None, (error.message, error.hint)))
            if text != printed and busy:
                show_busy(iris.output, text)
            elif text != printed:
                iris.output.warning(text)
            printed = text
        if interval is None:
            return errors.ExitCode.OK
        iris.output.flush()
        session.clock.sleep(interval)
        warn_of_change()


def _is_busy(iris: Context, session: Session, error: errors.IrisError) -> bool:
    """Return True if the lock was busy from the start and the user asked not to wait for it."""
    return isinstance(error, errors.LockedError) and iris.lock_timeout == 0 and not session.has_locked


def _run_autoscaler(iris: Context, session: Session, *, in_cycle: bool = False) -> PassDocument | None:
    """Run the autoscaler once. `in_cycle`: the caller runs a cycle next, and that cycle probes new slices.

    With `in_cycle` and --json, return the document of the pass instead of printing it.
    """
    from iris_cli.ops import autoscale as operation
    from iris_cli.ops.views.scale_status import scaling_rows
    from iris_cli.render import slices as render

    result = operation.run(session, probe=not in_cycle)
    if result.conflict is not None and not in_cycle:
        raise errors.ConfigError(str(result.conflict), hint=render.owner_hint(result.conflict))
    rows = scaling_rows(session.cluster, result.plan, session.clock.now())
    if in_cycle and iris.output.as_json:
        return render.pass_document(result, rows)
    render.show_pass(iris.output, result, rows)
    return None


# Live views: `iris watch`, `iris status --watch`.


_READ_INTERVAL = 2.0
"""Seconds between two reads of the log."""


def follow(
    iris: Context,
    session: Session,
    steps: Generator[Step],
    look: Callable[[], DrawScreen] | None = None,
    *,
    until_idle: bool = False,
) -> int:
    """Show the steps of a watch until Ctrl-C. `look` returns the screen for a terminal (default: the cluster).

    `until_idle`: end when all jobs have ended.
    """
    from iris_cli.ops.loop.foreground import collect_transactions
    from iris_cli.render.watch.screen import Screen, open_jobs_words

    try:
        with (
            closing(steps),
            Screen(iris.output, session, look or (lambda: _cluster_screen(session))) as screen,
        ):
            collect_transactions(session)
            screen.look()
            for step in steps:
                screen.show(step)
                if until_idle and step.idle:
                    break
    except KeyboardInterrupt:
        follow_up = _cycles_summary(iris, session) if session.cluster.open_jobs() else ""
        return iris.interrupted(open_jobs_words(session.cluster, follow_up))
    return errors.ExitCode.OK


def follow_once(iris: Context, session: Session, steps: Generator[Step]) -> int:
    """Show the only step of a watch. If the lock is busy with --lock-timeout 0, print this instead."""
    try:
        return follow(iris, session, steps)
    except errors.LockedError as error:
        if not _is_busy(iris, session, error):
            raise
        iris.output.message(f"busy: {error.message}")
        return errors.ExitCode.OK


def _cycles_summary(iris: Context, session: Session) -> str:
    """Return what runs cycles, or why no cycle follows; '' if this command starts a loop and prints the loop's pid."""
    from iris_cli.ops.views.cycles import cycles_of, cycles_words

    if why := iris.take_no_cycles_reason():
        return why
    cycles = cycles_of(session.state, session.clock.now())
    return cycles_words(cycles) if cycles.has_next_cycle else ""


def _cluster_screen(session: Session, labels: Sequence[str] = (), states: Sequence[str] = ()) -> DrawScreen:
    from iris_cli.render.watch.board import cluster_screen  # only needed for a terminal

    return cluster_screen(session, labels=labels, states=states)


def status(
    iris: Context,
    session: Session,
    job: str | None,
    *,
    at: str | None,
    labels: Sequence[str],
    states: Sequence[str],
    everything: bool,
) -> int:
    """Show the cluster or one job live. Polls no worker and takes no lock. Raises UsageError if `at` is given."""
    from iris_cli.ops.loop.foreground import follow_log
    from iris_cli.ops.views.status import cluster_status

    if at is not None:
        raise errors.UsageError("--watch and --at can't be combined", hint="drop one of them")

    def job_names() -> Collection[str]:
        if job is not None:
            return (job,)
        return [row.id for row in cluster_status(session, labels=labels, states=states, ended=0).jobs]

    def one_job_screen() -> DrawScreen:
        from iris_cli.render.watch.board import job_screen

        assert job is not None
        return job_screen(iris.output, session, job, everything=everything)

    if job is not None:
        from iris_cli.ops.views.job_status import job_status

        job = job_status(session, job).job.id  # raises NotFoundError before the screen opens
    else:
        job_names()  # raises UsageError for an unknown state
    followed = job_names if job is not None or labels or states else None
    look = one_job_screen if job is not None else lambda: _cluster_screen(session, labels, states)
    return follow(iris, session, follow_log(session, every=_READ_INTERVAL, followed=followed), look)
