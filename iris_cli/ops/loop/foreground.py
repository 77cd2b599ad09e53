"""The cycles of commands that run in the foreground: `iris watch` and commands that wait for jobs.

A waiting command runs cycles, because there may be no other runner.
"""

import os
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial

from msgspec import Struct

from iris_cli.core import Cluster, JobId, JobState, TaskId, Token
from iris_cli.core.messages.observations import RemoteState
from iris_cli.errors import ExitCode, IrisError, LockedError, LogReplacedError, NotWritableError
from iris_cli.ops.cycle.cycle import ANSWER_TIMEOUT, Cycles, copy_ended_logs, run, send_notices
from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.loop.changes import change_warning
from iris_cli.ops.session import Session
from iris_cli.ops.views.history import Entry, entries_about, entries_of

TRANSIENT_ERRORS = (LockedError, NotWritableError, LogReplacedError)
"""Errors that prevent a cycle, but not necessarily the next cycle."""
_AFTER_REQUEST = 0.5  # seconds to the next cycle after a task request, because more requests may follow
_MIN_PAUSE = 0.25  # pause between two slow cycles, as a fraction of the interval
_FIRST_INTERVAL, _MIN_INTERVAL, _MAX_INTERVAL = 0.2, 0.5, 3.0  # seconds from one cycle to the next
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0  # seconds between two reads of the log
_MAX_NAMES = 3  # jobs named in the progress line
_WORST_FIRST = (
    (JobState.FAILED, ExitCode.FAILED),
    (JobState.UNSCHEDULABLE, ExitCode.UNSCHEDULABLE),
    (JobState.KILLED, ExitCode.KILLED),
)
"""Exit codes by job state, worst state first. If jobs ended in several of these states, the worst state counts."""


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

    After a request of a task, the next cycle begins sooner. A call to a hanging worker stays open during the next
    cycles, so that other workers are polled on time. If another invocation holds the lock, or if the state directory is
    not writable, no cycle runs until the next interval. With `once`, run only one cycle, and wait for all answers; then
    these errors are raised.
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
            if once:
                run(session, schedule=schedule, patience=patience)
                session.view()
            else:
                trouble = _trouble_of(cycles.run) or trouble
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
    return f"{error.message}; {error.hint}" if error.hint else error.message


def _is_idle(cluster: Cluster) -> bool:
    all_ended = all(job.end is not None for job in cluster.open_jobs())
    return all_ended and not any(worker.claims for worker in cluster.workers.values())


class CycleRunner:
    """Runs the cycles of a waiting command, which reads the log between cycles.

    The pauses between cycles are short at the beginning (jobs may fail at once), after a request of a task, and while
    tasks are placed (short tasks soon make room for further tasks). `min_interval`: minimum number of seconds between
    two cycles. A locked or unwritable state directory does not end the wait. Then `trouble` is the error.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.min_interval = 0.0
        self.trouble: IrisError | None = None
        self._printed = ""  # the last trouble that was printed
        self._due = 0.0  # monotonic time of the next cycle
        self._interval = 0.0  # seconds between the last two cycles
        self._has_requests = False  # True if a task sent requests in or after the last cycle
        self._requests = 0  # number of task requests at the last check
        self._dispatcher = Dispatcher(session)
        self._cycles = Cycles(self._dispatcher)
        self._lock = ExitStack()  # holds the runner's lock

    def __enter__(self) -> "CycleRunner":
        self.session.may_need_cycles = True
        self._lock.enter_context(runner_lock(self.session, "wait", interval=_MAX_INTERVAL))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_raised: object) -> None:
        with self._lock, self._dispatcher:
            if kind is None and self._dispatcher.calls.has_orders:
                # Wait a moment, because healthy hosts answer soon.
                self._record_trouble_of(partial(self._dispatcher.process_calls, patience=ANSWER_TIMEOUT))
        if kind is None:
            copy_ended_logs(self._dispatcher)
            send_notices(self.session)

    def run_due_cycle(self) -> Cluster:
        """Run a cycle if it is due. Return the newest cluster."""
        if self.session.clock.monotonic() >= self._due:
            self.trouble = None
            self._record_trouble_of(self._cycles.run)
            self._has_requests = self._has_new_requests()
            is_short = self._expects_more() or self._interval == _FIRST_INTERVAL
            interval = _MIN_INTERVAL if is_short else 2 * self._interval or _FIRST_INTERVAL
            self._interval = max(self.min_interval, min(interval, _MAX_INTERVAL))
            self._due = self.session.clock.monotonic() + self._interval
        return self.session.view()

    def make_cycle_due(self) -> None:
        self._due = 0.0

    def reported_state(self, token: Token) -> RemoteState | None:
        """Return the state of an attempt that its worker reported in the last cycle, or None."""
        return self._dispatcher.reported_state(token)

    def reason(self, key: TaskId | JobId) -> str:
        """Return why a task or a gang is pending according to the last cycle; '' if that cycle placed it."""
        plan = self._cycles.result.plan
        reasons = plan.waiting.get(key, ()) if plan is not None else ()
        return reasons[0].text if reasons else ""

    def pause(self, seconds: float) -> None:
        """Wait at most `seconds`, and process late answers. Return early when a task ends.

        If more requests or placements are expected, return when the next cycle is due.
        """
        clock = self.session.clock
        until = clock.monotonic() + seconds
        if self._expects_more():
            until = min(until, self._due)
        ended = len(self._dispatcher.ended)
        self._record_trouble_of(partial(self._cycles.finish_calls, until=until))
        if len(self._dispatcher.ended) == ended:
            clock.sleep(max(0.0, until - clock.monotonic()))
        if self._has_new_requests():
            self._has_requests = True
            self._interval = max(self.min_interval, _MIN_INTERVAL)
            self._due = min(self._due, clock.monotonic() + self._interval)

    def _expects_more(self) -> bool:
        """Return True if more requests or placements may follow soon, because the last cycle had some."""
        return self._has_requests or bool(self._cycles.result.assigned)

    def _has_new_requests(self) -> bool:
        """Return True if tasks have sent requests since the last check."""
        before, self._requests = self._requests, self._dispatcher.requests
        return self._requests > before

    def _record_trouble_of(self, act: Callable[[], object]) -> None:
        try:
            act()
        except TRANSIENT_ERRORS as error:
            self.trouble = error
            if error.message != self._printed:
                self._printed = error.message
                self.session.tell(f"no cycle could be run: {error.message}")


class WaitResult(Struct, frozen=True):
    """The state of each job at the end of the wait, in the order on the command line."""

    states: Mapping[JobId, JobState]
    trouble: IrisError | None = None  # why cycles could not run

    @property
    def open(self) -> list[JobId]:
        """Jobs that were still open at the timeout."""
        return [job for job, state in self.states.items() if not state.terminal]

    @property
    def exit_code(self) -> ExitCode:
        """0 if all jobs succeeded, 1 after a timeout, otherwise the code of the job with the worst end."""
        if self.open:
            return ExitCode.FAILED
        states = set(self.states.values())
        return next((code for state, code in _WORST_FIRST if state in states), ExitCode.OK)


def wait_for(session: Session, jobs: Sequence[JobId], *, timeout: float | None = None) -> WaitResult:
    """Wait until all jobs have ended, at most `timeout` seconds. Runs cycles during the wait."""
    deadline = None if timeout is None else session.clock.monotonic() + timeout
    pause, ended, tasks = _FIRST_PAUSE, 0, 0
    names = f"waiting for {', '.join(jobs[:_MAX_NAMES])}{', ...' if len(jobs) > _MAX_NAMES else ''}"
    # Until the first cycle has ended, the number of tasks is unknown.
    with (
        session.progress(lambda: (names, ended, tasks, "task" if tasks else "")),
        CycleRunner(session) as runner,
    ):
        while True:
            cluster = runner.run_due_cycle()
            states = [task.state for job in jobs for task in cluster.tasks_of(job)]
            ended, tasks = sum(state.terminal for state in states), len(states)
            result = WaitResult({job: cluster.job_state(job) for job in jobs}, runner.trouble)
            time_left = float("inf") if deadline is None else deadline - session.clock.monotonic()
            if not result.open or time_left <= 0:
                return result
            runner.pause(min(pause, time_left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)
