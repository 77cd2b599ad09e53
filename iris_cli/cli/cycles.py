"""Commands that run cycles or autoscaler passes, once or at an interval, and watch views."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from iris_cli.cli.context import Context
from iris_cli.errors import ConfigError, ExitCode, LockedError, LogReplacedError, NotWritableError, UsageError

if TYPE_CHECKING:
    from iris_cli.ops.loop.watch import Step
    from iris_cli.ops.session import Session
    from iris_cli.render.slices import PassDocument
    from iris_cli.render.watch.board import DrawScreen


_CRON = 60.0  # seconds between two cycles of cron (default)


def schedule(
    iris: Context,
    *,
    once: bool = False,
    interval: float | None = None,
    scale: bool = False,
    cron: float | None = None,
) -> int:
    """Run one cycle, or a cycle every `interval` seconds. `scale`: run the autoscaler before each cycle.

    `cron`: cron's interval in seconds, if cron runs the command. Older crontabs do not pass it. Their commands are
    recognized by --lock-timeout 0 without a terminal.
    """
    from iris_cli.ops.cycle import compaction, cycle
    from iris_cli.ops.loop.watch import runner_lock
    from iris_cli.render import cycles as render

    every = _interval(once=once, interval=interval)
    iris.starts_loop = False
    session = iris.session("iris schedule")
    if once and (cron or (iris.lock_timeout == 0 and not sys.stdin.isatty())):
        session.runs_as, session.cycle_details = "cron", lambda: {"interval": cron or _CRON}

    def one() -> None:
        scales = scale or session.config.scales
        scaling = _pass(iris, session, in_cycle=True) if scales else None
        render.show_cycle(iris.output, session.cluster, cycle.run(session), scaling)
        if (done := compaction.compact_if_large(session)) is not None:
            iris.output.message(compaction.compaction_words(done))

    if every is None:
        return _repeat(iris, session, one, None)
    with runner_lock(session, "command", interval=every):
        return _repeat(iris, session, one, every)


def autoscale(iris: Context, *, once: bool = False, interval: float | None = None) -> int:
    """Run the autoscaler once, or every `interval` seconds."""
    every = _interval(once=once, interval=interval)
    session = iris.session("iris autoscale")
    return _repeat(iris, session, lambda: _pass(iris, session), every)


def _interval(*, once: bool, interval: float | None) -> float | None:
    """Return the interval. Raises UsageError if both options are given."""
    if once and interval is not None:
        raise UsageError("--once and --interval can't be combined", hint="drop one of them")
    return interval


def _repeat(iris: Context, session: Session, act: Callable[[], object], interval: float | None) -> int:
    """Call `act` once, or every `interval` seconds. With --lock-timeout 0, a busy lock is no failure at first.

    After the session has held the lock once, a busy lock is a failure, because workers' answers could not be recorded.
    With an interval, lock and write errors (such as a full disk) are printed, and `act` is called again after the
    interval. Only an error before the first success ends the command.
    """
    from iris_cli.ops.loop.changes import change_warning

    warn_of_change = change_warning(session.config.path, session.tell)
    has_worked, printed = False, ""
    while True:
        try:
            act()
            has_worked, printed = True, ""
        except (LockedError, NotWritableError, LogReplacedError) as error:
            busy = isinstance(error, LockedError) and iris.lock_timeout == 0 and not session.begun
            if not busy and (interval is None or not (has_worked or session.begun)):
                raise
            # No hint if the lock is busy: the holder of the lock does the work.
            words = f"busy: {error.message}" if busy else "; ".join(filter(None, (error.message, error.hint)))
            if words != printed:
                (iris.output.message if busy else iris.output.warning)(words)
            printed = words
        if interval is None:
            return ExitCode.OK
        iris.output.flush()
        session.clock.sleep(interval)
        warn_of_change()


def _pass(iris: Context, session: Session, *, in_cycle: bool = False) -> PassDocument | None:
    """Run the autoscaler once. `in_cycle`: a cycle follows, which probes new slices and prints the JSON."""
    from iris_cli.ops import autoscale as operation
    from iris_cli.ops.views.scale_status import scaling_rows
    from iris_cli.render import slices as render

    done = operation.run(session, probe=not in_cycle)
    if done.objection is not None and not in_cycle:
        raise ConfigError(str(done.objection), hint=render.owner_hint(done.objection))
    rows = scaling_rows(session.cluster, done.plan, session.clock.now())
    if in_cycle and iris.output.as_json:
        return render.pass_document(done, rows)
    render.show_pass(iris.output, done, rows)
    return None


# Live views: `iris watch`, `iris status --watch`.


EVERY = 2.0
"""Seconds between two reads of the log."""


def follow(
    iris: Context,
    session: Session,
    steps: Generator[Step],
    look: Callable[[], DrawScreen] | None = None,
    *,
    until_idle: bool = False,
) -> int:
    """Show the steps of a watch. `look` returns the screen to draw on a terminal (default: the cluster).

    Ctrl-C ends only the watch.
    """
    from iris_cli.ops.loop.watch import collect_news
    from iris_cli.render.watch.screen import Screen, open_jobs_words

    try:
        with closing(steps), Screen(iris.output, session, look or (lambda: _cluster(session))) as screen:
            collect_news(session)
            screen.look()
            for step in steps:
                screen.show(step)
                if until_idle and step.idle:
                    break
    except KeyboardInterrupt:
        follow_up = _what_runs_cycles(iris, session) if session.cluster.open_jobs() else ""
        iris.output.message(open_jobs_words(session.cluster, follow_up))
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def _what_runs_cycles(iris: Context, session: Session) -> str:
    """Return the runner of cycles, or why no cycle follows; '' if this command starts a loop and prints its pid."""
    from iris_cli.ops.views.cycles import cycles_of, cycles_words

    if why := iris.take_no_cycles_reason():
        return why
    cycles = cycles_of(session.state, session.clock.now())
    return cycles_words(cycles) if cycles.has_next_cycle else ""


def _cluster(session: Session, labels: Sequence[str] = (), states: Sequence[str] = ()) -> DrawScreen:
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
    """Show the cluster or one job live. No worker is polled and no lock is taken. Raises UsageError."""
    from iris_cli.ops.loop.watch import follow_log
    from iris_cli.ops.views.status import cluster_status

    if at is not None:
        raise UsageError("--watch and --at can't be combined", hint="drop one of them")

    def names() -> Collection[str]:
        if job is not None:
            return (job,)
        return [row.id for row in cluster_status(session, labels=labels, states=states, ended=0).jobs]

    def one_job() -> DrawScreen:
        from iris_cli.render.watch.board import job_screen

        assert job is not None
        return job_screen(iris.output, session, job, everything=everything)

    if job is not None:
        from iris_cli.ops.views.job_status import job_status

        job = job_status(session, job).job.id  # raises NotFoundError before the screen opens
    else:
        names()
    selected = job is not None or labels or states
    look = one_job if job is not None else lambda: _cluster(session, labels, states)
    return follow(iris, session, follow_log(session, every=EVERY, followed=names if selected else None), look)
