"""Zones of the emulated cloud: slices there are nodes, or asked for by queued resources, or each in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.capacity.gcp_place import GcpPlace


@pytest.fixture
def place() -> Iterator[GcpPlace]:
    """Where slices are nodes."""
    with GcpPlace.open() as opened:
        yield opened


@pytest.fixture
def queue() -> Iterator[GcpPlace]:
    """Where slices are asked for by queued resources."""
    with GcpPlace.open(queued=True) as opened:
        yield opened


@pytest.fixture(params=[False, True], ids=["node", "queued"])
def either(request: pytest.FixtureRequest) -> Iterator[GcpPlace]:
    with GcpPlace.open(queued=request.param) as opened:
        yield opened
