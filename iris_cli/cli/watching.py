"""Looking on until somebody has seen enough: `iris watch`, `iris status --watch`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from iris_cli.ops.loop.watch import Step
    from iris_cli.ops.session import Session
    from iris_cli.render.watch.board import Picture

EVERY = 2.0
"""Seconds between two looks at the log."""


def follow(
    iris: Context,
    session: Session,
    steps: Generator[Step],
    look: Callable[[], Picture] | None = None,
    *,
    until_idle: bool = False,
) -> int:
    """Show steps, and on a terminal what `look` makes of how things are then: the cluster, if nothing else is said.

    Ctrl-C ends the watch and nothing else.
    """
    from iris_cli.ops.loop.watch import listen
    from iris_cli.render.watch.screen import Screen, still_there

    try:
        with closing(steps), Screen(iris.output, session, look or (lambda: _cluster(session))) as screen:
            listen(session)
            screen.look()
            for step in steps:
                screen.show(step)
                if until_idle and step.idle:
                    break
    except KeyboardInterrupt:
        then = _who_goes_on(iris, session) if session.cluster.open_jobs() else ""
        iris.output.message(still_there(session.cluster, then))
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def _who_goes_on(iris: Context, session: Session) -> str:
    """Return who runs cycles now, or that nobody does; '' if this command starts a loop, and prints its pid."""
    from iris_cli.ops.views.cycles import cycles_of, cycles_words

    if why := iris.no_cycles():
        return why
    cycles = cycles_of(session.state, session.clock.now())
    return cycles_words(cycles) if cycles.coming else ""


def _cluster(session: Session, labels: Sequence[str] = (), states: Sequence[str] = ()) -> Picture:
    from iris_cli.render.watch.board import of_cluster  # only for a terminal

    return of_cluster(session, labels=labels, states=states)


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
    """The cluster or one job again and again. Polls nobody, takes no lock."""
    from iris_cli.ops.loop.watch import look_on
    from iris_cli.ops.views.status import cluster_status

    if at is not None:
        raise UsageError("--watch and --at exclude each other", hint="drop one of them")

    def names() -> Collection[str]:
        if job is not None:
            return (job,)
        return [row.id for row in cluster_status(session, labels=labels, states=states, ended=0).jobs]

    def one_job() -> Picture:
        from iris_cli.render.watch.board import of_job

        assert job is not None
        return of_job(iris.output, session, job, everything=everything)

    if job is not None:
        from iris_cli.ops.views.job_status import job_status

        job = job_status(session, job).job.id  # BEFORE the screen: what can't be shown is told plainly
    else:
        names()
    some = job is not None or labels or states
    look = one_job if job is not None else lambda: _cluster(session, labels, states)
    return follow(iris, session, look_on(session, every=EVERY, about=names if some else None), look)
