"""kill -9 of a launcher, a wrapper or a stopper at a system call; the next call continues.

By default the wrapper of a task that fails, at two calls; test_crash_points.py kills the others at commands. In the
soak each of them, at 20 calls of dash and at 8 of busybox, evenly distributed.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import RemoteState
from tests.remote.conftest import ProbedHost
from tests.support.killer import Killer, calls_in, skip_unless_calls_can_be_killed
from tests.support.repeated_calls import STAY, fence, send, settle
from tests.support.worker_host import FINAL, WorkerHost, marked, pids_in

SshCall = tuple[str, int]
Killed = tuple[WorkerHost, Killer]

LASTING = ("clone", "fork", "vfork", "wait4", "openat", "write", "dup2", "execve", "exit_group")
"""System calls with a visible effect, or that wait for one."""


SOAKED = (("dash", 20), ("busybox", 8))
calls_of_shells = pytest.mark.parametrize(("shell", "count"), SOAKED)


@pytest.fixture
def killed(shell: str, probed_host: ProbedHost, tmp_path: Path) -> Killed:
    skip_unless_calls_can_be_killed()
    (tmp_path / "killer").mkdir()
    killer = Killer(shell, tmp_path / "killer")
    return probed_host(tools=killer.tools), killer


def chosen(calls: list[SshCall], count: int) -> list[SshCall]:
    """Return some of the relevant calls, evenly distributed."""
    lasting = [call for call in calls if call[0] in LASTING]
    count = min(count, len(lasting))
    return [lasting[index * len(lasting) // count] for index in range(count)]


def told(who: str, outcomes: Counter[str]) -> None:
    sys.stdout.write(f"{who}: {outcomes.total()} kills, then {dict(outcomes)}\n")


def numbered(calls: list[SshCall]) -> Iterator[tuple[int, SshCall]]:
    return zip(itertools.count(), calls)


@pytest.mark.soak
@calls_of_shells
def test_a_launcher_that_dies_at_any_call_is_replaced_by_the_next(
    killed: Killed, tmp_path: Path, count: int
) -> None:
    host, killer = killed
    trace = killer.watch("launcher")
    host.stopped(host.launch(*STAY, str(tmp_path / "starts")))
    outcomes: Counter[str] = Counter()
    for number, call in numbered(chosen(calls_in(trace), count)):
        starts = tmp_path / f"starts-{number}"
        request = host.request(*STAY, str(starts), env={"SECRET": "canary"})
        killer.arm("launcher", *call)
        send(host, request)
        outcomes[settle(host, request)] += 1
        assert fence(host, request.token) is not RemoteState.EXITED, call
        settle(host, request)
        assert not marked(request.token), call
        assert len(pids_in(starts)) == 1, call
        assert not host.secrets(request.token), call
    told("launcher", outcomes)
    assert set(outcomes) == {RemoteState.RUNNING}


@pytest.mark.soak
@calls_of_shells
def test_an_attempt_whose_wrapper_is_killed_at_any_call_can_be_fenced_and_never_starts_twice(
    killed: Killed, tmp_path: Path, count: int
) -> None:
    host, killer = killed
    trace = killer.watch("wrapper")
    host.stopped(host.launch(*STAY, str(tmp_path / "starts")))
    outcomes: Counter[str] = Counter()
    for number, call in numbered(chosen(calls_in(trace), count)):
        starts = tmp_path / f"starts-{number}"
        request = host.request(*STAY, str(starts), env={"SECRET": "canary"})
        killer.arm("wrapper", *call)
        outcomes[settle(host, request)] += 1
        assert fence(host, request.token) is not RemoteState.EXITED, call
        settle(host, request)
        assert not marked(request.token), call
        assert len(pids_in(starts)) <= 1, call
        assert not host.secrets(request.token), call
    told("wrapper", outcomes)
    early = {RemoteState.LAUNCHING, RemoteState.LOST, RemoteState.ORPHANED, RemoteState.NOSTART}
    assert set(outcomes) <= early | {RemoteState.RUNNING}


@pytest.mark.parametrize(
    ("shell", "count"), [("dash", 2), *(pytest.param(*each, marks=pytest.mark.soak) for each in SOAKED)]
)
def test_a_wrapper_that_dies_at_any_call_never_makes_a_success_of_a_failure(
    killed: Killed, tmp_path: Path, count: int
) -> None:
    host, killer = killed
    task = ("sh", "-c", 'echo $$ >>"$0"; exit 3')
    trace = killer.watch("wrapper")
    host.ended(*task, str(tmp_path / "starts"))
    outcomes: Counter[str] = Counter()
    for number, call in numbered(chosen(calls_in(trace), count)):
        starts = tmp_path / f"starts-{number}"
        request = host.request(*task, str(starts))
        killer.arm("wrapper", *call)
        state = settle(host, request)
        if state is RemoteState.RUNNING:
            state = host.wait(request.token, FINAL | {RemoteState.ORPHANED}).state
        outcomes[state] += 1
        state = fence(host, request.token)
        report = host.poll(request.token)[0]
        assert report.state is state, call
        assert report.exit_code == (3 if state is RemoteState.EXITED else None), call
        settle(host, request)
        assert not marked(request.token), call
        assert len(pids_in(starts)) <= 1, call
    told("wrapper of a task that fails", outcomes)


@pytest.mark.soak
@calls_of_shells
def test_a_stopper_that_dies_at_any_call_is_replaced_by_the_next(
    killed: Killed, tmp_path: Path, count: int
) -> None:
    host, killer = killed
    trace = killer.watch("stopper")
    host.stopped(host.running(*STAY, str(tmp_path / "starts")), grace=0)
    outcomes: Counter[str] = Counter()
    for number, call in numbered(chosen(calls_in(trace), count)):
        request = host.request(*STAY, str(tmp_path / f"starts-{number}"))
        settle(host, request)
        killer.arm("stopper", *call)
        host.runner.stop(host.target, [(request.token, 0.0)])
        state = host.state(request.token)
        outcomes[state] += 1
        assert state is not RemoteState.STOPPED or not marked(request.token), call
        assert fence(host, request.token) is RemoteState.STOPPED, call
        settle(host, request)
        assert not marked(request.token), call
    told("stopper", outcomes)
