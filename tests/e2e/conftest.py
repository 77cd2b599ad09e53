"""Sites of different sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.site import Site
from tests.support.sshd import SshHost

Lab = Callable[..., list[SshHost]]


@pytest.fixture
def slice_of_four(ssh_lab: Lab, tmp_path: Path) -> Site:
    """One slice `tpu-a` of four real SSH hosts."""
    hosts = ssh_lab(4)
    directory = tmp_path / "operator"
    directory.mkdir()
    site = Site(directory, hosts)
    site.write_config({"tpu-a": hosts}, tpu="v5litepod-16")
    return site
