"""Whoever runs cycles for longer than one is seen while it does, and not afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iris_cli.cli import cycles
from iris_cli.cli.context import Context
from iris_cli.core.ids import JobId
from iris_cli.ops.loop.foreground import CycleRunner, runner_lock, wait_for, watch
from iris_cli.ops.session import Session
from tests.support.fake_runner import Clock, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path, "w0")
    site.cycle()
    return site


def seen(session: Session) -> list[str]:
    return [each.kind for each in session.state.runners.live_runners()]


def times(session: Session) -> dict[str, Any]:
    heartbeat = session.state.read_heartbeat()
    assert heartbeat is not None
    runners: dict[str, Any] = heartbeat["runners"]
    return runners


def when_it_pauses(session: Session, look: Callable[[], object]) -> None:
    """Have something happen whenever the session waits."""

    class Watched(Clock):
        def sleep(self, seconds: float) -> None:
            look()
            super().sleep(seconds)

    session.clock = Watched(session.clock.now())


def test_a_wait_is_seen_until_it_ends(site: Site) -> None:
    site.launch("train")
    session, found = site.session(), []
    when_it_pauses(session, lambda: found.append(seen(session)))
    wait_for(session, [JobId("train")], timeout=1.0)
    assert found[0] == ["wait"]
    assert seen(session) == []
    assert times(session)["wait"]["interval"] == 3.0


def test_a_wait_that_is_interrupted_is_gone(site: Site) -> None:
    site.launch("train")
    session = site.session()

    def press_ctrl_c() -> None:
        raise KeyboardInterrupt

    when_it_pauses(session, press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        wait_for(session, [JobId("train")])
    assert seen(session) == []


def test_a_waiting_command_is_listed_as_a_runner(site: Site) -> None:
    session = site.session()
    with CycleRunner(session):
        assert seen(session) == ["wait"]
    assert seen(session) == []


def test_a_watch_is_a_runner_only_if_it_places_jobs(site: Site) -> None:
    session = site.session()
    for schedule, once, kinds in ((True, False, ["watch"]), (False, False, []), (True, True, [])):
        steps = watch(session, interval=2.0, schedule=schedule, once=once)
        next(steps)
        assert seen(session) == kinds
        steps.close()
        assert seen(session) == []


def test_a_schedule_with_an_interval_is_seen(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster.yaml").write_text("cluster: {name: site}\n")
    iris = Context(config_path=tmp_path / "cluster.yaml")
    found: list[list[str]] = []

    class Watched(Clock):
        def sleep(self, seconds: float) -> None:
            found.append([each.command for each in iris.state.runners.live_runners()])
            raise KeyboardInterrupt

    iris.clock = Watched()
    with pytest.raises(KeyboardInterrupt):
        cycles.schedule(iris, interval=5.0)
    assert found == [["iris schedule"]]
    assert iris.state.runners.live_runners() == []


def test_single_cycles_are_recorded_as_those_of_commands(site: Site) -> None:
    session = site.session()
    site.cycle(5.0)
    assert times(session) == {"command": {"at": site.clock.now()}}
    assert seen(session) == []


def test_who_can_not_hold_a_lock_runs_cycles_all_the_same(site: Site, tmp_path: Path) -> None:
    session = site.session()
    (tmp_path / "state" / "runners").touch()
    with runner_lock(session, "wait", interval=3.0):
        assert session.runs_as == "wait"
        assert seen(session) == []
