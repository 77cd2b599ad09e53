"""The shell library over real SSH: the channel is not kept open, and output of login shells is ignored."""

from __future__ import annotations

import secrets

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import ProbeReport, RemoteState
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.task_runner import LaunchRequest, TaskRunner
from iris_cli.remote.transport import Target
from tests.support.fan_out import fan_out
from tests.support.sshd import SshLab
from tests.support.waiting import PATIENCE, until
from tests.support.worker_host import kill, marked, reports

pytestmark = pytest.mark.ssh


@pytest.fixture
def runner(ssh: SshTransport) -> TaskRunner:
    return TaskRunner(ssh, "c1", connect_timeout=PATIENCE, timeout=PATIENCE)


def until_state(runner: TaskRunner, target: Target, token: Token, state: RemoteState) -> None:
    def is_there() -> bool:
        return [report.state for report in reports(runner.poll(target, [token]))] == [state]

    until(is_there)


def test_a_gang_is_prepared_started_watched_and_stopped_over_ssh(ssh_lab: SshLab, runner: TaskRunner) -> None:
    targets = [host.target() for host in ssh_lab(2)]
    tokens = [Token(secrets.token_hex(16)) for _ in targets]
    ranks = list(zip(targets, tokens, strict=True))
    try:
        for target, token in ranks:
            probe = runner.probe(target)
            assert isinstance(probe, ProbeReport)
            request = LaunchRequest(
                token=token, argv=("sleep", "1000"), env={"RANK": target.worker}, setup="true"
            )
            runner.prepare(target, [request], boot_id=probe.boot_id, incarnation=probe.incarnation, go=False)
            until_state(runner, target, token, RemoteState.PREPARED)
            runner.go(target, [token], boot_id=probe.boot_id, incarnation=probe.incarnation)
            until_state(runner, target, token, RemoteState.RUNNING)
            assert marked(token)
        for _, answer in fan_out(ranks, lambda rank: runner.stop(rank[0], [(rank[1], 5.0)])):
            reports(answer)
        for target, token in ranks:
            until_state(runner, target, token, RemoteState.STOPPED)
            assert not marked(token)
    finally:
        for pid in {pid for token in tokens for pid in marked(token)}:
            kill(pid)
