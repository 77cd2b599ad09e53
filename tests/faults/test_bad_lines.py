"""Lines that are slow, that break anywhere, or that carry what nobody asked for."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.core.model.job import JobState
from iris_cli.core.model.worker import WorkerCondition
from tests.faults.conftest import use_home_of
from tests.support.desk import Desk
from tests.support.ledger import Ledger
from tests.support.relay import Fault, Relay, relay
from tests.support.site import Site
from tests.support.sshd import SshHost

pytestmark = pytest.mark.ssh

ONE_WAY = 0.05
"""Seconds that each piece takes in one direction."""

UP, DOWN = 40_000, 8_000
"""A little more bytes than one connection carries in each direction."""

PAST_ANY_BACK_OFF = 601.0

Lab = Callable[..., list[SshHost]]


def site_of(hosts: list[SshHost], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    (tmp_path / "operator").mkdir()
    site = Site(tmp_path / "operator", hosts)
    site.write_config({"alpha": hosts}, tpu="v4-16", backoff_first="0.1s")
    use_home_of(site, monkeypatch)
    return site


def lead_through(site: Site, host: SshHost, line: Relay) -> None:
    """The operator reaches the host through this relay from now on."""
    config, known = site.directory / "cluster.yaml", site.directory / ".ssh" / "known_hosts"
    config.write_text(config.read_text().replace(f"127.0.0.1:{host.port}", f"127.0.0.1:{line.port}"))
    known.write_text(known.read_text() + f"[127.0.0.1]:{line.port} {host.public_host_key}\n")


@pytest.mark.parametrize("cycles", [4, pytest.param(40, marks=pytest.mark.soak)])
def test_on_slow_lines_that_break_anywhere_every_rank_starts_once(
    ssh_lab: Lab, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, cycles: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    hosts = ssh_lab(2)
    site = site_of(hosts, tmp_path, monkeypatch)
    desk = Desk(site)
    with relay(hosts[0].port) as one, relay(hosts[1].port) as other:
        lines = (one, other)
        for host, line in zip(hosts, lines, strict=True):
            lead_through(site, host, line)
        desk.until(lambda: len(desk.cluster.workers) == 2, every=PAST_ANY_BACK_OFF)
        with ledger.closed():
            desk.launch("train", *ledger.waiting(), tpu="v4-16")
            for _ in range(cycles):
                for line in lines:
                    line.fault = broken_somewhere(chance)
                desk.clock.ahead += PAST_ANY_BACK_OFF
                desk.cycle()
            for line in lines:
                line.fault = Fault(delay=ONE_WAY)
            desk.until(lambda: len(ledger.living("train")) == 2, every=PAST_ANY_BACK_OFF)
        desk.until(lambda: desk.state("train") is JobState.SUCCEEDED, every=PAST_ANY_BACK_OFF)
    ledger.check()


def broken_somewhere(chance: random.Random) -> Fault:
    reset = chance.random() < 0.5
    if chance.random() < 0.7:
        return Fault(delay=ONE_WAY, reset=reset, cut_up=chance.randrange(UP))
    return Fault(delay=ONE_WAY, reset=reset, cut_down=chance.randrange(DOWN))


def test_a_host_that_floods_the_line_is_cut_off_and_hurts_nobody(
    ssh_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    well, sick = *ssh_lab(1), *ssh_lab(1, options=["ForceCommand yes iris"])
    site = site_of([well, sick], tmp_path, monkeypatch)
    site.write_config({"well": [well], "sick": [sick]}, tpu="v4-8", backoff_first="0.1s")
    desk = Desk(site)
    desk.launch("job", "true", tpu="v4-8")
    desk.until(lambda: desk.state("job") is JobState.SUCCEEDED, every=1.0)
    desk.until(lambda: desk.worker("sick-0").failed_polls > 1, every=PAST_ANY_BACK_OFF)
    assert desk.worker("sick-0").condition is not WorkerCondition.HEALTHY


def test_a_server_that_takes_one_connection_and_one_session_at_a_time_is_enough(
    ssh_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger")
    hosts = ssh_lab(2, options=["MaxStartups 1:100:1", "MaxSessions 1", "MaxAuthTries 1"])
    desk = Desk(site_of(hosts, tmp_path, monkeypatch))
    with ledger.closed():
        for number in range(3):
            desk.launch(f"job-{number}", *ledger.waiting(), replicas=2, setup="true")
        desk.launch("train", *ledger.waiting(), tpu="v4-16")
        desk.until(lambda: len(ledger.starts) == 8, every=1.0)
        desk.cancel("train")
    desk.until(lambda: all(job.end is not None for job in desk.cluster.jobs.values()), every=1.0)
    ledger.check()
