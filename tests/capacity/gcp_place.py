"""A zone of the emulated cloud, as the provider `gcp` sees it. It has VMs on paper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from iris_cli.core.messages.cloud import CloudSlice, CloudState
from iris_cli.core.model.slice import GcpOptions, Provider, ScaleGroup, Slice, SliceState
from tests.support.scale import scale_group
from tests.support.tpu_emulator.cloud import Cloud
from tests.support.tpu_emulator.server import start

if TYPE_CHECKING:
    from iris_cli.capacity.gcp.provider import GcpProvider

ZONE = "us-west4-a"


class GcpPlace:
    """`cloud` is what there is, `group` asks for slices of two VMs."""

    def __init__(self, cloud: Cloud, *, queued: bool) -> None:
        self.cloud = cloud
        self.group = gcp_group(queued=queued)

    @classmethod
    @contextmanager
    def open(cls, *, queued: bool = False) -> Iterator[GcpPlace]:
        """Skip the test if Google's client is not installed. Loading it for all tests takes 0.2 s in each process."""
        pytest.importorskip("google.cloud.tpu_v2")
        with pytest.MonkeyPatch.context() as patch, start(Cloud()) as emulator:
            patch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", emulator.url)
            yield cls(emulator.cloud, queued=queued)

    def provider(
        self, owner: str = "us", *, timeout: float = 60.0, tries: int = 3, known: tuple[Slice, ...] = ()
    ) -> GcpProvider:
        from iris_cli.capacity.gcp.api import RetryPolicy
        from iris_cli.capacity.gcp.provider import GcpProvider

        patience = RetryPolicy(timeout=timeout, tries=tries, pause=0.0)
        return GcpProvider("lab", ZONE, owner, {each.name: each for each in known}, patience)

    def create(self, name: str = "west-1", **options: Any) -> None:
        """`options` are those of GcpOptions."""
        self.provider().create(name, with_options(self.group, **options))

    def only(self, **settings: Any) -> CloudSlice:
        """The only slice that is listed."""
        [seen] = self.provider(**settings).list()
        return seen


def gcp_group(*, queued: bool = False, **fields: Any) -> ScaleGroup:
    group = scale_group("west", "v4-16", **fields)
    template = replace(
        group.template,
        provider=Provider.GCP,
        project="lab",
        runtime="tpu-ubuntu2204-base",
        gcp=GcpOptions(queued=queued),
    )
    return replace(group, template=template)


def with_options(group: ScaleGroup, **options: Any) -> ScaleGroup:
    gcp = replace(group.template.gcp, **options)
    return replace(group, template=replace(group.template, gcp=gcp))


def seen_as(seen: CloudSlice) -> tuple[CloudState, str]:
    return seen.state, seen.detail


def asked(place: GcpPlace, method: str = "", path: str = "") -> list[str]:
    """The answers to calls of one kind."""
    return [each.answer for each in place.cloud.books.calls if method in each.method and path in each.path]


def in_the_log(seen: CloudSlice, state: SliceState = SliceState.READY) -> Slice:
    """A slice as the log has it, once it was listed so."""
    return Slice(
        name=seen.name,
        group="west",
        template=gcp_group().template,
        state=state,
        hosts=seen.hosts,
        incarnation=seen.incarnation,
    )


def grow_old(place: GcpPlace) -> None:
    """Everything was made an hour ago."""
    for node in place.cloud.nodes.values():
        node.made_at -= 3600.0
