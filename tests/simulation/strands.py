"""Invocations as strands, resumed one at a time in an order that follows from the seed.

Every place where a real process would wait (for a worker, the lock, the disk, the clock) gives way to the
scheduler. So between any two steps of one invocation others may take theirs, hosts may fail, and the invocation
itself may be killed: then nothing it still tries to do has any effect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from random import Random

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]  # it comes without types


class Killed(BaseException):
    """The invocation is dead, as after kill -9."""


Draws = Callable[[str], Random]


def draws_of(seed: int) -> Draws:
    """Return the random numbers of a run by their subject.

    Each subject has a generator of its own, so one call more to one host changes no fault and no other host. Seeds
    thus stay similar stories when the product changes, and with a mutation.
    """
    return lru_cache(maxsize=None)(lambda subject: Random(f"{seed} {subject}"))


class Scheduler:
    """Simulated time, and what is due when. What is due at the same moment comes in random order."""

    def __init__(self, draws: Draws, now: float) -> None:
        self.draws = draws
        self.now = now
        self.asleep_until = now  # the operator's machine is suspended: its strands don't run
        self.slept = 0.0  # seconds in all
        self.current: Strand | None = None
        self.steps = 0
        self._hub = getcurrent()
        self._due: list[tuple[float, float, int, Callable[[], None]]] = []
        self._number = count()
        self._order = draws("order")

    def at(self, when: float, act: Callable[[], None]) -> None:
        heappush(self._due, (when, self._order.random(), next(self._number), act))

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self.at(self.now + seconds, act)

    def run(self, until: float, stop: Callable[[], bool]) -> None:
        """Let happen what is due before `until`, or until `stop` says so after a step."""
        while self._due and self._due[0][0] <= until and not stop():
            when, _, _, act = heappop(self._due)
            self.now = max(self.now, when)
            self.steps += 1
            act()
        if not stop():
            self.now = max(self.now, until)

    def suspend(self, seconds: float) -> None:
        """The operator's machine sleeps; what is due on it comes later."""
        until = max(self.asleep_until, self.now + seconds)
        self.slept += until - max(self.asleep_until, self.now)
        self.asleep_until = until

    def resume(self, strand: Strand) -> None:
        """Only called by the scheduler itself: go on with a strand until it waits again."""
        before, self.current = self.current, strand
        strand.greenlet.switch()
        self.current = before

    def give_way(self) -> None:
        """Called in a strand: wait to be resumed."""
        self._hub.switch()


@dataclass(frozen=True, slots=True)
class Luck:
    """At which of its steps an invocation is killed, and at which it is stopped for so many seconds; 0: never."""

    dies_at: int = 0
    stalls_at: int = 0
    stalls_for: float = 0.0


class Process:
    """One invocation of the program: its strands live and die together."""

    def __init__(self, scheduler: Scheduler, name: str, luck: Luck) -> None:
        self.scheduler = scheduler
        self.name = name
        self.dead = False
        self.strands: list[Strand] = []
        self.stalled_until = 0.0
        self.has_secrets = True  # in its environment
        self._luck = luck
        self._steps = 0

    def spawn(self, body: Callable[[], None]) -> Strand:
        strand = Strand(self, body)
        self.strands.append(strand)
        strand.wake()
        return strand

    @property
    def running(self) -> bool:
        return any(not strand.over for strand in self.strands)

    def step(self) -> bool:
        """Count a step; whether this is the one at which it is killed."""
        self._steps += 1
        if self._steps == self._luck.stalls_at:
            self.stalled_until = self.scheduler.now + self._luck.stalls_for
        return self._steps == self._luck.dies_at

    def kill(self) -> None:
        """Called by the scheduler, between two steps."""
        if self.dead:
            return
        self.dead = True
        for strand in reversed(self.strands):
            strand.end()


class Strand:
    """One line of execution of an invocation. Its methods are called from within it, except `wake` and `end`."""

    def __init__(self, process: Process, body: Callable[[], None]) -> None:
        self.process = process
        self.scheduler = process.scheduler
        self.over = False
        self.greenlet = greenlet(self._run, parent=self.scheduler._hub)
        self._body = body
        self._turn = 0

    def _run(self) -> None:
        try:
            self._body()
        except Killed:
            pass
        finally:
            self.over = True

    def wake(self, delay: float = 0.0) -> None:
        """Resume it after that time, unless something else does so before."""
        turn = self._turn
        self.scheduler.after(delay, lambda: self._resume(turn))

    def _resume(self, turn: int) -> None:
        if turn != self._turn or self.over or self.process.dead:
            return
        until = max(self.scheduler.asleep_until, self.process.stalled_until)
        if self.scheduler.now < until:
            self.scheduler.at(until, lambda: self._resume(turn))
            return
        self._turn += 1
        self.scheduler.resume(self)

    def park(self) -> None:
        """Wait until somebody wakes it."""
        if not self.process.dead:
            self.scheduler.give_way()
        if self.process.dead:
            raise Killed

    def pause(self, seconds: float) -> None:
        """Wait for that long. Here an invocation may be killed."""
        if self.process.step():
            self.die()
        self.wake(seconds)
        self.park()

    def die(self) -> None:
        """The whole invocation is killed now, while this strand runs."""
        self.scheduler.after(0.0, self.process.kill)
        self.park()
        raise AssertionError("a dead strand runs on")

    def end(self) -> None:
        if self.over:
            return
        if not self.greenlet:  # never began
            self.over = True
            return
        before, self.scheduler.current = self.scheduler.current, self
        self.greenlet.throw(Killed())
        self.scheduler.current = before


class Bell:
    """One strand waits for it, others ring it; nobody is woken who waits for something else."""

    def __init__(self, strand: Strand) -> None:
        self._strand = strand
        self._waits = False

    def wait(self, patience: float | None = None) -> None:
        self._waits = True
        if patience is not None:
            self._strand.wake(patience)
        self._strand.park()
        self._waits = False

    def ring(self, delay: float = 0.0) -> None:
        if self._waits:
            self._waits = False
            self._strand.wake(delay)
