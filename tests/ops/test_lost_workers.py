"""Cycles while workers are lost: who is asked, what moves on, what is stopped when they come back."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.job import JobState, ReplaceLost
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import TaskState
from iris_cli.ops.views.inventory import inventory
from iris_cli.ops.views.status import cluster_status
from iris_cli.ops.workers.workers import require_probes
from tests.support.fake_runner import Clock, Entry, S, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path, "w0", "w1", "w2")
    made.launch("train", cpu=3.0, replace_lost=ReplaceLost.ALWAYS)
    made.cycle()
    assert made.hosts["w0"].running == ["train/task-0"]
    return made


def lose(site: Site, *, sent: bool = False) -> None:
    """`w0` is silent until its work has moved on."""
    site.hosts["w0"].silence, site.hosts["w0"].sent = SilenceKind.TIMEOUT, sent
    for _ in range(20):
        site.cycle(90)
        if site.attempt("train").worker != "w0":
            return
    raise AssertionError("the work does not move on")


def warnings_of(site: Site, worker: str) -> tuple[str, ...]:
    return next(each.warnings for each in cluster_status(site.session()).workers if each.id == worker)


def test_the_work_of_a_lost_worker_moves_on_and_what_still_runs_there_is_stopped_first(site: Site) -> None:
    lose(site)
    assert site.hosts["w1"].running == ["train/task-0"]
    assert site.hosts["w0"].running == ["train/task-0"]  # by the operator's choice
    assert warnings_of(site, "w0") == (
        "train/task-0/attempt-0 is presumed gone but may still be running; iris stops it when w0 answers",
    )
    site.launch("next", replicas=2, cpu=3.0)
    site.cycle()
    assert site.task("next", 1).state is TaskState.PENDING
    site.hosts["w0"].silence = None
    site.cycle(700)
    assert (site.hosts["w0"].running, warnings_of(site, "w0")) == (["next/task-1"], ())
    assert site.hosts["w0"].calls.index("stop") < len(site.hosts["w0"].calls) - 1


def test_nothing_is_placed_where_a_ghost_can_t_be_killed(site: Site) -> None:
    lose(site)
    site.hosts["w0"].silence, site.hosts["w0"].unkillable = None, True
    site.launch("next", replicas=2, cpu=3.0)
    for _ in range(5):
        site.cycle(4000)
    assert site.task("next", 1).state is TaskState.PENDING
    row = next(each for each in inventory(site.session()).workers if each.worker.id == "w0").worker
    assert row.status == "quarantined"
    assert any("can't be killed" in why for why in row.refuses)
    site.hosts["w0"].reboot()
    site.cycle(4000)
    site.cycle(4000)
    assert site.cluster.ghosts == {}
    assert "next/task-1" in site.hosts["w0"].running


def test_what_was_forgotten_as_dead_is_stopped_when_it_is_configured_again(site: Site) -> None:
    from iris_cli.ops.workers import workers

    w0, ghost = site.hosts["w0"], site.attempt("train").token
    w0.silence = SilenceKind.UNREACHABLE
    site.cycle()
    workers.forget(site.session(), "w0", dead=True)
    w0.silence = None
    w0.calls.clear()
    site.launch("next", replicas=2, cpu=3.0)
    site.cycle(60)
    assert w0.calls == ["probe", "stop", "prepare"]
    assert (w0.tokens[ghost].state, len(w0.running)) == (S.STOPPED, 1)
    assert site.cluster.ghosts == {}


def test_an_idle_worker_is_asked_when_a_witness_is_needed(site: Site) -> None:
    for host in site.hosts.values():
        host.calls.clear()
    site.cycle(60)
    assert (site.hosts["w1"].calls, site.hosts["w2"].calls) == ([], [])
    site.hosts["w0"].silence = SilenceKind.TIMEOUT
    site.cycle(60)
    site.cycle(60)
    assert (site.hosts["w1"].calls, site.hosts["w2"].calls) == (["poll"], [])


def test_nothing_moves_while_nobody_answers(site: Site) -> None:
    for host in site.hosts.values():
        host.silence = SilenceKind.UNREACHABLE
    for _ in range(20):
        site.cycle(90)
    assert site.attempt("train").worker == "w0"
    for host in site.hosts.values():
        host.silence = None
    site.run()
    assert [host.running for host in site.hosts.values()] == [["train/task-0"], [], []]


def test_only_polls_of_healthy_workers_renew_leases(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("train")
    site.cycle()
    host = site.hosts["w0"]
    before = host.renewals
    site.cycle(60)
    assert host.renewals == before + 1
    host.silence = SilenceKind.TIMEOUT
    site.cycle(60)  # nobody knew: this one may have renewed
    for _ in range(5):
        site.cycle(700)
    host.silence = None
    site.cycle(700)  # it answers again; the next one renews
    assert host.renewals == before + 2
    site.cycle(60)
    assert host.renewals == before + 3


@pytest.mark.parametrize("still", ["wall", "steady"])
def test_a_process_that_slept_since_it_read_the_log_renews_nothing(site: Site, still: str) -> None:
    """One clock is enough to notice: the other may have been set back, or have slept too."""

    class Sleeper(Clock):
        wall = steady = 0.0

        def now(self) -> float:
            return self.time + self.wall

        def monotonic(self) -> float:
            return self.time + self.steady

    session = site.session()
    session.clock = clock = Sleeper(site.clock.time)
    session.view()
    assert session.age(session.read_at) == 0.0
    clock.wall, clock.steady = (0.0, 120.0) if still == "wall" else (120.0, 0.0)
    assert session.age(session.read_at) == 120.0


def test_a_lease_moves_the_work_on_when_it_must_have_ended(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.launch("train", cpu=3.0, lease=300.0)
    site.cycle()
    site.cycle(30)
    host = site.hosts["w0"]
    host.silence = SilenceKind.TIMEOUT
    host.tokens[site.attempt("train").token].state = S.CANCELLED  # by its watchdog, in the meantime
    for _ in range(12):
        site.cycle(150)
    assert site.hosts["w1"].running == ["train/task-0"]
    host.silence = None
    site.cycle(601)
    assert site.cluster.ghosts == {}


def test_what_a_lease_did_not_stop_is_stopped_before_its_worker_takes_anything_new(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.launch("train", cpu=3.0, lease=300.0)
    site.cycle()
    site.cycle(30)
    host = site.hosts[site.attempt("train").worker]
    host.silence = SilenceKind.TIMEOUT
    for _ in range(12):
        site.cycle(150)
    assert host.of("train").state is S.RUNNING  # its wrapper was killed, and the watchdog of its lease
    site.launch("next", cpu=3.0)
    host.silence = None
    site.cycle(601)
    assert host.running == ["next/task-0"]
    assert site.cluster.ghosts == {}
    assert host.calls[host.calls.index("stop") :].count("prepare") == 1
    assert host.calls.count("prepare") == 2


def test_a_clock_that_is_wrong_is_recorded_once_and_told(site: Site) -> None:
    site.hosts["w0"].clock_ahead = 120.0
    before = site.cycle(60).seq
    assert site.cluster.workers[site.attempt("train").worker].skew == pytest.approx(120, abs=2)
    assert warnings_of(site, "w0") == ("clock is 2m ahead of this machine",)
    assert site.cycle(60).seq == site.cycle(60).seq == before
    site.hosts["w0"].clock_ahead = 0.0
    site.cycle(60)
    assert warnings_of(site, "w0") == ()


def test_a_worker_with_attempts_that_the_log_never_saw_takes_nothing_and_they_are_left_alone(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, "w0")
    stranger = site.hosts["w0"].tokens[Token("f" * 32)] = Entry(S.RUNNING, "from/task-0")
    site.launch("train")
    site.run()
    assert stranger.state is S.RUNNING
    assert site.state_of("train") is JobState.PENDING
    (row,) = cluster_status(site.session()).workers
    assert row.refuses == (
        "unusable: 1 attempt not in the log (was the state directory restored, or is a copy in use?): "
        "iris worker unwedge w0 stops them",
    )
    stranger.state = S.STOPPED
    del site.hosts["w0"].tokens[Token("f" * 32)]
    site.run()
    assert site.hosts["w0"].running == ["train/task-0"]


def test_after_lines_of_the_log_were_lost_every_worker_is_probed_before_it_takes_anything(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, "w0", "w1")
    site.launch("train")
    site.cycle()
    site.hosts["w1"].tokens[Token("f" * 32)] = Entry(S.RUNNING, "lost/task-0")
    session = site.session()
    with session.state.locked("iris log salvage") as writer:
        assert require_probes(writer, site.clock.now()) == 2
    site.launch("next", replicas=2, cpu=3.0)
    site.cycle()
    assert site.hosts["w0"].calls[-3:] == ["probe", "poll", "prepare"]
    assert site.hosts["w0"].running == ["train/task-0", "next/task-0"]
    row = next(each for each in cluster_status(site.session()).workers if each.id == "w1")
    assert "not in the log" in row.refuses[0]
    assert site.task("next", 1).state is TaskState.PENDING


def test_healthy_workers_are_polled_before_suspect_ones(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0", "w1", limits=Limits(max_dispatch_parallelism=1))
    site.launch("train", replicas=2, cpu=3.0)
    site.cycle()
    site.hosts["w0"].silence = SilenceKind.UNREACHABLE
    site.cycle()
    asked: list[str] = []
    for name, host in site.hosts.items():
        host.meanwhile["poll"] = partial(asked.append, name)
    site.cycle(60.0)
    assert asked == ["w1", "w0"]
