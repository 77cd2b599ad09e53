"""Generated environments arrive unchanged, through each shell and a real sshd."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import ProbeReport, RemoteState
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.task_runner import LaunchRequest, TaskRunner
from tests.support.sshd import SshLab
from tests.support.strings import strings
from tests.support.waiting import PATIENCE, until
from tests.support.worker_host import WorkerHost, reports

COUNTS = [200, pytest.param(2_000, marks=pytest.mark.soak)]
AT_ONCE = 2_000
"""Variables of one launch, near the maximum size of a job."""


def generated(count: int) -> list[dict[str, str]]:
    """Return environments with that many variables in total."""
    values = list(strings(6, count))
    named = [(f"VALUE_{number}", value) for number, value in enumerate(values)]
    return [dict(named[start : start + AT_ONCE]) for start in range(0, count, AT_ONCE)]


def seen_in(path: Path) -> dict[str, str]:
    """Parse the output of `cat /proc/self/environ`, which no other program has changed."""
    pairs = (entry.split(b"=", 1) for entry in path.read_bytes().split(b"\0") if b"=" in entry)
    return {name.decode(): value.decode() for name, value in pairs if name.startswith(b"VALUE_")}


def differing(sent: Mapping[str, str], seen: Mapping[str, str]) -> dict[str, tuple[str, str | None]]:
    return {name: (value, seen.get(name)) for name, value in sent.items() if seen.get(name) != value}


@pytest.mark.two_shells
@pytest.mark.parametrize("count", COUNTS)
def test_a_generated_environment_arrives_byte_for_byte_in_each_shell(host: WorkerHost, count: int) -> None:
    for env in generated(count):
        request = host.request("cat", "/proc/self/environ", env=env)
        host.prepare(request, go=True)
        assert host.wait(request.token).exit_code == 0
        assert differing(env, seen_in(host.attempt_dir(request.token) / "out")) == {}


@pytest.mark.ssh
@pytest.mark.parametrize("count", COUNTS)
def test_a_generated_environment_arrives_byte_for_byte_over_ssh(
    ssh_lab: SshLab, ssh: SshTransport, count: int
) -> None:
    (machine,) = ssh_lab(1)
    target, runner = machine.target(), TaskRunner(ssh, "c1", connect_timeout=PATIENCE, timeout=PATIENCE)
    probe = runner.probe(target)
    assert isinstance(probe, ProbeReport)
    for env in generated(count):
        token = Token(secrets.token_hex(16))
        request = LaunchRequest(token=token, argv=("cat", "/proc/self/environ"), env=env)
        runner.prepare(target, [request], boot_id=probe.boot_id, incarnation=probe.incarnation, go=True)
        until(lambda: reports(runner.poll(target, [token]))[0].state is RemoteState.EXITED)  # noqa: B023 - called at once
        (out,) = machine.home.glob(f"**/a/{token}/out")
        assert differing(env, seen_in(out)) == {}
