"""Find what the operator means, or say what is nearest to it."""

from __future__ import annotations

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import JobId, WorkerId, clip
from iris_cli.core.nearest import did_you_mean
from iris_cli.core.worker import Worker
from iris_cli.errors import NotFoundError


def find_job(cluster: Cluster, text: str) -> JobId:
    """The job of exactly that id. Raises NotFoundError."""
    if text in cluster.jobs:
        return JobId(text)
    raise NotFoundError(
        f"no job {clip(text)!r}",
        hint=did_you_mean(clip(text), cluster.jobs) or "`iris status` lists the jobs",
    )


def find_jobs(cluster: Cluster, names: list[str], *, prefix: bool = False) -> list[JobId]:
    """The jobs of these ids, or of every id that begins with one of them. Raises NotFoundError."""
    if not prefix:
        return list(dict.fromkeys(find_job(cluster, name) for name in names))
    found = [job for job in cluster.jobs if any(job.startswith(name) for name in names)]
    if not found:
        raise NotFoundError(
            f"no job begins with {clip(', '.join(names))!r}", hint="`iris status` lists the jobs"
        )
    return found


def find_worker(cluster: Cluster, text: str) -> Worker:
    """The worker of exactly that id. Raises NotFoundError."""
    worker = cluster.workers.get(WorkerId(text))
    if worker is not None:
        return worker
    raise NotFoundError(
        f"no worker {clip(text)!r}",
        hint=did_you_mean(clip(text), cluster.workers)
        or "`iris workers` lists them; new hosts join at the next cycle",
    )
