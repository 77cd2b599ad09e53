"""Record the decisions of a plan: expired deadlines, failed dependencies, and assignments."""

from collections.abc import Callable, Iterable, Mapping

from iris_cli.core import Cluster, End, EndReason, Job, TaskState, format_duration
from iris_cli.core.events.events import TaskAssigned, TaskEnded
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import AttemptId, TaskId, Token, WorkerId
from iris_cli.core.lifecycle import jobs
from iris_cli.core.lifecycle.display import dependency_reason
from iris_cli.core.scheduling import Assignment, Plan

FIRST_PORT = 30_000
PORTS = 2_700  # number of ports, all above the coordinators' ports and below Linux's ephemeral ports


def choose_ports(cluster: Cluster, worker: WorkerId, job: Job, attempt: AttemptId) -> tuple[int, ...]:
    """Return a port for each port name of the job, if possible unused on the worker. The ports vary by attempt."""
    used = {port for _, each in cluster.live_attempts_on(worker) for port in each.ports}
    start = job.order * 97 + attempt.task.index * 17 + attempt.number * 7
    numbers = [FIRST_PORT + (start + step) % PORTS for step in range(PORTS)]
    free = [number for number in numbers if number not in used]
    return tuple([*free, *numbers][: len(job.ports)])


def record_plan(draft: Draft, plan: Plan, new_token: Callable[[], Token]) -> list[AttemptId]:
    """Record the decisions of a plan. Return the new attempts."""
    known = draft.cluster.jobs
    late = {task: _timeout_reason(plan, known[task.job], task) for task in plan.timed_out_tasks}
    _end_unschedulable(draft, EndReason.SCHEDULING_TIMEOUT, late)
    failed = {task: dependency_reason(draft.cluster, known[task.job]) for task in plan.dependency_failed}
    _end_unschedulable(draft, EndReason.DEPENDENCY_FAILED, failed)
    return record_assignments(draft, plan, plan.assignments, new_token)


def record_assignments(
    draft: Draft, plan: Plan, assignments: Iterable[Assignment], new_token: Callable[[], Token]
) -> list[AttemptId]:
    """Record these assignments of a plan. Return the new attempts, each with its own token from `new_token`."""
    assigned, chosen = [], plan.result.notable_choices()
    for assignment in assignments:
        task = draft.cluster.tasks[assignment.task]
        if task.state is not TaskState.PENDING:
            continue  # its job has just ended with another task or the parent job
        attempt, job = AttemptId(task.id, len(task.attempts)), draft.cluster.jobs[task.job]
        draft.record(
            TaskAssigned(
                task=task.id,
                attempt=attempt.number,
                worker=assignment.worker,
                token=new_token(),
                gpus=assignment.gpus,
                chosen=chosen.get(task.id, ""),
                ports=choose_ports(draft.cluster, assignment.worker, job, attempt) if job.ports else (),
            )
        )
        assigned.append(attempt)
    return assigned


def _end_unschedulable(draft: Draft, reason: EndReason, errors: Mapping[TaskId, str]) -> None:
    """End tasks as UNSCHEDULABLE, each with its error text."""
    tasks = [task for task in errors if not draft.cluster.tasks[task].state.terminal]
    for task in tasks:
        end = End(reason=reason, at=draft.at, error=errors[task])
        draft.record(TaskEnded(task=task, state=TaskState.UNSCHEDULABLE, end=end))
    for job in dict.fromkeys(task.job for task in tasks):
        jobs.end_if_decided(draft, job)


def _timeout_reason(plan: Plan, job: Job, task: TaskId) -> str:
    """Return a text with the scheduling timeout of a task, and the reason why the task was pending."""
    reason = plan.too_late.get(job.id if job.is_gang else task)
    text = f"not placed within its scheduling_timeout of {format_duration(job.scheduling_timeout)}"
    return f"{text}: {reason.text}" if reason is not None else text
