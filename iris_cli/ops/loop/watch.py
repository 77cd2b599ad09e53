"""Follow a cluster: one cycle after the other, and what each of them and everybody else wrote into the log."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress

from msgspec import Struct

from iris_cli.core.model.cluster import Cluster
from iris_cli.errors import IrisError, LockedError, LogReplacedError, NotWritableError
from iris_cli.ops.cycle import cycle
from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.loop.changes import change_warning
from iris_cli.ops.session import Session
from iris_cli.ops.views.history import Entry, entries_about, entries_of


@contextmanager
def running(session: Session, kind: str, *, interval: float) -> Iterator[None]:
    """Hold the lock of a runner of this kind while the block lasts; run without one if no lock can be had."""
    held = None
    with suppress(OSError):
        held = session.state.runners.hold(kind, session.command, interval=interval, since=session.clock.now())
    before = session.runs_as, session.recorded
    said = {"pid": os.getpid(), "interval": interval}
    session.runs_as, session.recorded = kind, lambda: said
    try:
        yield
    finally:
        session.runs_as, session.recorded = before
        if held is not None:
            held.release()


PASSING = (LockedError, NotWritableError, LogReplacedError)
"""What keeps a cycle from running and may be over at the next one."""

ASKED = 0.5
"""Seconds to the next cycle after a task sent a request: its next request may come soon."""

_LEAST_PAUSE = 0.25
"""The share of its time that a watch leaves to others, however long its cycles take."""


class Step(Struct, frozen=True):
    """What is new after one cycle. `idle`: no job is left that isn't over, and nothing is being stopped."""

    news: tuple[Entry, ...]
    idle: bool
    trouble: str = ""  # what kept the cycle from running: who holds the state directory, a full disk


def listen(session: Session) -> None:
    """From now on, what comes into the log is news. Whoever shows the cluster before the first step calls it first."""
    if session.news is None:
        session.view()
        session.news = []


def watch(session: Session, *, interval: float, schedule: bool, once: bool = False) -> Generator[Step]:
    """Run cycles for ever, `interval` seconds apart, and yield what the log says after each.

    After a request of a task the next cycle comes sooner. `once`: just one, and all that it sends is waited for: nobody
    is there to hear of it later.

    A worker that hangs keeps its call into the next cycles, the others are asked on time. Where somebody else
    holds the state directory, or it can't be written, it goes on and tries again: the log tells what is true.
    """
    clock, patience = session.clock, min(cycle.PATIENCE, interval)
    trouble, result = "", cycle.CycleResult()
    tell_of_change = change_warning(session.config.path, session.tell)
    listen(session)

    def run() -> None:
        nonlocal result
        kept = None if once else dispatcher
        result = cycle.run(session, kept, schedule=schedule, patience=patience)

    def linger() -> None:
        cycle.linger(session, dispatcher, result, schedule=schedule, until=due)

    session.worked = True
    places = running(session, "watch", interval=interval) if schedule and not once else nullcontext()
    with places, Dispatcher(session) as dispatcher:
        requests = 0
        while True:
            due = clock.monotonic() + interval
            trouble = _trouble_of(run) or trouble
            trouble = _trouble_of(session.view) or trouble
            news, session.news = session.news or [], []
            yield Step(entries_of(news), _is_idle(session.cluster), trouble)
            if once:
                return
            due = max(due, clock.monotonic() + _LEAST_PAUSE * interval)
            if dispatcher.requests > requests:
                due, requests = min(due, clock.monotonic() + ASKED), dispatcher.requests
            trouble = _trouble_of(linger)
            clock.sleep(max(0.0, due - clock.monotonic()))
            tell_of_change()


def look_on(
    session: Session, *, every: float, about: Callable[[], Collection[str]] | None = None
) -> Generator[Step]:
    """As `watch`, but only read the log, `every` so many seconds. `about`: keep entries about these names."""
    tell_of_change = change_warning(session.config.path, session.tell)
    listen(session)
    trouble = ""
    while True:
        news, session.news = session.news or [], []
        entries = entries_of(news) if about is None else entries_about(session, news, about())
        yield Step(entries, _is_idle(session.cluster), trouble)
        session.clock.sleep(every)
        tell_of_change()
        trouble = _trouble_of(session.view)


def _trouble_of(act: Callable[[], object]) -> str:
    try:
        act()
    except PASSING as error:
        return words_of(error)
    return ""


def words_of(error: IrisError) -> str:
    """An error in one line, with its hint."""
    return f"{error.message}; {error.hint}" if error.hint else error.message


def _is_idle(cluster: Cluster) -> bool:
    over = all(job.end is not None for job in cluster.open_jobs())
    return over and not any(worker.claims for worker in cluster.workers.values())
