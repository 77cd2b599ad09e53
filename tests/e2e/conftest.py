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
    return one_slice(ssh_lab(4), tmp_path, "v5litepod-16")


@pytest.fixture
def slice_of_two(ssh_lab: Lab, tmp_path: Path) -> Site:
    """One slice `tpu-a` of two: for gangs of which two ranks show all. Each host costs processor time."""
    return one_slice(ssh_lab(2), tmp_path, "v4-16")


@pytest.fixture
def slice_of_one(ssh_lab: Lab, tmp_path: Path) -> Site:
    """One host, for tests in which a second host would do the same."""
    return one_slice(ssh_lab(1), tmp_path, "v4-8")


def one_slice(hosts: list[SshHost], tmp_path: Path, tpu: str) -> Site:
    directory = tmp_path / "operator"
    directory.mkdir()
    site = Site(directory, hosts)
    site.write_config({"tpu-a": hosts}, tpu=tpu)
    return site
