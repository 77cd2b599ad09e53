"""What keeps the background loop from doing all of its work, each in a line with what to type."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.core.units import count
from iris_cli.ops.secret_values import NOT_SET, missing_secrets

_RESTART = "iris loop start from a shell that has"
_NAMED = 3


def missing_here(cluster: Cluster) -> dict[JobId, dict[str, str]]:
    """The secrets of open jobs that this process can't read, by job and name, each with why."""
    waiting = [job for job in cluster.open_jobs() if job.end is None and job.secrets]
    return {job.id: missing for job in waiting if (missing := missing_secrets(job))}


def environment_troubles(
    cluster: Cluster, missing: Mapping[JobId, Mapping[str, str]], environ: Mapping[str, str] = os.environ
) -> Iterator[str]:
    """What this process lacks: an agent, a key that is accepted, secrets."""
    refused = [each.id for each in cluster.workers.values() if each.condition is WorkerCondition.AUTH_FAILED]
    if refused:
        who = _who(refused)
        agent = environ.get("SSH_AUTH_SOCK", "")
        if agent and not Path(agent).is_socket():
            yield f"its SSH agent is gone, {who} refused its key: {_RESTART} an agent"
        else:
            yield f"{who} refused its key: iris doctor; then {_RESTART} the right one"
    for reason, workers in _without_key(cluster).items():
        yield f"{_who(workers)} can't be reached: {reason}: iris doctor"
    by_secret: dict[tuple[str, str], list[JobId]] = {}
    for job, problems in missing.items():
        for name, problem in problems.items():
            by_secret.setdefault((name, problem), []).append(job)
    for (name, problem), jobs in by_secret.items():
        more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
        of = f"secret {name} of {', '.join(jobs[:_NAMED])}{more}"
        yield f"{of} is not in its environment: {_RESTART} it" if problem == NOT_SET else f"{of}: {problem}"


def _who(workers: Sequence[WorkerId]) -> str:
    return workers[0] if len(workers) == 1 else count(len(workers), "worker")


def _without_key(cluster: Cluster) -> dict[str, list[WorkerId]]:
    """The workers that are not even asked, because this machine can't use a key for them, by what is wrong with it."""
    found: dict[str, list[WorkerId]] = {}
    for each in cluster.workers.values():
        step, _, detail = each.reason.partition(": ")
        if each.condition is WorkerCondition.SUSPECT and step == "key":
            found.setdefault(detail, []).append(each.id)
    return found
