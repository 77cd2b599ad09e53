"""Calls that each cycle repeats, so that a killed caller has no lasting effect."""

from __future__ import annotations

import time

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState
from iris_cli.remote.task_runner import LaunchRequest
from tests.support.waiting import until
from tests.support.worker_host import FINAL, WorkerHost, marked, until_gone

STAY = ("sh", "-c", 'echo $$ >>"$0"; exec sleep 1000')


def send(host: WorkerHost, request: LaunchRequest) -> None:
    """Send a launch; there may be no answer, as its caller may be killed."""
    host.runner.prepare(host.target, [request], boot_id=host.boot_id, incarnation=host.incarnation, go=True)
    host.runner.go(host.target, [request.token], boot_id=host.boot_id, incarnation=host.incarnation)


def settle(host: WorkerHost, request: LaunchRequest) -> RemoteState:
    """Repeat the launch until the attempt has started or ended, or makes no progress for a while."""
    state = RemoteState.ABSENT
    for _ in range(200):
        send(host, request)
        state = host.state(request.token)
        if state in FINAL | {RemoteState.RUNNING, RemoteState.ORPHANED}:
            break
        if state is RemoteState.LAUNCHING and not marked(request.token):
            break  # the wrapper was killed after it had made `go`: only a stop helps
        time.sleep(0.02)
    return state


def fence(host: WorkerHost, token: Token) -> RemoteState:
    """Stop the attempt, repeatedly as cycles do, until no process of it is left.

    STOPPED is proof of that. A wrapper that has recorded another end is about to exit.
    """
    states: list[RemoteState] = []

    def is_fenced() -> bool:
        states.append(host.stop(token, grace=0).state)
        return states[-1] in FINAL - {RemoteState.LOST}

    until(is_fenced, lambda: states[-1])
    if states[-1] is not RemoteState.STOPPED:
        until_gone(token)
    assert not marked(token)
    return states[-1]
