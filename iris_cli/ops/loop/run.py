"""The background loop: one cycle after the other, until nothing is left to do.

It is one more ordinary invocation: it may be killed at any moment, and whoever comes next goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec import Struct, field

from iris_cli.config.schema import Mode
from iris_cli.errors import ConfigError, IrisError, LogDamagedError, NotFoundError
from iris_cli.journal.files.loop_order import LoopOrder, read_loop_order
from iris_cli.journal.files.runners import LOOP, HeldRunner
from iris_cli.ops.cycle import compaction, cycle
from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.loop.configuration import Configuration
from iris_cli.ops.loop.pace import SOON, Pace
from iris_cli.ops.loop.troubles import environment_troubles, missing_here
from iris_cli.ops.loop.watch import PASSING
from iris_cli.ops.session import Session
from iris_cli.ops.slices import autoscale
from iris_cli.ops.views.cycles import work_left

LOOK = 1.0
"""Seconds between two looks at whether the loop is to end, and at what others wrote."""

SCALE_EVERY = 30.0
"""Seconds between two passes of the autoscaler: each asks the provider for its list."""


class Leaving(StrEnum):
    """Why a loop ends."""

    DONE = "nothing is left to do"
    STOPPED = "it was stopped"
    REPLACED = "another loop was started in its place"
    OFF = "cluster.yaml says loop: off"
    GONE = "its state directory was moved or deleted"
    ORPHANED = "the demo that it belongs to has ended"
    UPGRADE = "another version of iris was installed"


class Turn(Struct, frozen=True, kw_only=True):
    """What one turn did: a cycle, or what kept it from running."""

    result: cycle.CycleResult | None = None
    trouble: str = ""
    fault: Exception | None = None  # one of ours


class Loop(Struct):
    """One loop. `held` is its lock, `began` the operator's order that it began under.

    `report` hears of each turn. `upgraded` returns the version that replaced this one, or ''. `orphaned` returns
    whether the process that the loop belongs to has ended.
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
        """Run cycles until there is a reason to end. Raises IrisError where no cycle can ever run again."""
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
        if not self.held.in_place():
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
        self._follow_configuration()  # BEFORE an upgrade: the next version could not begin with an invalid one
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
            self._trouble = _words(error)
        except (LogDamagedError, NotFoundError, ConfigError):
            raise
        except Exception as error:  # of ours: the next cycle may do better, and the operator hears of it
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
        """Wait for the next turn; what arrives meanwhile is weighed. What others write brings it forward, and so do
        requests, and a configuration that becomes valid or invalid.

        Returns early with the reason to end, if there is one.
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
                self._trouble = _words(error)
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
        """Whether it may end. AFTER the lock is let go the log is read once more.

        Who committed a job before saw the lock held, and started no loop.
        """
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
            return True  # another loop has begun
        self.held = held
        return False

    def _recorded(self) -> Mapping[str, object]:
        """What the heartbeat keeps of this loop beside the time of its last cycle."""
        missing = missing_here(self.session.cluster)
        troubles = [*self.configuration.troubles(), *environment_troubles(self.session.cluster, missing)]
        return {
            "pid": os.getpid(),
            "interval": self.session.limits.loop_interval,
            **({"troubles": troubles} if troubles else {}),
            **({"missing": {job: list(names) for job, names in missing.items()}} if missing else {}),
        }


def _words(error: IrisError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message
