"""What the auditor of the simulation takes for committed: what a reader of the log acts on, and nothing else."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from iris_cli.config.schema import ClusterConfig
from iris_cli.core.events.events import WorkerDrained, WorkerRegistered
from iris_cli.core.ids import WorkerId
from iris_cli.core.model.worker import Connection
from iris_cli.errors import NotWritableError
from iris_cli.ops.session import Session
from tests.simulation.site import Site
from tests.simulation.story import Story
from tests.simulation.strands import Luck, Scheduler
from tests.simulation.wires import Network

_START = 1_800_000_000.0
_CALLS = 12  # of one transaction to the disk: more than there are


class AllButOneByte(Random):
    """Cuts off the last byte where a write is cut off."""

    def randint(self, a: int, b: int) -> int:
        return max(a, b - 1)


class FailsOnce:
    """A disk that fails at one of its calls."""

    def __init__(self, call: int) -> None:
        self.calls = call

    def __call__(self, _share: float) -> bool:
        self.calls -= 1
        return self.calls == 0


def a_site(directory: Path, rng: Random) -> Site:
    """A site whose log has two lines."""
    scheduler = Scheduler(lambda _: rng, _START)
    config = ClusterConfig(path=directory / "cluster.yaml", name="site", hosts=())
    site = Site(directory / "state", config, Network(scheduler), Story(lambda: scheduler.now), scheduler)
    register(site, "w0")
    assert site.truth.cluster.seq == 2
    return site


def register(site: Site, name: str, dies_at: int = 0) -> None:
    """One invocation that commits one line, to its end or until it is killed at that step."""

    def act(session: Session) -> None:
        with session.transaction() as draft:
            draft.record(WorkerRegistered(worker=WorkerId(name), connection=Connection(host=name)))

    site.invoke("register", act, luck=Luck(dies_at=dies_at))
    site.scheduler.run(site.scheduler.now + 60.0, lambda: False)


@pytest.mark.parametrize("dies_at", range(1, 2 * _CALLS))
def test_a_line_counts_when_head_names_it_even_if_the_write_of_head_was_cut_off(
    tmp_path: Path, dies_at: int
) -> None:
    site = a_site(tmp_path, AllButOneByte(7))
    register(site, "w1", dies_at=dies_at)
    seen = site.view()
    seen.view()
    if seen.state.read().committed:
        assert site.truth.cluster == seen.cluster
    register(site, "w2")
    assert site.truth.cluster == site.view().view()
    site.nothing_is_lost()
    assert site.story.breaches == []


@pytest.mark.parametrize("call", range(1, _CALLS))
def test_a_line_that_its_writer_takes_back_never_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    site = a_site(tmp_path, Random(7))
    site.medium.trouble = errno.EIO
    monkeypatch.setattr(site.medium, "fails", FailsOnce(call))
    register(site, "w1")
    register(site, "w2")
    assert site.truth.cluster == site.view().view()
    site.nothing_is_lost()
    assert site.story.breaches == []


@pytest.mark.parametrize("call", [0, 1])
def test_an_invocation_whose_line_was_refused_may_leave_attempts_to_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    site = a_site(tmp_path, Random(7))
    judged: list[str] = []
    monkeypatch.setattr(site.truth, "ended_in_order", lambda who, *_: judged.append(who))
    monkeypatch.setattr(site.medium, "fails", FailsOnce(call))
    site.medium.trouble = errno.EIO

    def act(session: Session) -> None:
        with suppress(NotWritableError), session.transaction() as draft:
            draft.record(WorkerDrained(worker=WorkerId("w0")))

    site.invoke("drain", act)
    site.scheduler.run(site.scheduler.now + 60.0, lambda: False)
    assert len(judged) == (call == 0)
