"""An emulator with a clock that stands, and Google's client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fake_runner import Clock
from tests.support.google_tpu import GoogleTpu
from tests.support.tpu_emulator.cloud import Cloud
from tests.support.tpu_emulator.server import Emulator, start


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def emulator(clock: Clock) -> Iterator[Emulator]:
    with start(Cloud(clock=clock)) as started:
        yield started


@pytest.fixture
def cloud(emulator: Emulator) -> Cloud:
    return emulator.cloud


@pytest.fixture
def google(emulator: Emulator) -> GoogleTpu:
    return GoogleTpu(emulator)
