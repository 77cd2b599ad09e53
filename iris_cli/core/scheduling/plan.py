"""Plan a cycle from the state of a cluster: hold back tasks and gangs that must not start, and schedule the rest."""

from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from functools import partial
from operator import attrgetter

from msgspec import Struct

from iris_cli.core import Cluster, Device, JobId, Limits, Task, TaskId, WorkerCondition, WorkerId
from iris_cli.core.decorators import cached_by_argument, gc_paused
from iris_cli.core.model.job import NO_MISSING_INPUTS, Job, JobState, MissingInputs
from iris_cli.core.model.waiting import describe_hold
from iris_cli.core.scheduling.cycle import SchedulingResult, find_assignments
from iris_cli.core.scheduling.explain.explain import Waiting
from iris_cli.core.scheduling.explain.wording import list_few
from iris_cli.core.scheduling.order import TasksByJob, group_by_job, has_timed_out, split_timed_out
from iris_cli.core.scheduling.placement import Assignment
from iris_cli.core.scheduling.reasons import Reason, ReasonKind, WaitingKey, job_of
from iris_cli.core.scheduling.slice_affinity import SliceAffinity

_ATTEMPTS = attrgetter("attempts")


class Plan(Struct, frozen=True, kw_only=True):
    """The decisions of one cycle.

    `waiting` has the reasons of all pending tasks and gangs, including tasks and gangs that did not compete in the
    cycle. The tasks in `dependency_failed` can never run, because a job in their `after` did not succeed. `too_late`
    has the reason why each task or gang was pending when its scheduling timeout expired, unless it fits now. The tasks
    and gangs in `waiting_for_own_slices` would fit on slices created for other jobs, and wait for slices created for
    their own jobs.
    """

    result: SchedulingResult
    waiting: Waiting
    timed_out_tasks: tuple[TaskId, ...]
    dependency_failed: tuple[TaskId, ...]
    too_late: Mapping[WaitingKey, Reason]
    waiting_for_own_slices: Collection[WaitingKey]

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        return self.result.assignments

    def reasons(self, job: JobId) -> tuple[Reason, ...]:
        """Return why the gang or tasks of a job are pending, without duplicates; empty if none is pending."""
        waiting = self.waiting
        if job in waiting:
            return waiting[job]
        tasks = sorted(key for key in waiting if isinstance(key, TaskId) and key.job == job)
        return tuple(dict.fromkeys(reason for task in tasks for reason in waiting[task]))


@gc_paused
def plan(
    cluster: Cluster,
    now: float,
    *,
    limits: Limits | None = None,
    gang_reserve_after: float | None = None,
    missing: MissingInputs = NO_MISSING_INPUTS,
    offered: Collection[Device] = (),
) -> Plan:
    """Plan one cycle at `now`, in seconds since the epoch. `gang_reserve_after` overrides the limits.

    The plan holds back jobs that the operator holds, jobs with `missing` secrets or files, jobs with open dependencies,
    and tasks and gangs with live attempts; such a gang may still reserve workers. Scheduling timeouts still apply,
    except while a job waits for the operator, for a dependency, or because of its `max_running`. `offered` are the
    devices that scale groups could add.
    """
    limits = limits or Limits()
    gate = _Gate(cluster, now, missing)
    for job_id, tasks in group_by_job(cluster.pending_tasks()).items():
        job = cluster.jobs[job_id]
        if job.end is None and not job.cancelled:
            gate.admit(job, tasks)
    affinity, stops = SliceAffinity(cluster), _unconfirmed_stops(cluster)
    reserve_after = limits.gang_reserve_after if gang_reserve_after is None else gang_reserve_after

    def run_cycle(
        ready: TasksByJob,
        get_job: Callable[[JobId], Job | None] = affinity.get_job,
        reserve_after: float = reserve_after,
    ) -> SchedulingResult:
        return find_assignments(
            ready,
            cluster.workers.values(),
            get_job,
            now,
            gang_reserve_after=reserve_after,
            backoff_max=limits.backoff_max,
            unconfirmed_stops=stops,
            stopping_gangs=gate.stopping_gangs,
            offered=offered,
        )

    result, waiting_for_own_slices = run_cycle(gate.competing), dict[WaitingKey, Reason]()
    while more := affinity.reasons_to_wait(result, waiting_for_own_slices):
        waiting_for_own_slices |= more
        gate.hold_back(more)
        result = run_cycle(gate.competing)
    timed_out = group_by_job(map(cluster.tasks.__getitem__, result.timed_out_tasks))
    if timed_out:
        repeated = run_cycle(timed_out, partial(_without_timeout, affinity), reserve_after=0.0)
        gate.too_late |= _first_reasons(repeated.waiting)
    return Plan(
        result=result,
        waiting=result.waiting.with_held_back(gate.held_back, gate.dependents),
        timed_out_tasks=(*result.timed_out_tasks, *gate.timed_out),
        dependency_failed=tuple(gate.failed),
        too_late=gate.too_late,
        waiting_for_own_slices=tuple(waiting_for_own_slices),
    )


def _first_reasons(waiting: Waiting) -> dict[WaitingKey, Reason]:
    """Return the reasons why tasks whose timeout has expired were pending, from a cycle without scheduling timeouts.

    In that cycle, tasks that fit took room. But these tasks end, too: no other task was pending because of them.
    """
    first = {key: reasons[0] for key, reasons in waiting.items()}
    return {key: reason for key, reason in first.items() if reason.kind is not ReasonKind.BEHIND}


def _without_timeout(affinity: SliceAffinity, job_id: JobId) -> Job | None:
    job = affinity.get_job(job_id)
    if job is not None:
        job = copy(job)
        job.scheduling_timeout = 0.0
    return job


class _Gate:
    """Decides which pending tasks of each job compete in the cycle (`ready`), and why the others don't.

    `stopping_gangs`: the tasks of the gangs that are held back only because their last round is being stopped.
    `dependents`: by job, the tasks that are held back only until this job ends. `too_late`: the
    reasons why tasks whose scheduling timeout has expired were pending.
    """

    def __init__(self, cluster: Cluster, now: float, missing: MissingInputs) -> None:
        self._cluster = cluster
        self._now = now
        self._missing = missing
        self._jobs_with_missing_inputs = missing.jobs
        self.ready: TasksByJob = {}
        self.stopping_gangs: TasksByJob = {}
        self.held_back: dict[WaitingKey, tuple[Reason, ...]] = {}
        self.dependents: TasksByJob = {}
        self.timed_out: list[TaskId] = []
        self.too_late: dict[WaitingKey, Reason] = {}
        self.failed: list[TaskId] = []

    @property
    def competing(self) -> TasksByJob:
        """The tasks that compete in the cycle, and the gangs that only reserve workers."""
        return self.ready | self.stopping_gangs

    def admit(self, job: Job, tasks: list[Task]) -> None:
        """Divide the pending tasks of one job into `ready`, `held_back`, `timed_out`, and `failed` (can never run)."""
        states: dict[JobId, JobState | None] = {}
        if job.after:
            states = {dependency: self._job_state(dependency) for dependency in job.after}
            if any(state is None or state.is_failure for state in states.values()):
                self.failed += [task.id for task in tasks]
                return
        is_held, lacks_inputs = job.held_at is not None, job.id in self._jobs_with_missing_inputs
        reasons = self._reasons_of_job(job, states) if is_held or states or lacks_inputs else ()
        tasks = self._apply_max_running(job, tasks, reasons) if job.max_running else tasks
        if not (reasons or job.rounds or any(map(_ATTEMPTS, tasks))):
            self.ready[job.id] = tasks
            return
        unfinished = [dependency for dependency, state in states.items() if state is not JobState.SUCCEEDED]
        if len(unfinished) == len(reasons) == 1:
            self.dependents.setdefault(unfinished[0], []).extend(tasks)
        if reasons and has_timed_out(job, self._cluster.jobs.get, self._now):
            timed_out, tasks = split_timed_out(job, tasks, self._now)
            self.timed_out += [task.id for task in timed_out]
            self.too_late |= dict.fromkeys(
                (job.id if job.is_gang else task.id for task in timed_out), reasons[0]
            )
        if job.is_gang:
            stops = self._reasons_of_gang(job)
            if stops and not reasons and len(tasks) == job.replicas and self._stops_soon(job.id):
                self.stopping_gangs[job.id] = tasks
            self._hold_back_or_admit(job.id, job, tasks, (*reasons, *stops))
        else:
            for task in tasks:
                self._hold_back_or_admit(
                    task.id,
                    job,
                    [task],
                    (*reasons, *_reasons_of_live_attempts([task])) if task.attempts else reasons,
                )

    def hold_back(self, waits: Mapping[WaitingKey, Reason]) -> None:
        """Hold back gangs and tasks that were ready. `waits` has the reasons."""
        self.held_back |= {key: (reason,) for key, reason in waits.items()}
        for job in dict.fromkeys(map(job_of, waits)):
            remaining = [task for task in self.ready.pop(job) if job not in waits and task.id not in waits]
            if remaining:
                self.ready[job] = remaining

    def _apply_max_running(self, job: Job, tasks: list[Task], reasons: tuple[Reason, ...]) -> list[Task]:
        """Return the first tasks, as many as `max_running` allows, and hold back the others.

        A pending task whose previous attempt still lives counts as running. `reasons` hold back the whole job.
        """
        live_count = sum(map(_is_live, self._cluster.tasks_of(job.id)))
        room = max(0, job.max_running - live_count)
        excess = [task.id for task in tasks if not _is_live(task)][room:]
        text = f"at most {job.max_running} of the job's tasks run at a time"
        reason = Reason(kind=ReasonKind.THROTTLED, text=text, need=1, have=0)
        self.held_back |= dict.fromkeys(excess, (*reasons, reason))
        excess_set = set(excess)
        return [task for task in tasks if task.id not in excess_set]

    def _hold_back_or_admit(
        self, key: WaitingKey, job: Job, tasks: list[Task], reasons: tuple[Reason, ...]
    ) -> None:
        if not reasons:
            self.ready.setdefault(job.id, []).extend(tasks)
        elif tasks:
            self.held_back[key] = reasons

    def _reasons_of_job(self, job: Job, states: Mapping[JobId, JobState | None]) -> tuple[Reason, ...]:
        """Return why no task of a job may start; () if tasks may start. `states`: the states of its dependencies."""
        reasons = []
        if job.id in self._missing.files:
            reasons.append(Reason(kind=ReasonKind.INVALID, text=self._missing.files[job.id]))
        missing = self._missing.secrets.get(job.id)
        if missing:
            text = "; ".join(f"secret {each}" for each in missing)
            reasons.append(
                Reason(kind=ReasonKind.SECRET, text=text, need=len(job.secrets), refused=len(missing))
            )
        unfinished = [dependency for dependency, state in states.items() if state is not JobState.SUCCEEDED]
        if unfinished:
            text = f"waiting for {', '.join(unfinished)} to succeed"
            have = len(states) - len(unfinished)
            reasons.append(Reason(kind=ReasonKind.AFTER, text=text, need=len(states), have=have))
        if held := describe_hold(job):
            reasons.append(Reason(kind=ReasonKind.HELD, text=held))
        return tuple(reasons)

    def _reasons_of_gang(self, job: Job) -> list[Reason]:
        """Return why a gang can't start a new round: its last round has live attempts, or no verdict yet."""
        if job.rounds == 0:
            return []
        reasons = _reasons_of_live_attempts(self._cluster.tasks_of(job.id))
        if not reasons and job.rounds > job.settled_rounds:
            reasons.append(Reason(kind=ReasonKind.STOPPING, text="waiting for its last round to end"))
        return reasons

    def _stops_soon(self, job: JobId) -> bool:
        """Return whether no live attempt of a gang is unkillable or on a worker that is unhealthy or gone."""
        live = [attempt for _, attempt in self._cluster.live_attempts_of(job)]
        workers = [self._cluster.workers.get(attempt.worker) for attempt in live]
        are_healthy = all(each is not None and each.condition is WorkerCondition.HEALTHY for each in workers)
        return are_healthy and not any(attempt.unkillable for attempt in live)

    @cached_by_argument
    def _job_state(self, job: JobId) -> JobState | None:
        return self._cluster.job_state(job) if job in self._cluster.jobs else None


def _is_live(task: Task) -> bool:
    return any(attempt.live for attempt in task.attempts)


def _reasons_of_live_attempts(tasks: Iterable[Task]) -> list[Reason]:
    """Return one reason that counts the live attempts of these tasks; empty if none is live."""
    live = [(task, attempt) for task in tasks for attempt in task.attempts if attempt.live]
    if not live:
        return []
    task, attempt = live[0]
    attempts = f"{task.id}/attempt-{attempt.number}" if len(live) == 1 else f"{len(live)} attempts"
    workers = list_few(attempt.worker for _, attempt in live)
    return [Reason(kind=ReasonKind.STOPPING, text=f"waiting for {attempts} to end on {workers}")]


def _unconfirmed_stops(cluster: Cluster) -> dict[WorkerId, list[JobId | None]]:
    """Return the workers with stopping attempts or ghosts, with the job of each attempt, and None for ghosts."""
    found: dict[WorkerId, list[JobId | None]] = {
        worker: [*jobs] for worker, jobs in cluster.stopping_jobs().items()
    }
    for worker in cluster.ghosts:
        found.setdefault(worker, []).append(None)
    return found
