"""A call, a wrapper or a stopper is killed before or after a command it runs; the next one continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.messages.observations import RemoteState
from tests.remote.conftest import MakeHost, ProbedHost
from tests.support.bombs import Bomb
from tests.support.repeated_calls import STAY, fence, send, settle
from tests.support.worker_host import FINAL, WorkerHost, marked, pids_in, until_gone

MOMENTS = ("before", pytest.param("after", marks=pytest.mark.soak))
LAST = 200
"""More commands than any call runs. A test ends when no command was killed."""

every = pytest.mark.parametrize("stride", [29, pytest.param(9, marks=pytest.mark.soak)])
"""By default every twenty-ninth command is killed, in the soak every ninth, to save time."""


@pytest.fixture
def armed(probed_host: ProbedHost, tmp_path: Path) -> tuple[WorkerHost, Bomb]:
    bomb = Bomb(tmp_path / "bomb")
    return probed_host(tools=bomb.tools), bomb


@pytest.mark.parametrize("setup", ["true", pytest.param("", marks=pytest.mark.soak)])
@pytest.mark.parametrize("when", MOMENTS)
@every
def test_a_launch_that_was_cut_anywhere_is_finished_by_the_next_one(
    armed: tuple[WorkerHost, Bomb], tmp_path: Path, when: str, setup: str, stride: int
) -> None:
    host, bomb = armed
    outcomes = []
    for at in range(1, LAST, stride):
        starts = tmp_path / f"starts-{at}"
        request = host.request(*STAY, str(starts), setup=setup, env={"SECRET": "canary"})
        bomb.set(when, at)
        send(host, request)
        went_off = bomb.count >= at
        bomb.defuse()
        outcomes.append(settle(host, request))
        assert len(pids_in(starts)) <= 1
        assert fence(host, request.token) is not RemoteState.EXITED
        settle(host, request)
        assert not marked(request.token), (when, at)
        assert len(pids_in(starts)) <= 1
        if not went_off:
            break
    else:
        raise AssertionError("the calls run more commands than this test knows")
    killed_in_the_wrapper = {
        RemoteState.LAUNCHING,
        RemoteState.LOST,
        RemoteState.ORPHANED,
        RemoteState.NOSTART,
    }
    assert set(outcomes) <= {RemoteState.RUNNING} | killed_in_the_wrapper
    assert outcomes[-1] is RemoteState.RUNNING
    assert outcomes.count(RemoteState.RUNNING) > len(outcomes) // 2, outcomes


@pytest.mark.parametrize("when", MOMENTS)
@every
def test_a_stop_that_was_cut_anywhere_is_finished_by_the_next_one(
    armed: tuple[WorkerHost, Bomb], tmp_path: Path, when: str, stride: int
) -> None:
    host, bomb = armed
    for at in range(1, LAST, stride):
        request = host.request(*STAY, str(tmp_path / f"starts-{at}"))
        settle(host, request)
        bomb.set(when, at)
        host.runner.stop(host.target, [(request.token, 0.0)])
        went_off = bomb.count >= at
        bomb.defuse()
        state = host.state(request.token)
        assert state is not RemoteState.STOPPED or not marked(request.token), (when, at)
        assert fence(host, request.token) is RemoteState.STOPPED
        settle(host, request)
        assert not marked(request.token), (when, at)
        if not went_off:
            return
    raise AssertionError("a stop runs more commands than this test knows")


@pytest.mark.parametrize("when", MOMENTS)
@every
def test_an_interrupted_record_never_turns_a_failure_into_a_success(
    armed: tuple[WorkerHost, Bomb], make_host: MakeHost, tmp_path: Path, when: str, stride: int
) -> None:
    """The wrapper is killed while it records the end of a failed task."""
    host, bomb = armed
    watcher = make_host()  # the same worker without `Bomb`
    for at in range(1, LAST, stride):
        gate = tmp_path / f"gate-{at}"
        request = host.request("sh", "-c", 'while [ ! -e "$0" ]; do :; done; exit 3', str(gate))
        assert settle(host, request) is RemoteState.RUNNING
        bomb.set(when, at)
        gate.touch()
        report = watcher.wait(request.token, FINAL)
        went_off = bomb.count >= at
        bomb.defuse()
        assert (report.state, report.exit_code) in [(RemoteState.EXITED, 3), (RemoteState.LOST, None)]
        until_gone(request.token)
        if not went_off:
            assert report.state is RemoteState.EXITED
            return
    raise AssertionError("the end takes more commands than this test knows")
