"""Continuous cycles of `iris watch`, with the events that any invocation wrote to the log."""

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
    """Hold the lock of a runner of this kind during the block; continue without it if the lock is unavailable."""
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
"""Errors that keep a cycle from running and may be gone by the next one."""

ASKED = 0.5
"""Seconds to the next cycle after a task sent a request: its next request may come soon."""

_LEAST_PAUSE = 0.25
"""Least share of the interval in which a watch pauses, even if its cycles are slow."""


class Step(Struct, frozen=True):
    """News after one cycle. `idle`: every job has ended, and no attempt holds a worker."""

    news: tuple[Entry, ...]
    idle: bool
    trouble: str = ""  # why the cycle did not run: another lock holder, a full disk


def listen(session: Session) -> None:
    """Collect new log entries as news from now on. Call it before showing the cluster before the first step."""
    if session.news is None:
        session.view()
        session.news = []


def watch(session: Session, *, interval: float, schedule: bool, once: bool = False) -> Generator[Step]:
    """Run cycles forever, `interval` seconds apart, and yield the new log entries after each.

    After a request of a task the next cycle comes sooner. `once`: run one cycle and wait for all its calls,
    since no later cycle receives the answers.

    A hanging worker keeps its call into the next cycles; other workers are polled on time. If another
    invocation holds the lock, or the directory is not writable, the watch continues and retries.
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
    """Yield steps like `watch`, but only read the log every `every` seconds. `about`: names to select entries by."""
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
    """Return an error in one line, with its hint."""
    return f"{error.message}; {error.hint}" if error.hint else error.message


def _is_idle(cluster: Cluster) -> bool:
    over = all(job.end is not None for job in cluster.open_jobs())
    return over and not any(worker.claims for worker in cluster.workers.values())
