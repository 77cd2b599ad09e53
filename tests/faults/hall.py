"""Two hosts with room for many small gangs, and an operator who is killed at any step."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import Any

from iris_cli.core.ids import JobId
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import AttemptState
from tests.support.desk import Desk
from tests.support.invocations import Invocations
from tests.support.ledger import Ledger
from tests.support.site import Site
from tests.support.waiting import until

LEASE = 1.0
"""Seconds for which the invocation that made an assignment is alone responsible for it."""

RANKS = 2
GANG: dict[str, Any] = {"replicas": RANKS, "group_by": "tpu-name", "grace": 1.0}


class Hall(Desk):
    """Two hosts with room for many small gangs, each with a gate of its own."""

    def __init__(self, site: Site, ledger: Ledger, invocations: Invocations) -> None:
        super().__init__(site)
        self.ledger = ledger
        self.invocations = invocations
        self.gates: dict[str, ExitStack] = {}

    def gang(self, name: str, then: str = "") -> None:
        """Submit one; when its gate is opened each rank does `then`."""
        self.close(name)
        self.launch(name, *self.ledger.waiting(name, then), **GANG)

    def close(self, name: str) -> None:
        self.gates[name] = ExitStack()
        self.gates[name].enter_context(self.ledger.closed(name))

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
            live = [cluster.live_attempts_of(JobId(name)) for name in names]
            states = [[attempt.state for _, attempt in ranks] for ranks in live]
            return states == [[AttemptState.RUNNING] * RANKS] * len(names)

        self.until(run)
        until(lambda: all(len(self.ledger.living(name)) == RANKS for name in names))


def end_well(hall: Hall) -> None:
    """Every gang comes to run, and ends well."""
    hall.until_running(*hall.gates)
    for name in list(hall.gates):
        hall.open(name)
    hall.until(lambda: all(job.end is not None for job in hall.cluster.jobs.values()))
    cluster = hall.cluster
    assert {cluster.job_state(job) for job in cluster.jobs} == {JobState.SUCCEEDED}
    hall.ledger.check()
