"""Cables are cut at chosen moments: nothing runs twice meanwhile, and when they are whole everything goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import Attempt, AttemptState
from iris_cli.core.model.worker import Worker, WorkerCondition
from iris_cli.ops.workers import workers
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.transport import NoAnswer, Script
from tests.faults.conftest import use_home_of
from tests.support.desk import Desk
from tests.support.gates import Gate
from tests.support.ledger import Ledger, Start
from tests.support.network import CableHost, CableLab, why_no_namespaces
from tests.support.site import Site
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.ssh

GANG: dict[str, Any] = {"tpu": "v4-16", "grace": 1.0}
"""Two ranks, for a slice of two hosts."""

PAST_THE_LEASE = 61.0
PAST_ANY_BACK_OFF = 601.0
"""Also longer than a worker has to be silent to be lost."""


class Killed(BaseException):
    """Ends an invocation as a signal would: it doesn't come to a last word."""


class Slices(Desk):
    """Two slices `alpha` and `beta` of two hosts each, and one host whose cable is cut."""

    def __init__(self, site: Site, hosts: dict[str, CableHost]) -> None:
        super().__init__(site)
        self.hosts = hosts
        self.gates: list[Gate] = []
        self.place = ""  # the worker whose cable is cut: rank 1 of the gang, wherever that was placed

    def cut_when(self, moment: str, call: str, *, killed: bool = False) -> None:
        """Cut the cable to rank 1 of `train` at this moment of its next such call."""

        def act(host: CableHost) -> None:
            host.cut()
            if killed:
                raise Killed

        self._when(moment, call, act)

    def hold_answer_of(self, call: str) -> None:
        """Rank 1 does what its next such call says, and doesn't answer before `gates[0]` is opened."""
        self._when("before", call, lambda host: self.gates.append(Gate(host.gate, "before", "date", "*")))

    @property
    def host(self) -> CableHost:
        return self.hosts[self.place]

    @property
    def rank_1(self) -> Attempt:
        return self.attempt("train", 1)

    @property
    def condition(self) -> WorkerCondition:
        return self.worker(self.place).condition

    def cycles(self, count: int, every: float) -> None:
        for _ in range(count):
            self.clock.ahead += every
            self.cycle()

    def _when(self, moment: str, call: str, act: Callable[[CableHost], object]) -> None:
        def happen(worker: str) -> None:
            for each in self.hosts:
                self.moments.pop((moment, call, each), None)
            self.place = worker
            act(self.hosts[worker])

        for worker in [self.place] if self.place else ["alpha-1", "beta-1"]:
            self.moments[moment, call, worker] = partial(happen, worker)


@pytest.fixture
def desk(cables: CableLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slices]:
    hosts = [host for host in cables(4) if isinstance(host, CableHost)]
    (tmp_path / "operator").mkdir()
    site = Site(tmp_path / "operator", hosts)
    site.write_config(
        {"alpha": hosts[:2], "beta": hosts[2:]}, tpu="v4-16", connect_timeout="2s", dispatch_timeout="2s"
    )
    use_home_of(site, monkeypatch)
    desk = Slices(site, dict(zip(("alpha-0", "alpha-1", "beta-0", "beta-1"), hosts, strict=True)))
    desk.until(lambda: desk.cluster.workers and all(map(is_well, desk.cluster.workers.values())), every=2.0)
    yield desk
    for gate in desk.gates:
        gate.open()


def test_a_partition_during_dispatch_loses_the_answer_and_not_the_start(desk: Slices, ledger: Ledger) -> None:
    with ledger.closed():
        desk.hold_answer_of("go")
        desk.launch("train", *ledger.waiting(), **GANG)
        with meanwhile(lambda: desk.until(lambda: desk.gates, every=2.0)):
            until(lambda: desk.gates)
            until(lambda: desk.place in [start.worker for start in ledger.living("train")])
            desk.host.cut()
            desk.gates[0].open()
        number = desk.rank_1.number
        desk.cycles(2, every=PAST_THE_LEASE)
        assert desk.condition is not WorkerCondition.HEALTHY
        assert (desk.rank_1.number, desk.rank_1.state) == (number, AttemptState.ASSIGNED)
        desk.host.heal()
        desk.until(lambda: desk.rank_1.state is AttemptState.RUNNING, every=10.0)
    desk.until(lambda: desk.state("train") is JobState.SUCCEEDED, every=2.0)
    assert desk.rank_1.number == number
    ledger.check()


def test_a_partition_between_commit_and_dispatch_sends_the_gang_elsewhere(
    desk: Slices, ledger: Ledger
) -> None:
    desk.cut_when("before", "prepare")
    with ledger.closed():
        desk.launch("train", *ledger.waiting(), **GANG)
        desk.until(lambda: desk.place)
        elsewhere = "beta" if desk.place == "alpha-1" else "alpha"
        desk.until(lambda: len(ledger.living("train")) == 2, every=2.0)
        assert {start.worker for start in ledger.starts} == {f"{elsewhere}-0", f"{elsewhere}-1"}
        desk.host.heal()
        desk.until(lambda: desk.condition is WorkerCondition.HEALTHY, every=10.0)
    desk.until(lambda: desk.state("train") is JobState.SUCCEEDED, every=2.0)
    job = desk.cluster.jobs[JobId("train")]
    assert (job.failed_rounds, job.preempted_rounds, job.refused_rounds) == (0, 0, 0)
    assert len(ledger.starts) == 2
    ledger.check()


def test_a_partition_and_the_death_of_the_invocation_leave_the_attempt_to_the_next_one(
    desk: Slices, ledger: Ledger
) -> None:
    desk.cut_when("before", "prepare", killed=True)
    with ledger.closed():
        desk.launch("train", *ledger.waiting(), **GANG)
        with pytest.raises(Killed):
            desk.until(lambda: desk.place)
        number = desk.rank_1.number
        desk.cycles(2, every=PAST_THE_LEASE)
        assert desk.condition is not WorkerCondition.HEALTHY
        assert (desk.rank_1.number, desk.rank_1.taken_over) == (number, True)
        assert ledger.starts == []
        desk.host.heal()
        desk.until(lambda: len(ledger.living("train")) == 2, every=10.0)
    desk.until(lambda: desk.state("train") is JobState.SUCCEEDED, every=2.0)
    assert desk.rank_1.number == number
    ledger.check()


def test_a_partition_during_a_poll_is_no_death_however_long_it_lasts(desk: Slices, ledger: Ledger) -> None:
    with ledger.closed():
        running(desk, ledger)
        desk.hold_answer_of("poll")
        with meanwhile(lambda: desk.until(lambda: desk.gates, every=2.0)):
            until(lambda: desk.gates)
            desk.gates[0].wait()
            desk.host.cut()
            desk.gates[0].open()
        desk.until(lambda: desk.condition is WorkerCondition.LOST, every=PAST_ANY_BACK_OFF)
        desk.cycles(1, every=PAST_ANY_BACK_OFF)
        assert desk.rank_1.state is AttemptState.RUNNING
        desk.host.heal()
        desk.until(lambda: desk.condition is WorkerCondition.HEALTHY, every=PAST_ANY_BACK_OFF)
        assert desk.rank_1.state is AttemptState.RUNNING
    desk.until(lambda: desk.state("train") is JobState.SUCCEEDED, every=2.0)
    assert len(ledger.starts) == 2
    ledger.check()


@pytest.mark.parametrize("delivered", [True, False])
def test_a_partition_during_a_stop_keeps_the_slice_taken_until_the_stop_is_proven(
    desk: Slices, ledger: Ledger, delivered: bool
) -> None:
    with ledger.closed():
        running(desk, ledger)
        if delivered:
            desk.hold_answer_of("stop")

            def cancel() -> None:
                desk.cancel("train")
                desk.until(lambda: desk.gates, every=2.0)

            with meanwhile(cancel):
                until(lambda: desk.gates)
                desk.gates[0].wait()
                desk.host.cut()
                desk.gates[0].open()
            until(lambda: desk.place not in [start.worker for start in ledger.living("train")])
        else:
            desk.cut_when("before", "stop")
            desk.cancel("train")
            assert desk.place in [start.worker for start in ledger.living("train")]
        desk.launch("second", *ledger.waiting(), **GANG)
        desk.launch("third", *ledger.waiting(), **GANG)
        desk.until(lambda: len(ledger.living("second")) == 2, every=10.0)
        desk.cycles(1, every=PAST_ANY_BACK_OFF)
        assert desk.rank_1.state is AttemptState.STOPPING
        assert desk.state("third") is JobState.PENDING
        assert desk.place not in [start.worker for start in ledger.living("second")]
        desk.host.heal()
        desk.until(lambda: len(ledger.living("third")) == 2, every=PAST_ANY_BACK_OFF)
        assert desk.place in [start.worker for start in ledger.living("third")]
    desk.until(lambda: desk.state("third") is JobState.SUCCEEDED, every=2.0)
    ledger.check()


def test_a_connection_whose_cable_is_cut_is_given_up_long_before_a_generous_deadline(
    cables: CableLab,
) -> None:
    """The kernel does it, when nobody acknowledges what was sent: so it isn't that deadline that is named."""
    if why := why_no_namespaces():
        pytest.skip(f"needs network namespaces: {why}")
    (host,) = cables(1)
    assert isinstance(host, CableHost)
    transport = SshTransport(cables.known_hosts, ssh_config=None, user_known_hosts=None)
    with closing(transport):
        transport.run(host.target(), Script(text=b"exit 0", connect_timeout=PATIENCE, timeout=PATIENCE))
        host.cut()
        with pytest.raises(NoAnswer) as caught:
            transport.run(host.target(), Script(text=b"exit 0", connect_timeout=1.0, timeout=10 * PATIENCE))
    assert caught.value.kind in (SilenceKind.TIMEOUT, SilenceKind.UNREACHABLE)
    assert f"{10 * PATIENCE:g}" not in caught.value.detail


def test_an_orphan_of_a_healed_partition_is_stopped_before_its_host_takes_something_new(
    desk: Slices, ledger: Ledger
) -> None:
    def forget() -> None:
        with desk.invocation() as session:
            workers.forget(session, desk.place, dead=True)

    two_copies_for_a_while(desk, ledger, forget, every=10.0)


def test_where_lost_workers_may_be_replaced_their_ghosts_are_stopped_before_anything_else(
    desk: Slices, ledger: Ledger
) -> None:
    def allow() -> None:
        with (desk.site.directory / "cluster.yaml").open("a") as config:
            config.write("replace_lost: always\n")

    two_copies_for_a_while(desk, ledger, allow, every=PAST_ANY_BACK_OFF)


def two_copies_for_a_while(desk: Slices, ledger: Ledger, give_up: Callable[[], None], every: float) -> None:
    """The cable to rank 1 is cut and the operator gives it up, so the gang goes again elsewhere."""
    with ledger.closed():
        orphan = running(desk, ledger)
        desk.host.cut()
        give_up()
        desk.until(lambda: len(ledger.of("train")) == 4, every=every)
        desk.launch("next", *ledger.waiting(), **GANG)
        desk.cycles(1, every=every)
        assert orphan in ledger.living("train")
        assert desk.state("next") is JobState.PENDING
        desk.host.heal()
        desk.until(lambda: len(ledger.living("next")) == 2, every=every)
        assert desk.place in [start.worker for start in ledger.living("next")]
        assert orphan not in ledger.living("train")
    desk.until(lambda: desk.state("next") is JobState.SUCCEEDED, every=2.0)
    # By the operator's choice there were two copies for a while: of this task, and never on one host.
    ledger.check(overlaps={"train-1"})


def running(desk: Slices, ledger: Ledger) -> Start:
    """The gang runs, and the log knows it. Returns the start of its rank 1.

    It has written something: of other tasks a poll does not tell the time, for which `hold_answer_of` waits.
    """
    desk.launch("train", *ledger.task(f"echo waits\n{ledger.at('gate')}"), **GANG)
    desk.until(lambda: running_ranks(desk) == 2, every=2.0)
    until(lambda: len(ledger.living("train")) == 2)
    start = next(start for start in ledger.living("train") if start.index == 1)
    desk.place = start.worker
    return start


def running_ranks(desk: Desk) -> int:
    return sum(
        attempt.state is AttemptState.RUNNING for _, attempt in desk.cluster.live_attempts_of(JobId("train"))
    )


def is_well(worker: Worker) -> bool:
    return worker.condition is WorkerCondition.HEALTHY and bool(worker.incarnation)


@contextmanager
def meanwhile(act: Callable[[], object]) -> Iterator[None]:
    """Something happens beside the block, and has ended well when the block is left."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001,RUF100 - raised again by whoever waits
            failures.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(2 * PATIENCE)
    assert not thread.is_alive()
    assert failures == []
