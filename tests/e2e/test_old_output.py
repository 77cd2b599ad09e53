"""Output that is old is removed from real hosts, and only that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.site import Site
from tests.support.sshd import SshHost

pytestmark = pytest.mark.ssh

TPU = ("--tpu", "v5litepod-4")
Lab = Callable[..., list[SshHost]]


def test_old_output_is_removed_from_its_host_and_its_last_lines_stay_in_the_log(
    ssh_lab: Lab, tmp_path: Path
) -> None:
    site = Site(tmp_path, ssh_lab(1))
    site.write_config({"a": site.hosts}, tpu="v5litepod-4")
    site.iris("launch", "--wait", "--name", "old", *TPU, "--", "sh", "-c", "echo hello; echo x >file")
    assert site.iris("logs", "old").out == "hello\n"
    (directory,) = site.hosts[0].home.glob(".iris/*/*/a/*")
    assert (directory / "out").read_text() == "hello\n"
    site.write_config({"a": site.hosts}, tpu="v5litepod-4", reap_after="1s")
    site.until(lambda: any("old/task-0/attempt-0" in each.get("attempts", ()) for each in site.events()))
    assert {path.name for path in directory.iterdir()} == {"cancel", "x.0"}
    ran = site.iris("logs", "old")
    assert ran.out == "hello\n"
    assert "output removed from worker a-0" in ran.err + ran.out
