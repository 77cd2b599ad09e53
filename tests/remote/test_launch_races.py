"""Concurrent calls: at most one start for each token."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState
from tests.remote.conftest import MakeHost, ProbedHost
from tests.support.local_transport import SHELLS
from tests.support.waiting import until
from tests.support.worker_host import FINAL, WorkerHost, at_once, is_alive, marked, pids_in, until_gone

S = RemoteState
FENCED = {S.STOPPED, S.CANCELLED}
TELL = ("sh", "-c", 'echo $$ >>"$0"')
COUNT_TERMS = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"term\\n"))
os.write(1, b"up\\n")
while True:
    time.sleep(1)
"""
STAY = ("sh", "-c", 'echo $$ >>"$0"; sleep 1000')


def has_written(host: WorkerHost, token: Token, text: bytes) -> bool:
    return text in host.output(token)


MixedHosts = Callable[..., list[WorkerHost]]


@pytest.fixture
def mixed_hosts(make_host: MakeHost, probed_host: ProbedHost) -> MixedHosts:
    """Makes one worker with each of these shells."""

    def make(shells: Sequence[str] = SHELLS) -> list[WorkerHost]:
        first, hosts = probed_host(shells[0]), [make_host(shell) for shell in shells[1:]]
        for host in hosts:
            host.boot_id, host.incarnation = first.boot_id, first.incarnation
        return [first, *hosts]

    return make


def test_many_launches_of_one_token_start_it_once(mixed_hosts: MixedHosts, tmp_path: Path) -> None:
    hosts = mixed_hosts()
    starts = tmp_path / "starts"
    request = hosts[0].request(*TELL, str(starts), env={"SECRET": "canary"})
    calls = [partial(hosts[index % 3].prepare, request, go=True) for index in range(9)]
    assert at_once(calls) == []
    assert hosts[0].wait(request.token).state is RemoteState.EXITED
    assert len(pids_in(starts)) == 1
    directory = hosts[0].attempt_dir(request.token)
    assert not hosts[0].secrets(request.token)
    assert [len(list(directory.glob(f"{name}.*"))) for name in ("cmd", "env", "run")] == [1, 1, 1]


def test_prepares_and_gos_in_any_order_start_it_once(mixed_hosts: MixedHosts, tmp_path: Path) -> None:
    hosts = mixed_hosts()
    starts = tmp_path / "starts"
    request = hosts[0].request(*TELL, str(starts), setup=f"echo $$ >>{starts}-setup")
    prepares = [partial(hosts[index % 3].prepare, request) for index in range(6)]
    gos = [partial(hosts[index % 3].go, request.token) for index in range(6)]
    calls = [*prepares, *gos]
    assert at_once(calls) == []
    hosts[0].wait(request.token, FINAL | {RemoteState.PREPARED, RemoteState.RUNNING})
    assert at_once(calls) == []
    assert hosts[0].wait(request.token).state is RemoteState.EXITED
    assert len(pids_in(starts)) == 1
    assert len(pids_in(Path(f"{starts}-setup"))) == 1


def test_first_probes_agree_on_one_incarnation(make_host: MakeHost) -> None:
    hosts = [make_host(SHELLS[index % 3], name="host") for index in range(6)]
    assert at_once([host.probe for host in hosts]) == []
    assert len({host.incarnation for host in hosts}) == 1
    assert hosts[0].incarnation


@pytest.mark.soak
def test_stops_and_launches_race_and_nothing_is_left_or_starts_later(
    mixed_hosts: MixedHosts, tmp_path: Path
) -> None:
    """Calls with many tokens stop attempts before, during and after their launch."""
    hosts, count = mixed_hosts(), 24
    chance = random.Random(7)
    requests = [hosts[0].request(*STAY, str(tmp_path / f"starts-{number}")) for number in range(count)]
    groups = [requests[start::8] for start in range(8)]
    calls: list[Callable[[], object]] = []
    for index, group in enumerate(groups):
        shuffled = chance.sample(group, len(group))
        stops = [(request.token, 0.0) for request in shuffled]
        launcher, stopper = hosts[index % 3], hosts[(index + 1) % 3]
        calls.append(partial(launcher.prepare, *group, go=True))
        calls.append(partial(stopper.runner.stop, stopper.target, stops))
    assert at_once(calls) == []
    tokens = [request.token for request in requests]

    def all_are_fenced() -> bool:
        return {report.state for report in hosts[0].poll(*tokens)} == {RemoteState.STOPPED}

    until(all_are_fenced)
    assert [token for token in tokens if marked(token)] == []
    before = {token: (tmp_path / f"starts-{index}").exists() for index, token in enumerate(tokens)}
    assert at_once([partial(host.prepare, *requests, go=True) for host in hosts]) == []
    assert at_once([partial(host.go, *tokens) for host in hosts]) == []
    assert {report.state for report in hosts[0].poll(*tokens)} == {RemoteState.STOPPED}
    assert [token for token in tokens if marked(token)] == []
    assert before == {token: (tmp_path / f"starts-{index}").exists() for index, token in enumerate(tokens)}
    assert list(hosts[0].root.glob("a/*/spare")) == []
    for index in range(count):
        assert len(pids_in(tmp_path / f"starts-{index}")) <= 1


@pytest.mark.parametrize(
    ("tokens", "launches", "stops"), [(3, 9, 3), pytest.param(20, 120, 24, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize(
    "shells", [*[pytest.param((shell,), marks=pytest.mark.soak) for shell in SHELLS], SHELLS], ids="-".join
)
def test_a_crowd_of_launches_and_stops_starts_each_token_once_at_most(
    mixed_hosts: MixedHosts, tmp_path: Path, shells: Sequence[str], tokens: int, launches: int, stops: int
) -> None:
    """Each in a separate call, in random order, many at a time."""
    hosts = mixed_hosts(shells)
    chance = random.Random(tokens)
    starts = [tmp_path / f"starts-{number}" for number in range(tokens)]
    requests = [hosts[0].request(*STAY, str(path)) for path in starts]
    stopped = sorted({chance.choice(requests).token for _ in range(stops)})
    calls: list[Callable[[], object]] = [
        *(
            partial(chance.choice(hosts).prepare, requests[index % tokens], go=True)
            for index in range(launches)
        ),
        *(
            partial(chance.choice(hosts).stop, stopped[index % len(stopped)], grace=0)
            for index in range(stops)
        ),
    ]
    chance.shuffle(calls)
    assert in_a_crowd(calls) == []

    def all_are_settled() -> bool:
        said = {report.token: report.state for report in hosts[0].poll(*(each.token for each in requests))}
        return all(said[each] in (FENCED if each in stopped else {S.RUNNING}) for each in said)

    until(all_are_settled)
    for request, path in zip(requests, starts, strict=True):
        if request.token in stopped:
            until_gone(request.token)
            assert len(pids_in(path)) <= 1
        else:
            until(partial(pids_in, path))
            assert [pid for pid in pids_in(path) if is_alive(pid)] == pids_in(path)
            assert len(pids_in(path)) == 1
    before = [path.exists() for path in starts]
    assert in_a_crowd([partial(hosts[0].stop, each.token, grace=0) for each in requests]) == []
    assert in_a_crowd([partial(chance.choice(hosts).prepare, each, go=True) for each in requests]) == []
    hosts[0].go(*(each.token for each in requests))
    for request in requests:
        assert hosts[0].wait(request.token).state in FENCED
        until_gone(request.token)
    assert [path.exists() for path in starts] == before
    assert all(len(pids_in(path)) <= 1 for path in starts)
    assert list(hosts[0].root.glob("a/*/spare")) == []


def in_a_crowd(calls: Sequence[Callable[[], object]]) -> list[BaseException]:
    """Run the calls sixteen at a time. Return the exceptions they raised."""
    with ThreadPoolExecutor(16) as pool:
        done = [pool.submit(call) for call in calls]
    return [error for each in done if (error := each.exception()) is not None]


def test_many_stops_of_one_token_send_one_term_and_agree(mixed_hosts: MixedHosts) -> None:
    hosts = mixed_hosts()
    token = hosts[0].running(sys.executable, "-c", COUNT_TERMS)
    until(partial(has_written, hosts[0], token, b"up"))
    calls = [partial(hosts[index % 3].stop, token, grace=1_000) for index in range(6)]
    assert at_once(calls) == []
    until(partial(has_written, hosts[0], token, b"term"))
    hosts[0].stop(token, grace=1)
    hosts[0].wait(token, {RemoteState.STOPPED})
    assert hosts[0].output(token) == b"up\nterm\n"
    assert not marked(token)
    assert [path.name for path in hosts[0].attempt_dir(token).glob("stop.*")] == ["stop.done"]
    assert [path.name for path in hosts[0].attempt_dir(token).glob("x.*")] == ["x.cancelled"]
