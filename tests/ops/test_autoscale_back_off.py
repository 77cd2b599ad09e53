"""A scale group backs off when a slice of it fails: from that pass on it requests no other one."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tests.ops.test_autoscale import Site


def test_a_pass_that_gives_up_a_slice_requests_no_other_one_before_the_back_off_has_ended(
    tmp_path: Path,
) -> None:
    """It would not be asked for, and expire: with a pass now and then each one would, for ever."""
    site = Site(tmp_path / "state")
    site.launch("train")
    [first] = site.autoscale().created
    owner, whole = site.books.slices[first]
    site.books.slices[first] = owner, replace(whole, hosts=whole.hosts[:1])
    site.launch("another")
    site.clock.sleep(1800)
    assert list(site.autoscale().deleted) == [first]
    assert list(site.states) == [first]
    site.clock.sleep(600)
    created = site.autoscale().created
    assert len(created) == 2
    assert set(created) <= site.books.slices.keys()
