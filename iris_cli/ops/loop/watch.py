"""The cycles of `iris watch`, and the new log entries of all invocations."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial

from msgspec import Struct

from iris_cli.core.model.cluster import Cluster
from iris_cli.errors import IrisError, LockedError, LogReplacedError, NotWritableError
from iris_cli.ops.cycle.cycle import ANSWER_TIMEOUT, Cycles, run
from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.loop.changes import change_warning
from iris_cli.ops.session import Session
from iris_cli.ops.views.history import Entry, entries_about, entries_of


@contextmanager
def runner_lock(session: Session, kind: str, *, interval: float) -> Iterator[None]:
    """Register this process as a runner of cycles. If its lock can't be taken, continue without the lock."""
    lock = None
    with suppress(OSError):
        lock = session.state.runners.hold(kind, session.command, interval=interval, since=session.clock.now())
    before = session.runs_as, session.cycle_details
    details = {"pid": os.getpid(), "interval": interval}
    session.runs_as, session.cycle_details = kind, lambda: details
    try:
        yield
    finally:
        session.runs_as, session.cycle_details = before
        if lock is not None:
            lock.release()


TRANSIENT_ERRORS = (LockedError, NotWritableError, LogReplacedError)
"""Errors that prevent a cycle, but not necessarily the next cycle."""

_AFTER_REQUEST = 0.5  # seconds to the next cycle after a task request, because more requests may follow
_MIN_PAUSE = 0.25  # pause between two slow cycles, as a fraction of the interval


class Step(Struct, frozen=True):
    """The new entries after one cycle. `idle`: every job has ended, and no attempt holds resources of a worker."""

    entries: tuple[Entry, ...]
    idle: bool
    trouble: str = ""  # why the cycle did not run, such as a lock or a full disk


def collect_transactions(session: Session) -> None:
    """Collect new transactions from now on. Call this before the cluster is shown, so that no entry is missed."""
    if session.new_transactions is None:
        session.view()
        session.new_transactions = []


def watch(session: Session, *, interval: float, schedule: bool, once: bool = False) -> Generator[Step]:
    """Run cycles forever, `interval` seconds apart, and yield the new log entries after each cycle.

    After a request of a task, the next cycle begins sooner. With `once`, run only one cycle, and wait for all answers.
    A call to a hanging worker stays open during the next cycles, so that other workers are polled on time. If another
    invocation holds the lock, or if the state directory is not writable, no cycle runs until the next interval.
    """
    clock, patience, trouble = session.clock, min(ANSWER_TIMEOUT, interval), ""
    warn_of_change = change_warning(session.config.path, session.tell)
    collect_transactions(session)
    session.may_need_cycles = True
    lock = runner_lock(session, "watch", interval=interval) if schedule and not once else nullcontext()
    with lock, Dispatcher(session) as dispatcher:
        requests, cycles = 0, Cycles(dispatcher, schedule=schedule, patience=patience)
        while True:
            due = clock.monotonic() + interval
            run_cycle = partial(run, session, schedule=schedule, patience=patience) if once else cycles.run
            trouble = _trouble_of(run_cycle) or trouble
            trouble = _trouble_of(session.view) or trouble
            transactions, session.new_transactions = session.new_transactions or [], []
            yield Step(entries_of(transactions), _is_idle(session.cluster), trouble)
            if once:
                return
            due = max(due, clock.monotonic() + _MIN_PAUSE * interval)
            if dispatcher.requests > requests:
                due, requests = min(due, clock.monotonic() + _AFTER_REQUEST), dispatcher.requests
            trouble = _trouble_of(partial(cycles.finish_calls, until=due))
            clock.sleep(max(0.0, due - clock.monotonic()))
            warn_of_change()


def follow_log(
    session: Session, *, every: float, followed: Callable[[], Collection[str]] | None = None
) -> Generator[Step]:
    """Yield steps like `watch`, but run no cycles. Read the log every `every` seconds.

    `followed` returns the ids of the jobs, tasks and workers whose entries are yielded (default: all).
    """
    warn_of_change = change_warning(session.config.path, session.tell)
    collect_transactions(session)
    trouble = ""
    while True:
        transactions, session.new_transactions = session.new_transactions or [], []
        find_entries = entries_of if followed is None else partial(entries_about, session, names=followed())
        yield Step(find_entries(transactions), _is_idle(session.cluster), trouble)
        session.clock.sleep(every)
        warn_of_change()
        trouble = _trouble_of(session.view)


def _trouble_of(act: Callable[[], object]) -> str:
    """Call `act`. Return the words of a transient error, or ''."""
    try:
        act()
    except TRANSIENT_ERRORS as error:
        return error_words(error)
    return ""


def error_words(error: IrisError) -> str:
    """Return the message of an error and its hint in one line."""
    return f"{error.message}; {error.hint}" if error.hint else error.message


def _is_idle(cluster: Cluster) -> bool:
    all_ended = all(job.end is not None for job in cluster.open_jobs())
    return all_ended and not any(worker.claims for worker in cluster.workers.values())
