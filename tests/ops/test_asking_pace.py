"""Requests that a task sends one after the other are answered soon, whoever runs the cycles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import pytest

from iris_cli.core.ids import JobId
from iris_cli.ops.loop.foreground import CycleRunner, wait_for, watch
from tests.ops.loop.loop_lab import LoopLab
from tests.support.fake_hosts import Entry
from tests.support.fake_runner import Clock, Site

NINE = 9
IDLE = 120.0
"""Seconds without a request before the first one: by then every pause has its full length."""


@dataclass
class Asker(Clock):
    """A program in a task asks, waits for the answer, asks again; it looks for answers while time passes."""

    task: Entry | None = None
    begins: float = 0.0
    asked: int = 0
    ended: float = 0.0
    then: Callable[[], None] = field(default=lambda: None)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.task is None or self.time < self.begins or self.ended:
            return
        if self.asked and str(self.asked) not in self.task.inbox:
            return
        if self.asked == NINE:
            self.ended = self.time
            self.then()
            return
        self.asked += 1
        self.task.ask(str(self.asked), "status")


def asking(path: Path) -> tuple[Site, Asker]:
    """A task `train` that begins to ask after a while, and ends when it has all answers."""
    site = Site(path, "w0")
    clock = site.clock = Asker()
    host = site.hosts["w0"]
    host.now = clock.now
    site.launch("train")
    site.cycle()
    clock.task = host.of("train")
    clock.begins = clock.time + IDLE
    clock.then = lambda: host.exits("train")
    return site, clock


def took(clock: Asker) -> float:
    """Seconds from the first moment at which the program could ask to the last answer."""
    assert clock.asked == NINE
    return clock.ended - clock.begins


def test_a_program_that_asks_is_answered_at_its_pace_under_wait(tmp_path: Path) -> None:
    site, clock = asking(tmp_path)
    wait_for(site.session(), [JobId("train")])
    assert took(clock) < 12.0


def test_a_program_that_asks_is_answered_at_its_pace_while_logs_are_followed(tmp_path: Path) -> None:
    """Which reads logs about once a second, and leaves as much time between two cycles."""
    site, clock = asking(tmp_path)
    with CycleRunner(site.session()) as caretaker:
        caretaker.min_interval = 1.0
        while not clock.ended:
            caretaker.run_due_cycle()
            caretaker.pause(1.0)
    assert took(clock) < 20.0


@pytest.mark.parametrize("interval", [5.0, 60.0])
def test_a_program_that_asks_is_answered_at_its_pace_under_watch(tmp_path: Path, interval: float) -> None:
    site, clock = asking(tmp_path)
    for _ in takewhile(lambda _: not clock.ended, watch(site.session(), interval=interval, schedule=True)):
        pass
    assert took(clock) < interval + 10.0


def test_a_program_that_asks_is_answered_at_its_pace_by_the_background_loop(tmp_path: Path) -> None:
    lab = LoopLab(tmp_path)
    lab.site.launch("train")
    lab.site.cycle()
    task = lab.site.hosts["w0"].of("train")
    answered: list[float] = []

    def look() -> None:
        if len(answered) < NINE:
            if str(len(answered)) in task.inbox:
                answered.append(lab.now)
            if str(len(answered)) not in task.outbox:
                task.ask(str(len(answered)), "status")
            lab.at(lab.now + 0.1, look)
        else:
            lab.site.hosts["w0"].exits("train")

    lab.at(IDLE, look)
    lab.run()
    assert len(answered) == NINE
    assert answered[-1] - answered[0] < 12.0


def test_a_task_that_sends_no_more_requests_is_asked_seldom_again(tmp_path: Path) -> None:
    site, clock = asking(tmp_path)
    host = site.hosts["w0"]
    clock.then = lambda: None
    session = site.session()
    wait_for(session, [JobId("train")], timeout=IDLE + 20.0)
    before = host.calls.count("poll")
    wait_for(session, [JobId("train")], timeout=60.0)
    assert host.calls.count("poll") - before < 25
