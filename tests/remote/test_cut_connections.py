"""Launches with connections cut at any byte: the call ends, and repeating it never starts the task twice."""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import ProbeReport, RemoteState, Silence, SilenceKind, WorkerReport
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.task_runner import LaunchRequest, TaskRunner
from iris_cli.remote.transport import Target
from tests.support.fan_out import fan_out
from tests.support.relay import Fault, relay
from tests.support.sshd import SshHost, SshLab
from tests.support.waiting import PATIENCE, until
from tests.support.worker_host import reports

pytestmark = pytest.mark.ssh

STEP = 8
SHORT = 0.75
"""Seconds for both timeouts of a call without any reply, which only they end."""
AT_ONCE = 20
"""Attempts in one poll."""
STARTED = {RemoteState.LAUNCHING, RemoteState.RUNNING, RemoteState.EXITED}

Way = Literal["cut", "reset", "blackhole"]
WAYS: tuple[Way, ...] = ("cut", "reset", "blackhole")


@dataclass(frozen=True)
class Cut:
    """How and where the connection of a launch fails."""

    way: Way
    direction: Literal["up", "down"]
    at: int

    @property
    def fault(self) -> Fault:
        verb = "silent" if self.way == "blackhole" else "cut"
        settings: dict[str, Any] = {f"{verb}_{self.direction}": self.at, "reset": self.way == "reset"}
        return Fault(**settings)

    @property
    def time_out(self) -> float:
        return SHORT if self.way == "blackhole" else PATIENCE


@dataclass
class Scene:
    """A probed host, and a working connection to it."""

    lab: SshLab
    host: SshHost
    direct: TaskRunner
    boot_id: str
    incarnation: str

    def request(self, token: Token) -> LaunchRequest:
        command = ("sh", "-c", 'echo started >>"$1"', "sh", str(self.starts(token)))
        return LaunchRequest(token=token, argv=command, env={})

    def starts(self, token: Token) -> Path:
        """Return the file to which the task adds a line at each start."""
        return self.host.home / f"starts-{token}"

    def launch(self, runner: TaskRunner, target: Target, token: Token) -> WorkerReport | Silence:
        return runner.prepare(
            target, [self.request(token)], boot_id=self.boot_id, incarnation=self.incarnation, go=True
        )

    def launch_over(self, cut: Cut, token: Token) -> WorkerReport | Silence:
        """Launch over a new connection."""
        transport = SshTransport(self.lab.known_hosts, ssh_config=None, user_known_hosts=None)
        with relay(self.host.port, cut.fault) as way:
            runner = TaskRunner(transport, "c1", connect_timeout=cut.time_out, timeout=cut.time_out)
            answer = self.launch(runner, self.host.target(port=way.port), token)
            transport.close()
        return answer

    def size_of_a_launch(self) -> tuple[int, int]:
        """Return the bytes that a complete launch sends up and down."""
        transport = SshTransport(self.lab.known_hosts, ssh_config=None, user_known_hosts=None)
        with relay(self.host.port) as way:
            runner = TaskRunner(transport, "c1", connect_timeout=PATIENCE, timeout=PATIENCE)
            reports(self.launch(runner, self.host.target(port=way.port), new_token()))
            transport.close()
            return way.up, way.down


def new_token() -> Token:
    return Token(secrets.token_hex(16))


def cuts_of(up: int, down: int, count: int) -> list[Cut]:
    """Return a sample of cuts at multiples of eight bytes, as many in the short answer as in the long request."""
    chance = random.Random(count)
    found = []
    for direction, size in (("up", up), ("down", down)):
        places = list(product(WAYS, range(0, size + STEP, STEP)))
        chosen = chance.sample(places, min(count // 2, len(places)))
        found += [Cut(way, direction, at) for way, at in chosen]  # type: ignore[arg-type]  # one of two words
    return found


@pytest.mark.parametrize("count", [8, pytest.param(100, marks=pytest.mark.soak)])
def test_a_launch_that_is_cut_off_ends_and_never_starts_twice(ssh_lab: SshLab, count: int) -> None:
    (host,) = ssh_lab(options=["MaxStartups 100"])
    transport = SshTransport(ssh_lab.known_hosts, ssh_config=None, user_known_hosts=None)
    direct = TaskRunner(transport, "c1", connect_timeout=PATIENCE, timeout=PATIENCE)
    probe = direct.probe(host.target())
    assert isinstance(probe, ProbeReport)
    scene = Scene(ssh_lab, host, direct, probe.boot_id, probe.incarnation)
    cuts = cuts_of(*scene.size_of_a_launch(), count)
    launched = dict(fan_out(cuts, lambda cut: cut_and_repeat(scene, cut), parallelism=8))
    ended_once(scene, [token for token, _ in launched.values()])
    transport.close()
    # Some must have been cut before the script was sent, and some after.
    assert {True, False} <= {sent for _, sent in launched.values()}


def cut_and_repeat(scene: Scene, cut: Cut) -> tuple[Token, bool | None]:
    """Launch over the faulty connection, then again over the working one. Return True if the first was sent, None if
    it was answered.
    """
    token = new_token()
    first = scene.launch_over(cut, token)
    if isinstance(first, Silence):
        assert cut.way == "blackhole" or first.kind is not SilenceKind.TIMEOUT, f"{cut}: it was not noticed"
        assert first.sent or not scene.starts(token).exists(), f"{cut}: it was sent"
    else:
        assert reports(first)[0].state in STARTED, cut
    again = scene.launch(scene.direct, scene.host.target(), token)
    assert reports(again)[0].state in STARTED, cut
    return token, first.sent if isinstance(first, Silence) else None


def ended_once(scene: Scene, tokens: list[Token]) -> None:
    """Wait until all have succeeded, and check that each started once."""
    for first in range(0, len(tokens), AT_ONCE):
        some = tokens[first : first + AT_ONCE]

        def have_ended(some: list[Token] = some) -> bool:
            polled = reports(scene.direct.poll(scene.host.target(), some))
            return {(each.state, each.exit_code) for each in polled} == {(RemoteState.EXITED, 0)}

        until(have_ended)
    assert {token: scene.starts(token).read_text() for token in tokens} == dict.fromkeys(tokens, "started\n")
