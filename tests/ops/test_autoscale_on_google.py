"""Passes of the autoscaler with the provider `gcp` itself, on the emulated cloud; its VMs are on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.ops.session import Session
from tests.capacity.gcp_place import ZONE, GcpPlace
from tests.ops.test_autoscale import Site


class GoogleSite(Site):
    """A cluster whose scale group `west` is made by Google."""

    def __init__(self, directory: Path, place: GcpPlace) -> None:
        super().__init__(directory)
        self.place_of_google = place
        self.group = replace(self.group, template=place.group.template)

    def session(self) -> Session:
        return replace(super().session(), make_provider=None)

    def begins(self) -> str:
        """A slice is made for a job, and works."""
        self.launch("train")
        [name] = self.autoscale().created
        self.boots(name)
        self.autoscale()
        assert self.states == {name: "ready"}
        self.place()
        return name

    @property
    def left(self) -> list[str]:
        """What the cloud has, by its own books."""
        return [*self.place_of_google.cloud.nodes, *self.place_of_google.cloud.requests]

    def asked(self, path: str) -> int:
        return sum(path in each.path for each in self.place_of_google.cloud.books.calls)


@pytest.fixture(params=[False, True], ids=["node", "queued"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GoogleSite]:
    with GcpPlace.open(queued=request.param) as place:
        yield GoogleSite(tmp_path / "state", place)


def test_the_host_keys_of_a_slice_are_on_record_strictly_and_asked_for_once(site: GoogleSite) -> None:
    name = site.begins()
    for _ in range(3):
        site.autoscale()
    assert site.asked(":getGuestAttributes") == 1
    workers = site.session_now().cluster.workers
    assert {each.connection.known_hosts for each in workers.values()} == {"strict"}
    on_record = site.session_now().state.known_hosts.read_text().splitlines()
    assert [line.split()[0] for line in on_record] == [f"{name}-0", f"{name}-1"]


def test_a_lack_of_machines_that_shows_late_lets_the_group_back_off(site: GoogleSite) -> None:
    cloud = site.place_of_google.cloud
    cloud.settings.stocked_out.append(ZONE)
    site.launch("train")
    [name] = site.autoscale().created
    site.autoscale()
    if site.group.template.gcp.queued:
        assert site.states == {name: "creating"}  # it waits for machines: that is what a queue is for
        return
    record = site.session_now().cluster.scale_groups["west"]
    assert "no more capacity" in record.error
    assert record.backoff_until - site.clock.now() > 60 * 4
    site.autoscale()
    assert (site.states, site.left) == ({}, [])
