"""What a plan means: deadlines that have passed, dependencies that failed, and the assignments."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from iris_cli.core.events import TaskAssigned, TaskEnded
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import AttemptId, TaskId, Token
from iris_cli.core.lifecycle import jobs
from iris_cli.core.lifecycle.ports import choose_ports
from iris_cli.core.outcome import End, EndReason
from iris_cli.core.scheduling import Plan
from iris_cli.core.task import TaskState


def carry_out(draft: Draft, plan: Plan, new_token: Callable[[], Token]) -> list[AttemptId]:
    """Record what the plan decides; returns the attempts that it assigns.

    `new_token` makes a launch token: 128 random bits, another one for each attempt. A gang's assignments
    must be committed together, hence everything here in one transaction.
    """
    _unschedulable(
        draft, plan.timed_out_tasks, EndReason.SCHEDULING_TIMEOUT, "not placed before its scheduling_timeout"
    )
    _unschedulable(
        draft, plan.dependency_failed, EndReason.DEPENDENCY_FAILED, "a job it waits for did not succeed"
    )
    assigned, told = [], plan.result.worth_telling()
    for assignment in plan.assignments:
        task = draft.cluster.tasks[assignment.task]
        if task.state is not TaskState.PENDING:
            continue  # its job has just ended, with another task of it or with its parent
        attempt, job = AttemptId(task.id, len(task.attempts)), draft.cluster.jobs[task.job]
        draft.record(
            TaskAssigned(
                task=task.id,
                attempt=attempt.number,
                worker=assignment.worker,
                token=new_token(),
                gpus=assignment.gpus,
                chosen=told.get(task.id, ""),
                ports=choose_ports(draft.cluster, assignment.worker, job, attempt) if job.ports else (),
            )
        )
        assigned.append(attempt)
    return assigned


def _unschedulable(draft: Draft, tasks: Iterable[TaskId], reason: EndReason, error: str) -> None:
    tasks = [task for task in tasks if not draft.cluster.tasks[task].state.terminal]
    for task in tasks:
        end = End(reason=reason, at=draft.at, error=error)
        draft.record(TaskEnded(task=task, state=TaskState.UNSCHEDULABLE, end=end))
    for job in dict.fromkeys(task.job for task in tasks):
        jobs.settle(draft, job)
