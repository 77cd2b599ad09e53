"""What every cycle does anew, so that whoever died in the middle of it is made up for."""

from __future__ import annotations

import time

from iris_cli.core.ids import Token
from iris_cli.core.observations import RemoteState
from iris_cli.remote.task_runner import LaunchRequest
from tests.support.worker_host import FINAL, PATIENCE, WorkerHost, marked

STAY = ("sh", "-c", 'echo $$ >>"$0"; exec sleep 1000')


def send(host: WorkerHost, request: LaunchRequest) -> None:
    """A launch whose caller may be killed: there may be no answer."""
    host.runner.prepare(host.target, [request], boot_id=host.boot_id, incarnation=host.incarnation, go=True)
    host.runner.go(host.target, [request.token], boot_id=host.boot_id, incarnation=host.incarnation)


def settle(host: WorkerHost, request: LaunchRequest) -> RemoteState:
    """Send the launch again until the attempt is beyond it, or nothing moves for a while."""
    state = RemoteState.ABSENT
    for _ in range(200):
        send(host, request)
        state = host.state(request.token)
        if state in FINAL | {RemoteState.RUNNING, RemoteState.ORPHANED}:
            break
        if state is RemoteState.LAUNCHING and not marked(request.token):
            break  # the wrapper was killed after it had won `go`: only a stop ends that
        time.sleep(0.02)
    return state


def fence(host: WorkerHost, token: Token) -> RemoteState:
    """Stop it, again and again as every cycle does."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        state = host.stop(token, grace=0).state
        if state in FINAL - {RemoteState.LOST}:
            return state
        time.sleep(0.05)
    raise AssertionError(f"never fenced: {state}")
