"""An invocation is killed at any moment. The next one finds everything in order, and goes on."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import AttemptState, TaskState
from tests.faults.conftest import use_home_of
from tests.support.desk import Desk
from tests.support.invocations import Invocations
from tests.support.ledger import Ledger
from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.waiting import until

pytestmark = pytest.mark.ssh

LEASE = 1.0
"""Seconds for which the invocation that made an assignment is alone responsible for it."""

RANKS = 2
GANG: dict[str, Any] = {"replicas": RANKS, "group_by": "tpu-name", "grace": 1.0}

every_step = pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.soak)])


class Hall(Desk):
    """Two hosts with room for many small gangs, each with a gate of its own."""

    def __init__(self, site: Site, ledger: Ledger, invocations: Invocations) -> None:
        super().__init__(site)
        self.ledger = ledger
        self.invocations = invocations
        self.gates: dict[str, ExitStack] = {}

    def gang(self, name: str, then: str = "") -> None:
        """Submit one; when its gate is opened each rank does `then`."""
        self.gates[name] = ExitStack()
        self.gates[name].enter_context(self.ledger.closed(name))
        self.launch(name, *self.ledger.waiting(name, then), **GANG)

    def open(self, name: str) -> None:
        self.gates.pop(name).close()

    def dies_at(self, step: int) -> bool:
        """Whether a cycle came to that step, and died there; on a busy machine it may have less to do."""
        code = self.invocations.start("schedule", "--once", die_at=step).wait()
        assert code in (-signal.SIGKILL, 0)
        return code != 0

    def has_fallen(self, name: str) -> bool:
        """Whether a rank of it has ended."""
        return len(self.ledger.living(name)) < RANKS

    def repair(self) -> None:
        """One ordinary cycle, when the lease of whoever was killed is over. If nothing in it timed out, all is well."""
        self.clock.ahead += LEASE
        self.silences.clear()
        self.cycle()
        if not self.silences:
            for _, attempt in self.cluster.live_attempts():
                assert attempt.acknowledged, attempt

    def until_running(self, *names: str) -> None:
        def run() -> bool:
            cluster = self.cluster
            live = [cluster.live_of(JobId(name)) for name in names]
            states = [[attempt.state for _, attempt in ranks] for ranks in live]
            return states == [[AttemptState.RUNNING] * RANKS] * len(names)

        self.until(run)
        until(lambda: all(len(self.ledger.living(name)) == RANKS for name in names))


@pytest.fixture
def hall(
    ssh_lab: Callable[..., list[SshHost]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hall]:
    hosts = ssh_lab(2)
    (tmp_path / "operator").mkdir()
    site = Site(tmp_path / "operator", hosts)
    site.write_config({"alpha": hosts}, tpu="v4-16", backoff_first="0.1s", dispatch_lease=f"{LEASE}s")
    use_home_of(site, monkeypatch)
    invocations = Invocations(site)
    hall = Hall(site, Ledger(tmp_path / "ledger"), invocations)
    try:
        hall.until(
            lambda: [bool(worker.incarnation) for worker in hall.cluster.workers.values()] == [True] * 2
        )
        yield hall
    finally:
        invocations.close()
        for gate in hall.gates.values():
            gate.close()


@every_step
def test_killed_at_any_step_of_a_dispatch_it_leaves_nothing_that_one_cycle_cannot_mend(
    hall: Hall, stride: int
) -> None:
    killed = 0
    for step in range(1, 26, stride):
        hall.gang(f"gang-{step}")
        killed += hall.dies_at(step)
    assert killed
    hall.repair()
    end_well(hall)


@every_step
def test_killed_at_any_step_of_a_gangs_fall_it_leaves_the_rest_of_the_stops_to_the_next_one(
    hall: Hall, stride: int
) -> None:
    names = [f"gang-{step}" for step in range(1, 13, stride)]
    with hall.ledger.closed("hold"):
        for name in names:
            hall.gang(name, f"[ $IRIS_TASK_INDEX != 0 ] || exit 3; {hall.ledger.at('hold')}")
        hall.until_running(*names)
        killed = 0
        for step, name in zip(range(1, 13, stride), names, strict=True):
            hall.open(name)
            until(partial(hall.has_fallen, name))
            killed += hall.dies_at(step)
        assert killed
        hall.until(lambda: not any(map(hall.ledger.living, names)))
        hall.until(lambda: all(job.end for job in hall.cluster.jobs.values()))
        for name in names:
            culprit, sibling = hall.cluster.tasks_of(JobId(name))
            assert (culprit.state, sibling.state) == (TaskState.FAILED, TaskState.WORKER_FAILED)
    hall.ledger.check()


@every_step
def test_killed_at_any_step_of_a_retry_the_order_is_whole_or_was_never_given(hall: Hall, stride: int) -> None:
    names = [f"gang-{step}" for step in range(1, 13, stride)]
    for name in names:
        hall.gang(name)
    hall.until_running(*names)
    killed = [
        hall.invocations.start("retry", name, die_at=step).wait() == -signal.SIGKILL
        for step, name in zip(range(1, 13, stride), names, strict=True)
    ]
    assert any(killed)
    orders = {name: [each.attempts[0].stop for each in hall.cluster.tasks_of(JobId(name))] for name in names}
    assert all(
        len(stops) == RANKS and len({stop is None for stop in stops}) == 1 for stops in orders.values()
    )
    rounds = {name: 2 if stops[0] is not None else 1 for name, stops in orders.items()}
    hall.until(lambda: {name: hall.cluster.jobs[JobId(name)].rounds for name in names} == rounds)
    hall.repair()
    end_well(hall)


@pytest.mark.soak
def test_killed_at_random_moments_while_twenty_gangs_run(hall: Hall) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for number in range(20):
        hall.gang(f"gang-{number}")
    hall.until_running(*hall.gates)
    began = time.monotonic()
    hall.invocations.run("schedule", "--once")
    usual = time.monotonic() - began
    for number in range(20, 80):
        hall.gang(f"gang-{number}")
        hall.open(f"gang-{number - 20}")
        invocation = hall.invocations.start("schedule", "--once")
        time.sleep(chance.uniform(0, 1.2 * usual))
        invocation.kill()
        invocation.wait()
    hall.repair()
    end_well(hall)


def end_well(hall: Hall) -> None:
    """Every gang comes to run, and ends well."""
    hall.until_running(*hall.gates)
    for name in list(hall.gates):
        hall.open(name)
    hall.until(lambda: all(job.end is not None for job in hall.cluster.jobs.values()))
    cluster = hall.cluster
    assert {cluster.job_state(job) for job in cluster.jobs} == {JobState.SUCCEEDED}
    hall.ledger.check()
