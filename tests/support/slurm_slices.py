"""Slices of a real Slurm on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from iris_cli.capacity.slurm.provider import SlurmProvider
from iris_cli.core.messages.cloud import CloudSlice, CloudState
from iris_cli.core.model.slice import Provider, ScaleGroup, SliceTemplate, SlurmOptions
from tests.support.slurm import Slurm
from tests.support.waiting import until


def slurm_group(name: str = "west", **options: Any) -> ScaleGroup:
    """A group of allocations of two nodes."""
    template = SliceTemplate(provider=Provider.SLURM, type="", slurm=SlurmOptions(**{"nodes": 2, **options}))
    return ScaleGroup(name=name, template=template)


class Settled(SlurmProvider):
    """The same provider, whose list waits until nothing is pending or ending: Slurm starts jobs in the background."""

    def list(self) -> tuple[CloudSlice, ...]:
        found: list[tuple[CloudSlice, ...]] = []

        def settled() -> bool:
            found.append(SlurmProvider.list(self))
            return all(each.state not in (CloudState.CREATING, CloudState.DELETING) for each in found[-1])

        until(settled, lambda: found[-1])
        return found[-1]


class SlurmPlace:
    """Somewhere slices are made: a Slurm cluster, which the commands of this process reach."""

    group = small_group = slurm_group()

    def __init__(self, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
        self._slurm = slurm
        monkeypatch.setenv("SLURM_CONF", str(slurm.conf))

    def provider(self, owner: str = "us") -> SlurmProvider:
        return Settled(owner)

    @contextlib.contextmanager
    def opened(self) -> Iterator[SlurmPlace]:
        try:
            yield self
        finally:
            self._slurm.empty()
