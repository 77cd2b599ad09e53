"""Wait until jobs have ended. The waiting command runs cycles, since no other process may do so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType

from msgspec import Struct

from iris_cli.core import Cluster, JobId, JobState, TaskId, Token
from iris_cli.core.messages.observations import RemoteState
from iris_cli.errors import ExitCode, IrisError
from iris_cli.ops.cycle.cycle import PATIENCE, CycleResult, keep_logs, linger, run, tell_news
from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.loop.watch import PASSING, running
from iris_cli.ops.session import Session

_FIRST, _SOONEST, _CYCLE_EVERY = 0.2, 0.5, 3.0  # seconds from one cycle to the next
_NAMED = 3  # jobs named in the progress line
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0  # seconds between two reads of the log

_WORST_FIRST = (
    (JobState.FAILED, ExitCode.FAILED),
    (JobState.UNSCHEDULABLE, ExitCode.UNSCHEDULABLE),
    (JobState.KILLED, ExitCode.KILLED),
)
"""A failure outranks a job that never ran, which outranks a cancelled one."""


class Caretaker:
    """Runner of cycles for a waiting command, which reads the log in between.

    The first cycles come soon, since many jobs end at once; later ones less often. They come soon again after
    a request of a task, and while tasks are placed, since short tasks free room for others. `least`: minimum
    of seconds between two cycles. A locked or unwritable state does not end the wait; `trouble` holds the
    error.
    """

    def __init__(self, session: Session, *, schedule: bool = True, least: float = 0.0) -> None:
        self.session = session
        self.schedule = schedule
        self.least = least
        self.trouble: IrisError | None = None
        self._told = ""  # last trouble printed
        self._due = 0.0  # by the monotonic clock
        self._between = 0.0
        self._asked = False  # a task sent requests in or after the last cycle
        self._requests = 0  # number of task requests at the last check
        self._result = CycleResult()
        self._dispatcher = Dispatcher(session)
        self._runner = ExitStack()

    def __enter__(self) -> Caretaker:
        self.session.worked = True
        if self.schedule:
            self._runner.enter_context(running(self.session, "wait", interval=_CYCLE_EVERY))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._runner, self._dispatcher:
            if kind is None and self._dispatcher.calls.working:  # a start or stop: healthy hosts answer soon
                self._do(lambda: self._dispatcher.attend(patience=PATIENCE))
        if kind is None:
            keep_logs(self.session, self._dispatcher)
            tell_news(self.session)

    def look(self) -> Cluster:
        """Return the current cluster; run a cycle first if one is due."""
        if self.session.clock.monotonic() >= self._due:
            self.trouble = None
            self._do(self._run_cycle)
            self._asked = self._was_asked()
            is_soon = self._is_moving() or self._between == _FIRST
            between = _SOONEST if is_soon else 2 * self._between or _FIRST
            self._between = max(self.least, min(between, _CYCLE_EVERY))
            self._due = self.session.clock.monotonic() + self._between
        return self.session.view()

    def hurry(self) -> None:
        """Run a cycle at the next `look`."""
        self._due = 0.0

    def said(self, token: Token) -> RemoteState | None:
        """Return the state of an attempt as its worker reported it in the last cycle, or None."""
        return self._dispatcher.said(token)

    def reason(self, key: TaskId | JobId) -> str:
        """Return why a task or a gang is pending, by the plan of the last cycle; '' if that placed it."""
        plan = self._result.plan
        reasons = plan.waiting.get(key, ()) if plan is not None else ()
        return str(reasons[0]) if reasons else ""

    def pause(self, seconds: float) -> None:
        """Wait `seconds`, weighing arriving answers and sending the calls that follow.

        After task requests or placements the wait ends at the next cycle. Return at once when tasks end.
        """
        clock = self.session.clock
        until = clock.monotonic() + seconds
        if self._is_moving():
            until = min(until, self._due)
        ended = len(self._dispatcher.ended)
        self._do(
            lambda: linger(self.session, self._dispatcher, self._result, schedule=self.schedule, until=until)
        )
        if len(self._dispatcher.ended) == ended:
            clock.sleep(max(0.0, until - clock.monotonic()))
        if self._was_asked():
            self._asked = True
            self._between = max(self.least, _SOONEST)
            self._due = min(self._due, clock.monotonic() + self._between)

    def _is_moving(self) -> bool:
        """Return True if the last cycle placed tasks or tasks sent requests: the next cycle may find more to do."""
        return self._asked or bool(self._result.assigned)

    def _was_asked(self) -> bool:
        """Return True if tasks have sent requests since the last check."""
        before, self._requests = self._requests, self._dispatcher.requests
        return self._requests > before

    def _run_cycle(self) -> None:
        self._result = run(self.session, self._dispatcher, schedule=self.schedule)

    def _do(self, act: Callable[[], object]) -> None:
        try:
            act()
        except PASSING as error:
            self.trouble = error
            if error.message != self._told:
                self._told = error.message
                self.session.tell(f"no cycle: {error.message}")


class Waited(Struct, frozen=True):
    """The state of each job at the end of the wait, in the order in which they were named."""

    states: Mapping[JobId, JobState]
    trouble: IrisError | None = None  # why cycles could not run

    @property
    def open(self) -> list[JobId]:
        """Jobs that were still open at the timeout."""
        return [job for job, state in self.states.items() if not state.terminal]

    @property
    def exit_code(self) -> ExitCode:
        """0 if all succeeded; the code of the worst end; 1 after a timeout."""
        if self.open:
            return ExitCode.FAILED
        states = set(self.states.values())
        return next((code for state, code in _WORST_FIRST if state in states), ExitCode.OK)


def wait_for(session: Session, jobs: Sequence[JobId], *, timeout: float | None = None) -> Waited:
    """Wait until all jobs have ended, at most `timeout` seconds. Cycles commit their results during the wait."""
    deadline = None if timeout is None else session.clock.monotonic() + timeout
    pause, ended, tasks = _FIRST_PAUSE, 0, 0
    names = f"waiting for {', '.join(jobs[:_NAMED])}{', ...' if len(jobs) > _NAMED else ''}"
    with session.progress(lambda: (names, ended, tasks, "task")), Caretaker(session) as caretaker:
        while True:
            cluster = caretaker.look()
            states = [task.state for job in jobs for task in cluster.tasks_of(job)]
            ended, tasks = sum(state.terminal for state in states), len(states)
            waited = Waited({job: cluster.job_state(job) for job in jobs}, caretaker.trouble)
            left = float("inf") if deadline is None else deadline - session.clock.monotonic()
            if not waited.open or left <= 0:
                return waited
            caretaker.pause(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)
