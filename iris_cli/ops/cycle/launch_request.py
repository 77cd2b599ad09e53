"""What is sent to a worker to start attempts: their commands, environments and limits, and the calls that bring them.

A worker in another boot or incarnation refuses these calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from iris_cli.core.ids import AttemptId, Token
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.worker import Worker
from iris_cli.ops.cycle.calls import Call
from iris_cli.ops.cycle.each_line import line_of
from iris_cli.ops.cycle.environment import array_variables, coordinator_port, environment, listens, place_of
from iris_cli.ops.cycle.observe import known_of
from iris_cli.ops.secret_values import secret_values
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.remote.task_runner import LaunchRequest


def launch_request(session: Session, cluster: Cluster, attempt_id: AttemptId) -> LaunchRequest:
    """Raises MissingSecretError; ValueError for what no shell could be given."""
    from iris_cli.remote.launch_request import LaunchRequest, command_text, environment_text

    place = place_of(cluster, attempt_id)
    secrets = secret_values(place.job)
    line = line_of(session.state, place.job, place.index)
    host = session.hosts.get(place.worker.id)
    default_env = host.env if host is not None else session.config.defaults.env
    request = LaunchRequest(
        token=place.attempt.token,
        argv=place.job.command,
        env={**environment(place, default_env, secrets), **array_variables(place, line)},
        workspace=place.job.workspace.hash if place.job.workspace is not None else "",
        setup=place.job.setup,
        setup_timeout=place.job.setup_timeout,
        timeout=place.job.timeout,
        signal=place.job.signal,
        lease=place.job.lease,
        grace=place.job.grace,
        exclusive=place.on_tpu,
        ports=(*((coordinator_port(place),) if listens(place) else ()), *place.attempt.ports),
        device_wait=session.limits.device_wait,
    )
    command_text(request), environment_text(request)
    return request


def prepare_call(
    session: Session,
    cluster: Cluster,
    worker: Worker,
    requests: Mapping[AttemptId, LaunchRequest],
    *,
    go: bool,
) -> Call:
    """The call that sets up attempts, and with `go` starts them."""
    act = partial(
        session.runner.prepare,
        session.target(worker),
        list(requests.values()),
        boot_id=worker.boot_id,
        incarnation=worker.incarnation,
        go=go,
    )
    return Call(known=known_of(cluster, worker.id), act=act, starts=tuple(requests))


def go_call(session: Session, cluster: Cluster, worker: Worker, tokens: Sequence[Token]) -> Call:
    """The call that starts attempts that are set up."""
    act = partial(
        session.runner.go,
        session.target(worker),
        tokens,
        boot_id=worker.boot_id,
        incarnation=worker.incarnation,
    )
    return Call(known=known_of(cluster, worker.id), act=act, goes=tuple(tokens))
