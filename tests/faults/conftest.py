"""Sites whose faults are made on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ledger import Ledger
from tests.support.network import Network, need_namespaces
from tests.support.site import Site


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """What tasks write down; each worker has one tenant at a time."""
    return Ledger(tmp_path / "ledger", tenants=True)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """Servers behind cables that can be cut; the test itself is at their near ends."""
    need_namespaces()
    directory = tmp_path / "network"
    directory.mkdir()
    network = Network(directory)
    try:
        with network.ours.inside():
            yield network
    finally:
        network.stop()


def use_home_of(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user who runs the tests is seen by what runs in this process."""
    monkeypatch.setenv("HOME", str(site.directory))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
