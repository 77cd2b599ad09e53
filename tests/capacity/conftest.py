"""Providers to try, each in a place of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from iris_cli.capacity.provider import SliceProvider
from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.core.model.slice import ScaleGroup
from iris_cli.core.model.worker import Connection
from iris_cli.demo.processes import make_key
from iris_cli.demo.provider import LocalProvider
from tests.support.memory_provider import Books, MemoryProvider
from tests.support.scale import scale_group
from tests.support.slurm_slices import SlurmPlace


@dataclass
class Place:
    """Somewhere slices are made. `provider()` is what a process opens, `group` asks for slices of two VMs.

    `small_group` asks for slices of fewer VMs where each of them is a process.
    """

    provider: Callable[..., SliceProvider]
    group: ScaleGroup
    small_group: ScaleGroup


@pytest.fixture(params=["memory", "local", "gcp", "gcp-queued", "slurm"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place | SlurmPlace]:
    with contextlib.ExitStack() as stack:
        if request.param == "slurm":
            there = SlurmPlace(request.getfixturevalue("slurm"), request.getfixturevalue("monkeypatch"))
            yield stack.enter_context(there.opened())
        else:
            yield stack.enter_context(_PLACES[request.param](tmp_path))


@contextlib.contextmanager
def memory(_: Path) -> Iterator[Place]:
    books = Books()
    group = scale_group("west", "v4-16")
    yield Place(lambda owner="us": MemoryProvider(books, owner), group, group)


@contextlib.contextmanager
def local(path: Path) -> Iterator[Place]:
    make_key(path / "id_ed25519")
    connection = Connection(host="", key=str(path / "id_ed25519"))
    opened: list[LocalProvider] = []

    def provider(owner: str = "us", clock: Clock = SYSTEM_CLOCK) -> LocalProvider:
        opened.append(LocalProvider(path / "slices", owner, "us-west4-a", clock))
        return opened[-1]

    try:
        groups = (scale_group("west", tpu, connection=connection) for tpu in ("v4-16", "v4-8"))
        yield Place(provider, *groups)
    finally:
        for each in opened:
            for there in each.list():
                each.delete(there.name)


@contextlib.contextmanager
def gcp(_: Path, *, queued: bool = False) -> Iterator[Place]:
    from tests.capacity.gcp_place import GcpPlace

    with GcpPlace.open(queued=queued) as there:
        yield Place(there.provider, there.group, there.group)


_PLACES: dict[str, Any] = {
    "memory": memory,
    "local": local,
    "gcp": gcp,
    "gcp-queued": lambda path: gcp(path, queued=True),
}
