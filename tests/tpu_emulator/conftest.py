"""An emulator with a clock that stands, and Google's client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.google_tpu import GoogleTpu
from tests.support.tpu_emulator.cloud import Cloud
from tests.support.tpu_emulator.server import Emulator, start


class StandingClock:
    """It goes on when it is told to."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def wait_until(happened: Callable[[], bool]) -> None:
    """For what threads and processes do: a busy machine takes its time."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def emulator(clock: StandingClock) -> Iterator[Emulator]:
    with start(Cloud(clock=clock)) as started:
        yield started


@pytest.fixture
def cloud(emulator: Emulator) -> Cloud:
    return emulator.cloud


@pytest.fixture
def google(emulator: Emulator) -> GoogleTpu:
    return GoogleTpu(emulator)
