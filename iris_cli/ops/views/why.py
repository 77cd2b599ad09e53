"""Explain why a job or task is pending, where it runs, or how it ended. Explain what a worker can run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, field, structs

from iris_cli.core import AttemptId, Cluster, Job, JobId, JobState, SliceState, TaskId, Worker, WorkerId
from iris_cli.core.grouping import group_pairs
from iris_cli.core.lifecycle.display import job_display, task_displays
from iris_cli.core.model import waiting
from iris_cli.core.model.task import Attempt, AttemptState, Task, TaskState
from iris_cli.ops.names import find_task
from iris_cli.ops.outcomes import causes, durations
from iris_cli.ops.session import Session
from iris_cli.ops.views.failure import FailureCard, cause_words, failure_card
from iris_cli.ops.views.inventory import WorkerDetails, full_resources, problem_of, worker_details, worker_row
from iris_cli.ops.views.job_status import has_unhealthy_worker, inherited_from, is_being_set_up, next_command
from iris_cli.ops.views.peers import has_failed
from iris_cli.ops.views.task_rows import assigned_words, culprit_of, running_words
from iris_cli.ops.views.view import CycleAge, View, ViewResult, load_view

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Change, ExpectedStart, Explanation

_NOT_COMPLETED = frozenset({JobState.KILLED, JobState.UNSCHEDULABLE})


class Wait(Struct, frozen=True, kw_only=True):
    """Tasks that are pending for the same reason.

    `explanation` is None if the tasks wait only for the next cycle. `prospect` says what the next cycle will do, and
    `will_go_to` names the workers on which that cycle will place the tasks. `demand` names the scale group that creates
    a slice for the tasks, the state of the new slice, or the reason why no group creates a slice. It is '' without
    scale groups. `expected_start` is an estimate.
    """

    tasks: tuple[TaskId, ...]
    prospect: str
    will_go_to: tuple[WorkerId, ...]
    explanation: Explanation | None
    demand: str = ""
    expected_start: ExpectedStart | None = None


class LiveAttempt(Struct, frozen=True, kw_only=True):
    """One live attempt.

    `since_at` is the time of the order to stop the attempt, of its start, or of its assignment, whichever is latest.
    `doubt` says why the attempt is not running yet, and names its problems and those of the worker. `chosen` says why
    the scheduler chose the worker.
    """

    attempt: AttemptId
    state: AttemptState
    worker: WorkerId
    since_at: float
    age: float = field(name="age_seconds")
    doubt: str
    chosen: str = ""


class TaskEnd(Struct, frozen=True, kw_only=True):
    """The end of one task."""

    task: TaskId
    state: TaskState
    display: str
    cause: str
    ended_at: float


class DetailsWithRow(WorkerDetails, frozen=True, kw_only=True):
    """All details of one worker. In JSON, the worker's row is the value of `worker`."""

    FLATTENED: ClassVar = ()


class Why(ViewResult, frozen=True, kw_only=True):
    """Result of `iris why`.

    `kind` is `job`, `task` or `worker`. `display` is the state of `subject` as shown on the screen. For a worker, only
    `worker` and `occupied` are set. `occupied` names the kinds of tasks that do not fit on the worker, and why.
    `inherited` maps each inherited constraint to the job that named it. `retry` is the failure that is being retried.
    `overdue` says how long a gang has been pending, if longer than `gang_reserve_after`. `quiet` names the quiet tasks.
    `next` is the command that shows more about ended or quiet work.
    """

    subject: str
    kind: str
    state: str
    cycle: CycleAge | None
    display: str = ""
    cause: str = ""
    waits: tuple[Wait, ...] = ()
    places: tuple[LiveAttempt, ...] = ()
    ends: tuple[TaskEnd, ...] = ()
    failure: FailureCard | None = None
    worker: DetailsWithRow | None = None
    occupied: tuple[str, ...] = ()
    inherited: Mapping[str, JobId] = field(default_factory=dict)
    retry: str = ""
    overdue: str = ""
    quiet: str = ""
    next: str = ""


def why(session: Session, subject: str) -> Why:
    """Explain a job, a task or a worker by its exact id. Raises NotFoundError."""
    view = load_view(session)
    job_or_worker = view.cluster.jobs.get(JobId(subject)) or view.cluster.workers.get(WorkerId(subject))
    found = job_or_worker or find_task(view.cluster, subject, "job, task or worker")
    if isinstance(found, Worker):
        details = DetailsWithRow(**structs.asdict(worker_details(view, worker_row(view, found))))
        occupied = tuple(full_resources(view, found))
        status = details.worker.status
        return Why(
            **view.result_fields,
            subject=found.id,
            kind="worker",
            state=status,
            cycle=view.cycle,
            display=status,
            worker=details,
            occupied=occupied,
        )
    result = _why_task(view, found) if isinstance(found, Task) else _why_job(view, found)
    if result.waits and (session.config.scale_groups or view.cluster.slices):
        return _with_demand(session, view, result)
    return result


def _with_demand(session: Session, view: View, result: Why) -> Why:
    from iris_cli.ops.views.scale_status import demand_outcomes, plan_of, who_creates

    plan = plan_of(session, view.cluster, view.now)
    outcomes = demand_outcomes(plan)
    new_slices: dict[JobId | None, list[str]] = {}
    for each in view.cluster.slices.values():
        # The remark says why Slurm keeps the allocation pending, or what its nodes lack.
        remark = f": {each.remark}" if each.remark else ""
        state = "being created" if each.state is SliceState.CREATING else each.state
        for job in (each.wanted_by or (None,)) if each.is_provisioning else ():
            new_slices.setdefault(job, []).append(f"{each.name} is {state}{remark}")

    def demand(wait: Wait) -> str:
        for_all = new_slices.get(None, [])  # slices that were requested for no job in particular
        words = (outcomes.get(task) or ", ".join(new_slices.get(task.job, for_all)) for task in wait.tasks)
        return "; ".join(dict.fromkeys(each for each in words if each))

    waits = tuple(structs.replace(wait, demand=demand(wait)) for wait in result.waits)
    is_served = any(each.demand.startswith("served") for each in waits)
    notes = who_creates(session, view.cluster, plan) if is_served else ()
    return structs.replace(result, waits=waits, messages=(*result.messages, *notes))


def _why_job(view: View, job: Job) -> Why:
    tasks = view.cluster.tasks_of(job.id)
    state = view.cluster.job_state(job.id)
    failure = failure_card(view, job) if state is JobState.FAILED else None
    quiet = waiting.describe_quiet_tasks(job, tasks, view.now)
    has_more = state in _NOT_COMPLETED or quiet or has_unhealthy_worker(view.cluster, job)
    has_more = has_more or (state is JobState.PENDING and is_being_set_up(view.cluster, job))
    follow_up = next_command(view.cluster, job, quiet=bool(quiet)) if has_more else ""
    fields = _tasks_fields(view, job, tasks)
    return Why(
        **fields,
        subject=job.id,
        kind="job",
        state=state,
        display=job_display(view.cluster, job.id),
        cause=cause_words(view.cluster, job, view.state)
        or ("" if fields["waits"] else waiting.describe_hold(job) or causes.stop_cause(job, tasks)),
        failure=failure,
        retry=causes.retry_words(view.cluster, job, view.state),
        overdue=waiting.describe_overdue(view.cluster, job, view.limits.gang_reserve_after, view.now),
        quiet=quiet,
        next=failure.next if failure is not None else follow_up,
    )


def _why_task(view: View, task: Task) -> Why:
    job = view.cluster.jobs[task.job]
    culprit = culprit_of(view.cluster, job)
    failure = failure_card(view, job) if job.is_gang or culprit is task else None
    failed = task.end is not None and task.current is not None and has_failed(task.current)
    return Why(
        **_tasks_fields(view, job, [task]),
        subject=str(task.id),
        kind="task",
        state=task.state,
        display=task_displays(view.cluster, job.id)[task.index],
        cause=causes.task_end_words(task, view.state),
        failure=failure,
        next=failure.next if failure is not None else f"iris logs {task.id}" if failed else "",
    )


def _tasks_fields(view: View, job: Job, tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the fields of `Why` that describe the view and these tasks of the job."""
    return {
        **view.result_fields,
        "cycle": view.cycle,
        "waits": _waits(view, job, tasks),
        "places": tuple(_live_attempts(view, tasks)),
        "ends": _ends(view, tasks),
        "inherited": inherited_from(view.cluster, job),
    }


def _waits(view: View, job: Job, tasks: Iterable[Task]) -> tuple[Wait, ...]:
    """Group the pending tasks by reason, and return one Wait for each group. A gang is one Wait."""
    pending = [task.id for task in tasks if task.state is TaskState.PENDING]
    if not pending:
        return ()

    def reasons(task: TaskId) -> tuple[str, ...]:
        found = view.plan.waiting.get(job.id if job.is_gang else task, ())
        return tuple(map(str, found)) or (view.prospect(job, task),)

    groups = group_pairs((reasons(task), task) for task in pending)
    return tuple(_wait(view, job, group) for group in groups.values())


def _wait(view: View, job: Job, group: list[TaskId]) -> Wait:
    key = job.id if job.is_gang else group[0]
    explanation = view.plan.waiting.explain(key) if key in view.plan.waiting else None
    if explanation is not None:
        explanation = structs.replace(
            explanation,
            # Omit the constraints that the plan added for scale groups.
            constraints=explanation.constraints[: len(job.constraints)],
            change=_with_cycle_note(view, explanation.change),
        )
    return Wait(
        tasks=tuple(group),
        prospect=view.prospect(job, group[0]),
        will_go_to=tuple(view.next_workers[task] for task in group if task in view.next_workers),
        explanation=explanation,
        expected_start=view.expected_start(job, group[0]),
    )


def _with_cycle_note(view: View, change: Change | None) -> Change | None:
    """Return the change. If the change needs a cycle and no cycles are running, add this to its text."""
    if change is None or view.cycles is None or view.has_next_cycle:
        return change
    from iris_cli.core.scheduling import ChangeKind  # already imported with the plan of this change

    if change.kind not in (ChangeKind.RESTS, ChangeKind.RECOVERS):
        return change
    return structs.replace(change, text=f"{change.text}; no cycles are running")


def _live_attempts(view: View, tasks: Iterable[Task]) -> Iterable[LiveAttempt]:
    for task in tasks:
        for attempt in task.attempts:
            if not attempt.live:
                continue
            is_assigned = attempt.state is AttemptState.ASSIGNED
            doubts = (
                assigned_words(view.cluster.jobs[task.job], attempt, view.now) if is_assigned else "",
                problem_of(view, attempt.worker),
                running_words(attempt, view.now),
            )
            since = durations.state_since(attempt)
            yield LiveAttempt(
                attempt=AttemptId(task.id, attempt.number),
                state=attempt.state,
                worker=attempt.worker,
                since_at=since,
                age=durations.elapsed(since, None, view.now) or 0.0,
                doubt="; ".join(filter(None, doubts)),
                chosen=_chosen(view.cluster, task, attempt),
            )


def _chosen(cluster: Cluster, task: Task, attempt: Attempt) -> str:
    """Return why the scheduler chose the worker. In a gang, rank 0's attempt has the text for the whole round."""
    if attempt.chosen or not cluster.jobs[task.job].is_gang:
        return attempt.chosen
    first = cluster.tasks_of(task.job)[0]
    return next((each.chosen for each in first.attempts if each.round == attempt.round and each.chosen), "")


def _ends(view: View, tasks: Sequence[Task]) -> tuple[TaskEnd, ...]:
    displays = task_displays(view.cluster, tasks[0].job) if any(task.end for task in tasks) else []
    return tuple(
        TaskEnd(
            task=task.id,
            state=task.state,
            display=displays[task.index],
            cause=causes.task_end_words(task, view.state),
            ended_at=task.end.at,
        )
        for task in tasks
        if task.end is not None
    )
