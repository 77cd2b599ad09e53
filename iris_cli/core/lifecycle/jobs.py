"""The end of a job, and its effect on tasks, attempts and child jobs."""

from iris_cli.core import AttemptId, Job, JobId, JobState, Priority, TaskId
from iris_cli.core.events.events import AttemptStopRequested, JobCancelled, JobChanged, JobEnded, TaskEnded
from iris_cli.core.evolve import Draft
from iris_cli.core.model.task import AttemptState, End, EndReason, Task, TaskState

CLIENT_GONE = "its terminal is gone"
"""Reason to cancel an interactive job whose client has ended."""


def cancel(draft: Draft, job: JobId, reason: str = "") -> bool:
    """Cancel a job. Return False if it has already ended."""
    if draft.cluster.job_state(job).terminal:
        return False
    draft.record(JobCancelled(job=job, reason=reason))
    _end_open_tasks(draft, job, End(reason=EndReason.CANCELLED, at=draft.at, error=reason))
    end_if_decided(draft, job)
    return True


def retry(draft: Draft, job: JobId, index: int | None = None) -> list[AttemptId]:
    """Stop the live attempts of a job, or of its task `index`; a gang only as a whole. Return the stopped attempts."""
    all_tasks = index is None or draft.cluster.jobs[job].is_gang
    found = [
        attempt_id
        for attempt_id, attempt in draft.cluster.live_attempts_of(job)
        if (all_tasks or attempt_id.task.index == index)
        and attempt.state is not AttemptState.STOPPING
        and not draft.cluster.tasks[attempt_id.task].state.terminal
    ]
    for attempt_id in found:
        stop(draft, attempt_id, EndReason.RETRIED)
    return found


def change(
    draft: Draft,
    job_id: JobId,
    *,
    held: bool | None = None,
    priority: Priority | None = None,
    scheduling_timeout: float | None = None,
) -> bool:
    """Hold, release or change an open job. Return False if no field changes."""
    job = draft.cluster.jobs[job_id]
    event = JobChanged(
        job=job_id,
        held=None if held is (job.held_at is not None) else held,
        priority=None if priority is job.priority else priority,
        scheduling_timeout=None if scheduling_timeout == job.scheduling_timeout else scheduling_timeout,
    )
    if event == JobChanged(job=job_id):
        return False
    draft.record(event)
    return True


def end_if_decided(draft: Draft, job_id: JobId) -> None:
    """Record the end of a job if its tasks determine it. Then stop its live attempts and cancel its child jobs."""
    if draft.cluster.jobs[job_id].end is not None:
        return
    state = draft.cluster.job_state(job_id)
    if not state.terminal:
        return
    end = _end_of(draft, job_id, state)
    draft.record(JobEnded(job=job_id, end=end))
    _end_open_tasks(draft, job_id, End(reason=EndReason.JOB_ENDED, at=draft.at, trigger=end.trigger))
    for child in draft.cluster.children_of(job_id):
        cancel(draft, child.id, f"its parent {job_id} ended")


def stop(draft: Draft, attempt: AttemptId, reason: EndReason, trigger: TaskId | None = None) -> None:
    """Order the stop of an attempt. The attempt holds its resources until the stop is proven."""
    order = AttemptStopRequested(task=attempt.task, attempt=attempt.number, reason=reason, trigger=trigger)
    draft.record(order)


def stop_live_attempts(draft: Draft, job: JobId, reason: EndReason, trigger: TaskId | None = None) -> None:
    """Order the stop of every live attempt of a job that isn't stopping yet, including ASSIGNED attempts."""
    for attempt_id, attempt in draft.cluster.live_attempts_of(job):
        if attempt.state is not AttemptState.STOPPING:
            stop(draft, attempt_id, reason, trigger)


def _end_open_tasks(draft: Draft, job: JobId, end: End) -> None:
    for task in draft.cluster.tasks_of(job):
        if not task.state.terminal:
            draft.record(TaskEnded(task=task.id, state=TaskState.KILLED, end=end))
    stop_live_attempts(draft, job, end.reason, end.trigger)


def _end_of(draft: Draft, job_id: JobId, state: JobState) -> End:
    tasks = draft.cluster.tasks_of(job_id)
    if state is JobState.SUCCEEDED:
        tolerated = sum(task.state is TaskState.FAILED for task in tasks)
        warning = f"{tolerated} of {len(tasks)} tasks failed, as max_task_failures allows"
        return End(reason=EndReason.OK, at=draft.at, error=warning if tolerated else "")
    if state is JobState.KILLED:
        ends = (task.end for task in tasks if task.end and task.end.reason is EndReason.CANCELLED)
        return next(ends, End(reason=EndReason.CANCELLED, at=draft.at))
    decisive = _decisive_task(draft.cluster.jobs[job_id], tasks)
    if decisive is None or decisive.end is None:
        return End(reason=EndReason.WORKER_FAILED, at=draft.at)
    end = decisive.end
    return end.with_cause(end.reason, draft.at, end.trigger or decisive.id)


def _decisive_task(job: Job, tasks: list[Task]) -> Task | None:
    """Return the first task whose end made the job fail. Tolerated failures come last."""
    failures = sum(task.state is TaskState.FAILED for task in tasks)
    tolerated = not job.is_gang and failures <= job.max_task_failures
    by_exit, by_host = TaskState.FAILED, TaskState.WORKER_FAILED
    severity = (TaskState.UNSCHEDULABLE, *((by_host, by_exit) if tolerated else (by_exit, by_host)))
    candidates = [
        task
        for task in tasks
        if task.end is not None and task.state in severity and task.end.reason is not EndReason.SIBLING
    ]
    return min(
        candidates,
        key=lambda task: (severity.index(task.state), task.end.at if task.end else 0.0, task.index),
        default=None,
    )
