"""What became of a cancellation."""

from __future__ import annotations

from iris_cli.core.cluster import Cluster
from iris_cli.ops.cancel import Cancelled
from iris_cli.render.console import Output


def show(output: Output, cluster: Cluster, result: Cancelled) -> None:
    """The cancelled jobs; beside them those that were over before, and what is still being stopped."""
    stopping = {str(attempt): cluster.attempt(attempt).worker for attempt in result.stopping}
    if output.as_json:
        over = {job: cluster.job_state(job).value for job in result.over}
        output.document({"cancelled": result.cancelled, "over": over, "stopping": stopping})
        return
    for job in result.cancelled:
        output.line(f"cancelled {job}")
    for job in result.over:
        output.message(f"{job} was over already: {cluster.job_state(job).value}")
    if stopping:
        hosts = ", ".join(dict.fromkeys(stopping.values()))
        output.message(
            f"{len(stopping)} attempts are being stopped on {hosts}; iris cancel --wait JOB waits for them"
        )
