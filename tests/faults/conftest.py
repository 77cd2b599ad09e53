"""Sites whose faults are made on purpose."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.hall import LEASE, Hall
from tests.support.invocations import Invocations
from tests.support.ledger import Ledger
from tests.support.network import CableLab, Network, why_no_namespaces
from tests.support.site import Site
from tests.support.sshd import SshHost


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """What tasks write down; each worker has one tenant at a time."""
    return Ledger(tmp_path / "ledger", tenants=True)


@pytest.fixture
def cables(tmp_path: Path) -> Iterator[CableLab]:
    """Servers behind cables that can be cut; the test itself is at their near ends."""
    directory = tmp_path / "cables"
    directory.mkdir()
    if why := why_no_namespaces():
        print(f"the cables are relays: {why}")
    lab = CableLab(directory) if why else Network(directory)
    try:
        with lab.near_end():
            yield lab
    finally:
        lab.stop()


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path], None]]:
    """Makes a directory a disk of its own that is quickly filled."""
    mounted = []

    def mount(directory: Path) -> None:
        command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "iris-test", str(directory)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
            pytest.skip("nothing can be mounted here (needs root)")
        mounted.append(directory)

    yield mount
    for directory in mounted:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def fill(disk: Path) -> Path:
    """Write until there is no byte left. Returns what is to be removed to make room again."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def use_home_of(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user who runs the tests is seen by what runs in this process."""
    monkeypatch.setenv("HOME", str(site.directory))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def pair(ssh_lab: Callable[..., list[SshHost]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """One slice `alpha` of two hosts, with short waits."""
    hosts = ssh_lab(2)
    (tmp_path / "operator").mkdir()
    site = Site(tmp_path / "operator", hosts)
    site.write_config({"alpha": hosts}, tpu="v4-16", backoff_first="0.1s", dispatch_lease=f"{LEASE}s")
    use_home_of(site, monkeypatch)
    return site


@pytest.fixture
def hall(pair: Site, tmp_path: Path) -> Iterator[Hall]:
    invocations = Invocations(pair)
    hall = Hall(pair, Ledger(tmp_path / "ledger"), invocations)
    try:
        hall.until(
            lambda: [bool(worker.incarnation) for worker in hall.cluster.workers.values()] == [True] * 2
        )
        yield hall
    finally:
        invocations.close()
        for gate in hall.gates.values():
            gate.close()
