"""Background loop: runs cycles until no work is left.

It is an ordinary invocation: it may be killed at any time, and the next invocation continues its work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, field

from iris_cli.config.schema import Mode
from iris_cli.core import Cluster, JobId, WorkerCondition, WorkerId, count
from iris_cli.errors import ConfigError, LogDamagedError, NotFoundError
from iris_cli.journal.files.runners import LOOP, HeldRunner, LoopOrder, read_loop_order
from iris_cli.ops import autoscale
from iris_cli.ops.cycle import compaction, cycle
from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.loop.changes import Configuration
from iris_cli.ops.loop.watch import PASSING, words_of
from iris_cli.ops.secret_values import NOT_SET, missing_secrets
from iris_cli.ops.session import Session
from iris_cli.ops.views.cycles import work_left

SOON = 1.0
"""Seconds to the next cycle after one in which something started, ended or was submitted, or a task sent a request."""


class Pace(Struct):
    """Pause between cycles. `interval` in seconds is the longest pause."""

    interval: float
    _pause: float = 0.0

    def pause(self, cluster: Cluster, now: float, *, changed: bool) -> float:
        """Return the seconds to the next cycle. Each pause doubles the previous one until something changes.

        `changed`: the log has grown, or a task sent a request, whose next one may come soon. A cycle also
        follows the end of a known time limit or grace.
        """
        self._pause = min(SOON if changed else max(SOON, 2 * self._pause), self.interval)
        left = [at + SOON - now for at in _ends(cluster)]
        return min([self._pause, *(each for each in left if each > 0)])


def _ends(cluster: Cluster) -> Iterator[float]:
    """Yield the times at which time limits and graces of live attempts end."""
    for attempt_id, attempt in cluster.live_attempts():
        job = cluster.jobs[attempt_id.task.job]
        if attempt.stop is not None:
            yield attempt.stop.at + job.grace
        elif attempt.started_at is not None and job.timeout:
            yield attempt.started_at + job.timeout


_RESTART = "run `iris loop start` in a shell that has"
_NAMED = 3


def missing_here(cluster: Cluster) -> dict[JobId, dict[str, str]]:
    """Return the secrets of open jobs that this process can't read, by job and name, with the reason."""
    waiting = [job for job in cluster.open_jobs() if job.end is None and job.secrets]
    return {job.id: missing for job in waiting if (missing := missing_secrets(job))}


def environment_troubles(
    cluster: Cluster, missing: Mapping[JobId, Mapping[str, str]], environ: Mapping[str, str] = os.environ
) -> Iterator[str]:
    """Yield the problems of this process's environment: a missing agent, a refused key, missing secrets."""
    refused = [each.id for each in cluster.workers.values() if each.condition is WorkerCondition.AUTH_FAILED]
    if refused:
        who = _who(refused)
        agent = environ.get("SSH_AUTH_SOCK", "")
        if agent and not Path(agent).is_socket():
            yield f"its SSH agent is gone and {who} refused its key; {_RESTART} an agent"
        else:
            yield f"{who} refused its key; run `iris doctor`, then {_RESTART} the right one"
    for reason, workers in _without_key(cluster).items():
        yield f"{_who(workers)} can't be reached: {reason}; run `iris doctor`"
    by_secret: dict[tuple[str, str], list[JobId]] = {}
    for job, problems in missing.items():
        for name, problem in problems.items():
            by_secret.setdefault((name, problem), []).append(job)
    for (name, problem), jobs in by_secret.items():
        more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
        of = f"secret {name} of {', '.join(jobs[:_NAMED])}{more}"
        yield f"{of} is not in its environment; {_RESTART} it" if problem == NOT_SET else f"{of}: {problem}"


def _who(workers: Sequence[WorkerId]) -> str:
    return workers[0] if len(workers) == 1 else count(len(workers), "worker")


def _without_key(cluster: Cluster) -> dict[str, list[WorkerId]]:
    """Return the workers that are not polled because this machine can't use a key for them, by reason."""
    found: dict[str, list[WorkerId]] = {}
    for each in cluster.workers.values():
        step, _, detail = each.reason.partition(": ")
        if each.condition is WorkerCondition.SUSPECT and step == "key":
            found.setdefault(detail, []).append(each.id)
    return found


LOOK = 1.0
"""Seconds between two checks for a reason to end and for new log entries."""

SCALE_EVERY = 30.0
"""Seconds between two passes of the autoscaler: each lists the provider's slices."""


class Leaving(StrEnum):
    """Reason why a loop ends."""

    DONE = "nothing left to do"
    STOPPED = "stopped"
    REPLACED = "replaced by another loop"
    OFF = "cluster.yaml says loop: off"
    GONE = "its state directory was moved or deleted"
    ORPHANED = "its demo ended"
    UPGRADE = "another version of iris was installed"


class Turn(Struct, frozen=True, kw_only=True):
    """Result of one turn: a cycle, or why it did not run."""

    result: cycle.CycleResult | None = None
    trouble: str = ""
    fault: Exception | None = None  # an internal error


class Loop(Struct):
    """One loop. `held` is its lock, `began` the operator's order at its start.

    `report` gets each turn. `upgraded` returns the version that replaced this one, or ''. `orphaned` returns
    True if the process that owns the loop has ended.
    """

    session: Session
    held: HeldRunner
    configuration: Configuration
    report: Callable[[Turn], None]
    began: LoopOrder
    upgraded: Callable[[], str] = str
    orphaned: Callable[[], bool] = bool
    _trouble: str = ""
    _scaled_at: float = float("-inf")
    _result: cycle.CycleResult = field(default_factory=cycle.CycleResult)

    def run(self) -> Leaving:
        """Run cycles until there is a reason to end. Raises IrisError if no cycle can ever run again."""
        session = self.session
        session.runs_as, session.recorded = LOOP, self._recorded
        pace = Pace(session.limits.loop_interval)
        with Dispatcher(session) as dispatcher:
            if (leaving := self._leaving()) is not None:
                return leaving
            requests = 0
            while True:
                seq = session.cluster.seq
                self.report(self._turn(dispatcher))
                if not self._trouble and not self._work() and self._let_go():
                    return Leaving.DONE
                pace.interval = session.limits.loop_interval
                asked, requests = dispatcher.requests != requests, dispatcher.requests
                changed = (session.cluster.seq != seq or asked) and not self._trouble
                pause = pace.pause(session.cluster, session.clock.now(), changed=changed)
                if (leaving := self._rest(dispatcher, pause)) is not None:
                    return leaving

    def _leaving(self) -> Leaving | None:
        if not self.held.is_in_place():
            return Leaving.GONE
        if self.orphaned():
            return Leaving.ORPHANED
        order = read_loop_order(self.session.state.path)
        if self.began.stopped:
            return Leaving.STOPPED
        if order.turn != self.began.turn:
            return Leaving.STOPPED if order.stopped else Leaving.REPLACED
        if self.session.config.loop is Mode.OFF:
            return Leaving.OFF
        self._follow_configuration()  # before an upgrade: the next version can't start with an invalid one
        return Leaving.UPGRADE if not self.configuration.invalid and self.upgraded() else None

    def _turn(self, dispatcher: Dispatcher) -> Turn:
        self._trouble = ""
        try:
            self._follow_configuration()
            if self.session.config.loop is Mode.OFF:
                return Turn()
            self._scale()
            self._result = cycle.run(self.session, dispatcher, schedule=not self.configuration.invalid)
            if (done := compaction.when_large(self.session)) is not None:
                self.session.tell(compaction.words(done))
        except PASSING as error:
            self._trouble = words_of(error)
        except (LogDamagedError, NotFoundError, ConfigError):
            raise
        except Exception as error:  # internal: reported to the operator, the next cycle may succeed
            self._trouble = f"internal error: {type(error).__name__}: {error}"
            return Turn(trouble=self._trouble, fault=error)
        return Turn(trouble=self._trouble) if self._trouble else Turn(result=self._result)

    def _follow_configuration(self) -> None:
        config = self.configuration.look()
        if config is not None:
            self.session.reconfigure(config)

    def _scale(self) -> None:
        now = self.session.clock.monotonic()
        if not self.session.config.scales or self.configuration.invalid:
            return
        if now - self._scaled_at >= SCALE_EVERY:
            self._scaled_at = now
            autoscale.run(self.session, probe=False)

    def _rest(self, dispatcher: Dispatcher, seconds: float) -> Leaving | None:
        """Wait for the next turn and weigh arriving answers. New log entries, task requests and a
        configuration that becomes valid or invalid shorten the wait.

        Return early with the reason to end, if there is one.
        """
        clock, state = self.session.clock, self.session.state.path
        due = clock.monotonic() + seconds
        size, requests = compaction.size_of_log(state), dispatcher.requests
        invalid = self.configuration.invalid
        while (now := clock.monotonic()) < due:
            until = min(due, now + LOOK)
            try:
                cycle.linger(
                    self.session,
                    dispatcher,
                    self._result,
                    schedule=not self.configuration.invalid,
                    until=until,
                )
            except PASSING as error:
                self._trouble = words_of(error)
            clock.sleep(max(0.0, until - clock.monotonic()))
            if (leaving := self._leaving()) is not None:
                return leaving
            found = compaction.size_of_log(state), dispatcher.requests
            if found != (size, requests) or self.configuration.invalid != invalid:
                (size, requests), invalid = found, self.configuration.invalid
                due = min(due, clock.monotonic() + SOON)
        return None

    def _work(self) -> str:
        return work_left(self.session.cluster, self.session.config, self.session.state)

    def _let_go(self) -> bool:
        """Release the lock and return True if the loop may end. The log is read AFTER that, for late commits."""
        session = self.session
        self.held.release()
        session.view()
        if not self._work():
            return True
        held = None
        try:
            held = session.state.runners.hold(
                LOOP, session.command, interval=session.limits.loop_interval, since=session.clock.now()
            )
        except OSError:
            return True
        if held is None:
            return True  # another loop has started
        self.held = held
        return False

    def _recorded(self) -> Mapping[str, object]:
        """Return the loop's entries for the heartbeat."""
        missing = missing_here(self.session.cluster)
        troubles = [*self.configuration.troubles(), *environment_troubles(self.session.cluster, missing)]
        return {
            "pid": os.getpid(),
            "interval": self.session.limits.loop_interval,
            **({"troubles": troubles} if troubles else {}),
            **({"missing": {job: list(names) for job, names in missing.items()}} if missing else {}),
        }
