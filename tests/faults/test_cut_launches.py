"""A gang's launch is cut at any byte: the next `schedule --once` starts it, without waiting for any back-off."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.model.worker import WorkerCondition
from tests.faults.conftest import use_home_of
from tests.support.desk import Desk
from tests.support.ledger import Ledger
from tests.support.relay import Fault, Relay, relay
from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.waiting import until

pytestmark = pytest.mark.ssh

GANG: dict[str, Any] = {"replicas": 2, "group_by": "tpu-name", "grace": 0.0}


class CutDesk(Desk):
    """A slice of two hosts. The way to the second one leads through a relay."""

    def __init__(self, site: Site, way: Relay) -> None:
        super().__init__(site)
        self.way = way

    def launch_cut(self, name: str, command: tuple[str, ...], fault: Fault) -> None:
        """Submit a gang. The cycle that launches it loses every connection to the second host at one byte."""
        self.launch(name, *command, **GANG)
        self.way.fault = fault
        self.cycle()
        self.way.fault = Fault()

    def all_ranks_live(self, ledger: Ledger, name: str) -> bool:
        return len(ledger.living(name)) == 2

    def clear(self, name: str) -> None:
        """Cancel a gang and wait until nothing of it is left."""
        self.cancel(name)
        self.until(lambda: not self.cluster.live_attempts_of(JobId(name)))


@pytest.fixture
def desk(
    ssh_lab: Callable[..., list[SshHost]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CutDesk]:
    near, far = ssh_lab(2)
    (tmp_path / "operator").mkdir()
    with relay(far.port) as way:
        hosts = [near, dataclasses.replace(far, port=way.port)]
        site = Site(tmp_path / "operator", hosts)
        site.write_config({"alpha": hosts}, tpu="v4-16", backoff_first="10m")
        use_home_of(site, monkeypatch)
        desk = CutDesk(site, way)
        desk.until(lambda: desk.cluster.workers and all(map(is_well, desk.cluster.workers.values())))
        yield desk


def is_well(worker: Any) -> bool:
    return worker.condition is WorkerCondition.HEALTHY and bool(worker.incarnation)


@pytest.mark.parametrize("count", [pytest.param(4, id="4"), pytest.param(120, marks=pytest.mark.soak)])
def test_one_cycle_after_a_cut_at_any_byte_all_ranks_have_started_once(
    desk: CutDesk, ledger: Ledger, count: int
) -> None:
    with ledger.closed():
        up, down = desk.way.up, desk.way.down
        desk.launch_cut("whole", ledger.waiting(), Fault())
        until(lambda: len(ledger.living("whole")) == 2)
        sent, received = desk.way.up - up, desk.way.down - down
        desk.clear("whole")
        faults = [
            Fault(cut_up=sent * step // count)
            if step % 4 == 1
            else Fault(cut_down=received * step // count, reset=True)
            for step in range(1, count, 2)
        ]
        for number, fault in enumerate(faults):
            name = f"gang-{number}"
            desk.launch_cut(name, ledger.waiting(), fault)
            desk.cycle()
            assert all(map(is_well, desk.cluster.workers.values())), fault
            # On a busy machine the call that was cut may still be at work there: then a later cycle sees how it ended.
            desk.until(partial(desk.all_ranks_live, ledger, name))
            assert len(ledger.of(name)) == 2, fault
            desk.clear(name)
    assert desk.silences, "nothing was cut off"
    ledger.check()
