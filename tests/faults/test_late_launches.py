"""A launch that is carried out when nobody waits for it any more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import EndReason
from tests.faults.conftest import use_home_of
from tests.support.desk import Desk
from tests.support.gates import Gate
from tests.support.ledger import Ledger
from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.waiting import until

pytestmark = pytest.mark.ssh

PAST_ANY_BACK_OFF = 601.0
A_TOKEN = "[0-9a-f]" * 32 + "*"


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """Whoever makes the directory of an attempt waits here, just before it."""
    (tmp_path / "gate").mkdir()
    return Gate(tmp_path / "gate", "before", "mkdir", A_TOKEN)


@pytest.fixture
def desk(
    ssh_lab: Callable[..., list[SshHost]], gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Desk:
    hosts = ssh_lab(1, env={"PATH": f"{gate.tools}:{os.environ['PATH']}"})
    (tmp_path / "operator").mkdir()
    site = Site(tmp_path / "operator", hosts)
    site.write_config({"alone": hosts}, tpu="v4-8", backoff_first="0.1s", dispatch_timeout="4s")
    use_home_of(site, monkeypatch)
    return Desk(site)


def sessions(desk: Desk) -> list[str]:
    """The shells that serve a call on the host now."""
    home = f"HOME={desk.site.hosts[0].home}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = home in (process / "environ").read_bytes().split(b"\0")
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if is_ours and words[:2] == [b"/bin/sh", b"-s"]:
            found.append(process.name)
    return found


def test_it_finds_the_tombstone_if_its_job_was_cancelled_meanwhile(
    desk: Desk, gate: Gate, ledger: Ledger
) -> None:
    desk.launch("job", *ledger.task())
    desk.until((gate.directory / "arrived").exists, every=1.0)
    desk.clock.ahead += PAST_ANY_BACK_OFF
    desk.cancel("job")
    desk.until(lambda: not desk.attempt("job").live, every=PAST_ANY_BACK_OFF)
    end = desk.attempt("job").end
    assert end is not None
    assert end.reason is EndReason.CANCELLED
    assert sessions(desk) != []
    gate.open()
    until(lambda: sessions(desk) == [])
    (tombstone,) = desk.site.hosts[0].home.glob(".iris/*/*/a/*")
    assert tombstone.is_file()
    assert ledger.starts == []


def test_it_is_one_of_several_and_only_one_of_them_starts_anything(
    desk: Desk, gate: Gate, ledger: Ledger
) -> None:
    desk.launch("job", *ledger.task())
    desk.until((gate.directory / "arrived").exists, every=1.0)
    for _ in range(2):
        desk.clock.ahead += PAST_ANY_BACK_OFF
        desk.cycle()
    assert ledger.starts == []
    gate.open()
    desk.until(lambda: desk.state("job") is JobState.SUCCEEDED, every=PAST_ANY_BACK_OFF)
    until(lambda: sessions(desk) == [])
    assert len(ledger.starts) == 1
