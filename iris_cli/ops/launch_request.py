"""What is sent to a worker to start one attempt: its command, its environment, its limits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import AttemptId, JobId
from iris_cli.core.job import Job
from iris_cli.ops.environment import coordinator_port, environment, listens, place_of
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.remote.task_runner import LaunchRequest


class MissingSecretError(Exception):
    """A secret of the job isn't in the operator's environment."""


def launch_request(session: Session, cluster: Cluster, attempt_id: AttemptId) -> LaunchRequest:
    """Raises MissingSecretError; ValueError for what no shell could be given."""
    from iris_cli.remote.launch_request import LaunchRequest, command_text, environment_text

    place = place_of(cluster, attempt_id)
    missing = missing_secrets(place.job)
    if missing:
        raise MissingSecretError(", ".join(missing))
    host = session.hosts.get(place.worker.id)
    default_env = host.env if host is not None else session.config.defaults.env
    request = LaunchRequest(
        token=place.attempt.token,
        argv=place.job.command,
        env=environment(place, default_env, {name: os.environ[name] for name in place.job.secrets}),
        setup=place.job.setup,
        setup_timeout=place.job.setup_timeout,
        timeout=place.job.timeout,
        lease=place.job.lease,
        grace=place.job.grace,
        exclusive=place.on_tpu,
        port=coordinator_port(place) if listens(place) else 0,
        device_wait=session.limits.device_wait,
    )
    command_text(request), environment_text(request)
    return request


def missing_secrets(job: Job) -> list[str]:
    """The secrets of a job that can't be resolved here and now, to something that can be sent."""
    return [name for name in job.secrets if not _is_text(os.environ.get(name))]


def _is_text(value: str | None) -> bool:
    """Whether it is there, and was UTF-8: bytes that weren't are surrogates here."""
    return value is not None and not any("\ud800" <= char <= "\udfff" for char in value)


def jobs_without_secrets(cluster: Cluster) -> dict[JobId, list[str]]:
    """Open jobs that can't be started from here, with the names that are missing."""
    return {
        job.id: missing
        for job in cluster.open_jobs()
        if job.end is None and (missing := missing_secrets(job))
    }
