"""Jobs are accepted by what `cluster.yaml` says now, not by what the last probe found."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.errors import UnschedulableError
from tests.support.fake_runner import Site


def test_a_gang_is_accepted_by_attributes_that_the_next_probe_registers(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.hosts["w0"].rack, site.hosts["w1"].rack = "a", "b"
    site.launch("first")
    site.cycle()
    with pytest.raises(UnschedulableError):
        site.gang("train", 2)
    for host in site.hosts.values():
        host.rack = "c"
    site.gang("train", 2)
