"""What became of a launch, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import JobId
from iris_cli.core.task import Task, TaskState
from iris_cli.core.units import count
from iris_cli.ops.launch import being_set_up
from iris_cli.render.console import Output
from iris_cli.render.fold import fold

if TYPE_CHECKING:
    from iris_cli.ops.cycle import CycleResult


def show(output: Output, cluster: Cluster, job_id: JobId, result: CycleResult | None) -> None:
    """The job's state after its first cycle: on stdout as JSON, else as a message beside the id."""
    tasks = cluster.tasks_of(job_id)
    state = cluster.job_state(job_id)
    waiting = result.plan.reasons(job_id) if result is not None and result.plan is not None else ()
    if output.as_json:
        placed = {str(task.id): task.attempts[-1].worker for task in tasks if task.attempts}
        reasons = [{"kind": reason.kind.value, "text": reason.text} for reason in waiting]
        output.document({"job": job_id, "state": state.value, "placed": placed, "waiting": reasons})
        return
    preparing = being_set_up(cluster, job_id)
    if result is None:
        output.message(f"{job_id}: submitted; the next cycle places it")
    elif waiting:
        so_far = f"{_where(tasks)}; " if any(task.attempts for task in tasks) else ""
        output.message(f"{job_id}: {so_far}waiting: {waiting[0].text}; iris why {job_id}")
    elif preparing:
        where = fold(dict.fromkeys(preparing))
        output.message(
            f"{job_id}: is being set up on {where}; the next cycle starts it, or: iris wait {job_id}"
        )
    else:
        output.message(f"{job_id}: {_where(tasks)}")


def _where(tasks: Sequence[Task]) -> str:
    """`RUNNING on v5a-[0-3]`; how many of the tasks where some don't run yet, or not any more."""
    running = [task for task in tasks if task.state is TaskState.RUNNING]
    hosts = fold(task.attempts[-1].worker for task in tasks if task.attempts)
    if len(running) == len(tasks):
        return f"RUNNING on {hosts}"
    if not running:
        return f"placed on {hosts}" if hosts else "nothing runs yet"
    return f"{len(running)} of {count(len(tasks), 'task')} run on {hosts}"
