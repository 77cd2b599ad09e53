"""Cron, an operator and a watch at the same moment: everything is done, and done once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from iris_cli.core.invariants import breaches
from iris_cli.core.model.job import JobState
from iris_cli.errors import ExitCode
from tests.faults.conftest import use_home_of
from tests.support.desk import Desk
from tests.support.invocations import Invocations
from tests.support.ledger import Ledger
from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.waiting import until

pytestmark = pytest.mark.ssh

COMMANDS = (("schedule", "--once"), ("schedule", "--once"), ("watch", "--once", "--schedule"))


@pytest.fixture
def site(ssh_lab: Callable[..., list[SshHost]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    hosts = ssh_lab(2)
    (tmp_path / "operator").mkdir()
    site = Site(tmp_path / "operator", hosts)
    site.write_config({"alpha": hosts}, tpu="v4-16", backoff_first="0.1s")
    use_home_of(site, monkeypatch)
    return site


@pytest.fixture
def invocations(site: Site) -> Iterator[Invocations]:
    invocations = Invocations(site)
    yield invocations
    invocations.close()


@pytest.mark.parametrize("rounds", [2, pytest.param(30, marks=pytest.mark.soak)])
def test_two_schedulers_and_a_watch_at_the_same_moment(
    site: Site, invocations: Invocations, tmp_path: Path, rounds: int
) -> None:
    """What they find is a gang of which a rank has failed, and the next one that waits for its slice."""
    desk, ledger = Desk(site), Ledger(tmp_path / "ledger", tenants=True)
    desk.until(lambda: len(desk.cluster.workers) == 2)
    script = f"[ $IRIS_TASK_INDEX != 0 ] || exit 3; {ledger.at('hold')}"
    with ledger.closed("hold"):
        for name in (f"gang-{number}" for number in range(rounds)):
            with ledger.closed(name):
                desk.launch(name, *ledger.waiting(name, script), tpu="v4-16", grace=1.0)
                at_once(invocations)
                desk.until(partial(lives, ledger, name, ranks=2))
            until(partial(lives, ledger, name, ranks=1))
        desk.until(lambda: not any(worker.claims for worker in desk.cluster.workers.values()))
    cluster = desk.cluster
    assert breaches(cluster) == []
    assert {cluster.job_state(job) for job in cluster.jobs} == {JobState.FAILED}
    ledger.check()


def test_who_finds_the_state_directory_taken_leaves_the_work_or_says_who_has_it(
    site: Site, invocations: Invocations
) -> None:
    desk = Desk(site)
    desk.launch("job", "true", tpu="v4-16")
    with desk.invocation("iris cancel") as session, session.transaction():
        cron = invocations.start("schedule", "--once", "--lock-timeout", "0").done()
        someone = invocations.start("schedule", "--once", "--lock-timeout", "0.1").done(ExitCode.LOCKED)
    assert "busy" in cron
    for said in (cron, someone):
        assert "iris cancel" in said
        assert str(os.getpid()) in said
    desk.until(lambda: desk.state("job") is JobState.SUCCEEDED)


def lives(ledger: Ledger, name: str, ranks: int) -> bool:
    return len(ledger.living(name)) == ranks


def at_once(invocations: Invocations) -> None:
    """None of them fails, or minds the others."""
    for each in [invocations.start(*words) for words in COMMANDS]:
        each.done()
