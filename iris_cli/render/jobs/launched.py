"""What became of a launch, in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.lifecycle.display import job_display
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import Task, TaskState
from iris_cli.core.units import count
from iris_cli.ops.jobs.launch import being_set_up
from iris_cli.ops.views.cycles import Cycles
from iris_cli.render.console import Output
from iris_cli.render.fold import fold

if TYPE_CHECKING:
    from iris_cli.core.scheduling import ReasonKind
    from iris_cli.ops.cycle.cycle import CycleResult


class WaitReason(Struct, frozen=True):
    """Why a job is pending."""

    kind: ReasonKind
    text: str


class UnansweredWorker(Struct, frozen=True):
    """A worker that did not answer when a task was to be started there."""

    worker: WorkerId
    detail: str


class LaunchedDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris launch`: the job after its first cycle. `placed` has the worker of each task."""

    job: JobId
    state: JobState
    display: str
    placed: Mapping[TaskId, WorkerId]
    waiting: Sequence[WaitReason]
    silent: Sequence[UnansweredWorker]
    cycles: Cycles | None


def show(
    output: Output,
    cluster: Cluster,
    job_id: JobId,
    result: CycleResult | None,
    unanswered: Mapping[WorkerId, str],
    no_cycles: str = "",
    cycles: Cycles | None = None,
) -> None:
    """The job's state after its first cycle: on stdout as JSON, else as a message beside the id.

    `unanswered` are the workers that should have started it and did not answer, each with the reason; `no_cycles`
    says what to type if there will be no cycle after this one; `cycles` says who runs them, for the document.
    """
    tasks = cluster.tasks_of(job_id)
    waiting = result.plan.reasons(job_id) if result is not None and result.plan is not None else ()
    if output.as_json:
        output.document(
            LaunchedDocument(
                job=job_id,
                state=cluster.job_state(job_id),
                display=job_display(cluster, job_id),
                placed={task.id: task.attempts[-1].worker for task in tasks if task.attempts},
                waiting=[WaitReason(reason.kind, reason.text) for reason in waiting],
                silent=[UnansweredWorker(worker, detail) for worker, detail in unanswered.items()],
                cycles=cycles,
            )
        )
        return
    preparing = being_set_up(cluster, job_id)
    if result is None:
        output.message(f"{job_id}: submitted; {no_cycles or 'starts in the next cycle'}")
    elif unanswered and not any(map(_is_placed, tasks)):
        first = next(iter(unanswered.values()))
        output.message(f"{job_id}: no answer from {fold(unanswered)}: {first}; iris why {job_id}")
    elif waiting:
        so_far = f"{_where(tasks)}; " if any(map(_is_placed, tasks)) else ""
        output.message(f"{job_id}: {so_far}waiting: {waiting[0].text}; iris why {job_id}")
    elif unanswered:
        first = next(iter(unanswered.values()))
        output.message(f"{job_id}: no answer from {fold(unanswered)}: {first}; iris why {job_id}")
    elif preparing:
        where = fold(dict.fromkeys(preparing))
        then = "starts in a later cycle" if not no_cycles else f"nobody runs cycles: iris wait {job_id}"
        output.message(f"{job_id}: being set up on {where}; {then}")
    else:
        output.message(f"{job_id}: {_where(tasks)}")
    says_it = result is None or (preparing and not waiting and not unanswered)
    if no_cycles and not says_it and not cluster.job_state(job_id).terminal:
        output.message(no_cycles)


def _where(tasks: Sequence[Task]) -> str:
    """`RUNNING on v5a-[0-3]`; how many of the tasks where some don't run yet, or not any more."""
    running = [task for task in tasks if task.state is TaskState.RUNNING]
    hosts = fold(task.attempts[-1].worker for task in running or filter(_is_placed, tasks))
    if len(running) == len(tasks):
        return f"RUNNING on {hosts}"
    if not running:
        return f"placed on {hosts}" if hosts else "nothing runs yet"
    return f"{len(running)} of {count(len(tasks), 'task')} run on {hosts}"


def _is_placed(task: Task) -> bool:
    """Whether it runs, or will, where it was placed last: not if it could not be started there."""
    return bool(task.attempts) and task.state is not TaskState.PENDING
