"""The worker's library through real SSH: nothing holds the channel open, nothing depends on the login shell's noise."""

from __future__ import annotations

import secrets

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.observations import ProbeReport, RemoteState, WorkerReport
from iris_cli.remote.fan_out import fan_out
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.task_runner import LaunchRequest, TaskRunner
from tests.support.sshd import PATIENCE, SshLab
from tests.support.worker_host import kill, marked, until

pytestmark = pytest.mark.ssh


def test_a_gang_is_prepared_started_watched_and_stopped_over_ssh(ssh_lab: SshLab, ssh: SshTransport) -> None:
    hosts = ssh_lab(3)
    runner = TaskRunner(ssh, "c1", connect_timeout=PATIENCE, timeout=PATIENCE)
    requests = {host.worker: LaunchRequest(token=Token(secrets.token_hex(16)), argv=("sh", "-c", "echo $RANK; sleep 1000"), env={"RANK": host.name}, setup="true") for host in hosts}
    try:
        for host in hosts:
            probe = runner.probe(host.target())
            assert isinstance(probe, ProbeReport)
            request, target = requests[host.worker], host.target()

            def states(answer: object) -> list[RemoteState]:
                assert isinstance(answer, WorkerReport), answer
                return [report.state for report in answer.attempts]

            identity = {"boot_id": probe.boot_id, "incarnation": probe.incarnation}
            runner.prepare(target, [request], **identity, go=False)
            until(lambda t=target, r=request: states(runner.poll(t, [r.token])) == [RemoteState.PREPARED])
            runner.go(target, [request.token], **identity)
            until(lambda t=target, r=request: states(runner.poll(t, [r.token])) == [RemoteState.RUNNING])
        stops = fan_out(hosts, lambda host: runner.stop(host.target(), [(requests[host.worker].token, 5.0)]))
        for host, answer in stops:
            assert isinstance(answer, WorkerReport)
            token = requests[host.worker].token
            until(lambda h=host, t=token: states(runner.poll(h.target(), [t])) == [RemoteState.STOPPED])
            assert not marked(token)
    finally:
        for request in requests.values():
            for pid in marked(request.token):
                kill(pid)
