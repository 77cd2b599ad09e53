"""A background loop in simulated time, on hosts in memory: what happens in the world happens while it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from iris_cli.config.schema import ClusterConfig, Notify
from iris_cli.errors import ConfigError
from iris_cli.journal.files.runners import LOOP, read_loop_order
from iris_cli.ops.loop.changes import Configuration
from iris_cli.ops.loop.run import Loop, LoopEnd, LoopPass
from iris_cli.ops.session import Session
from tests.support.fake_runner import Clock, S, Site

HOUR = 3600.0


class Enough(BaseException):
    """The test has seen enough of a loop that does not end."""


@dataclass
class Script(Clock):
    """Time passes while somebody waits, and then things happen. No loop runs for longer than `most` seconds.

    `ahead`: so many seconds the operator's wall clock is ahead of all others.
    """

    most: float = HOUR
    began: float = 0.0
    events: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    ahead: float = 0.0

    def __post_init__(self) -> None:
        self.began = self.time

    def now(self) -> float:
        return self.time + self.ahead

    def sleep(self, seconds: float) -> None:
        for thread in threading.enumerate():
            if thread.name == "iris-notify":  # it runs a real command, which takes no simulated time
                thread.join()
        until = self.time + seconds
        while due := [each for each in self.events if each[0] <= until]:
            event = min(due, key=lambda each: each[0])
            self.events.remove(event)
            self.time = max(self.time, event[0])
            event[1]()
        self.time = until
        if self.time > self.began + self.most:
            raise Enough


class LoopLab:
    """One site and its loop. `turns` are when each turn ended, in seconds since the lab began."""

    def __init__(self, directory: Path, *workers: str) -> None:
        self.site = Site(directory, *(workers or ("w0",)))
        self.clock = Script()
        self.site.clock = self.clock
        for host in self.site.hosts.values():
            host.now = lambda: self.clock.time
        self.directory = directory
        self.state = directory / "state"
        self.file = directory / "cluster.yaml"
        self.file.write_text("valid")
        self.notify = Notify()
        self.turns: list[float] = []
        self.told: list[LoopPass] = []
        self.new_version: Callable[[], str] = str
        self.orphaned: Callable[[], bool] = bool
        self.change: Callable[[ClusterConfig], ClusterConfig] = lambda config: config
        self.session: Session | None = None
        self.site.cycle()
        self.clock.began = self.clock.time

    @property
    def now(self) -> float:
        """Seconds since the lab began."""
        return self.clock.time - self.clock.began

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        """Have something happen so many seconds after the lab began."""
        self.clock.events.append((self.clock.began + seconds, act))

    def load(self) -> ClusterConfig:
        """What the file says now: its text is `valid`, or else a problem."""
        text = self.file.read_text() if self.file.exists() else "no such file"
        if text != "valid":
            raise ConfigError("cluster.yaml is wrong", problems=(text,))
        config = replace(self.site.session().config, path=self.file, notify=self.notify)
        return self.change(config)

    def loop(self) -> Loop:
        """A loop that holds its lock and has not begun."""
        session = self.site.session()
        configuration = Configuration(self.file, self.load, self.load())
        session.reconfigure(configuration.initial)
        session.command = "iris loop"
        self.session = session
        held = session.state.runners.hold(
            LOOP, "iris loop", interval=session.limits.loop_interval, since=self.clock.now()
        )
        assert held is not None
        return Loop(
            session=session,
            lock=held,
            configuration=configuration,
            report=self._hear,
            order_at_start=read_loop_order(self.state),
            new_version=self.new_version,
            has_owner_ended=self.orphaned,
        )

    def run(self, most: float = HOUR) -> LoopEnd | None:
        """Run a loop to its end; None if it has not ended after that many seconds."""
        self.clock.most = most
        loop = self.loop()
        try:
            return loop.run()
        except Enough:
            return None
        finally:
            loop.lock.release()

    def ends(self, seconds: float, task: str, code: int = 0) -> None:
        """The command of a task ends by itself at that time, wherever it runs."""

        def end() -> None:
            [host] = [each for each in self.site.hosts.values() if task in each.running]
            host.exits(task, code)

        self.at(seconds, end)

    def running(self) -> list[str]:
        return sorted(name for host in self.site.hosts.values() for name in host.running)

    def polls(self) -> int:
        return sum(call == "poll" for host in self.site.hosts.values() for call in host.calls)

    def _hear(self, loop_pass: LoopPass) -> None:
        self.turns.append(round(self.now, 3))
        self.told.append(loop_pass)


__all__ = ["HOUR", "LoopLab", "S"]
