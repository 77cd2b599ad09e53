"""Figures of the report: all jobs, attempts and workers in the log, and sums over jobs."""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from statistics import median
from typing import ClassVar, NamedTuple

from msgspec import Struct, field

from iris_cli.core import AttemptId, Cluster, Job, JobId, JobState, Priority, WorkerId, values_in_memory
from iris_cli.core.evolve import replay
from iris_cli.core.grouping import group_pairs
from iris_cli.core.lifecycle.display import job_display, retry_count
from iris_cli.core.model.task import INFRASTRUCTURE, PROGRAM_FAILURES, EndReason, Task
from iris_cli.errors import NotFoundError
from iris_cli.journal.log.recovery import Damage, log_messages
from iris_cli.ops.outcomes.durations import first_start, job_ran, total_length
from iris_cli.ops.session import Session
from iris_cli.ops.views.failure import cause_words
from iris_cli.ops.views.report_fleet import WorkerHistory, WorkerLine
from iris_cli.ops.views.task_rows import last_lines
from iris_cli.ops.views.view import parse_moment

MAX_JOBS = 5_000
MAX_ATTEMPTS = 200_000
"""Maximum number of attempts on the page. A browser draws that many in about a second. Older jobs are omitted."""

HOST_REASONS = INFRASTRUCTURE | {EndReason.DISPATCH_FAILED}
"""End reasons of attempts for which the host may be responsible."""


class AttemptSpan(Struct, frozen=True, kw_only=True):
    """One attempt on its worker.

    `worker` is an index of `Report.workers`. Times are in seconds since the epoch. `over_at` is the time when the end
    was proven, or the end of the report. `chips` counts all chips of the worker for a TPU task, otherwise the task's
    GPUs. `reason` is None before the end. `started_at` is None before the start of the user's command.
    """

    task: int
    attempt: int
    worker: int
    chips: int
    placed_at: float
    started_at: float | None
    over_at: float
    reason: EndReason | None

    @property
    def seconds(self) -> float:
        return self.over_at - self.placed_at

    @property
    def chip_seconds(self) -> float:
        return self.chips * self.seconds

    @property
    def wasted(self) -> bool:
        """True if the attempt ended without success."""
        return self.reason not in (None, EndReason.OK)


class JobLine(Struct, frozen=True, kw_only=True):
    """One job.

    `waited`: seconds from the submission to the first start. For a job that has not started, `waited` ends at the job's
    end, or now. `retries` counts retries after a failure. `tries` also counts retries after a lost host.
    `preemptions` counts the charged losses of hosts, once for each round of a gang. `ran` is the result of `job_ran`.
    `again` is the ended job from which this job was resubmitted. `tried_again` are the jobs resubmitted from this job.
    `last_lines` are the last lines of the task that made the job fail.
    """

    OMITTED: ClassVar = ("tries", "last_lines", "attempts")
    id: JobId
    state: JobState
    display: str
    labels: dict[str, str]
    priority: Priority
    replicas: int
    gang: bool
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    waited: float = field(name="waited_seconds")
    ran: float | None = field(name="ran_seconds")
    retries: int
    tries: int
    preemptions: int
    why: str
    again: JobId | None = None
    tried_again: tuple[JobId, ...] = ()
    last_lines: tuple[str, ...] = ()
    attempts: tuple[AttemptSpan, ...]


class Report(Struct, frozen=True, kw_only=True):
    """Report from `since` to `at`. Times are clipped to this span. Jobs that ended before `since` are omitted.

    `older` is the number of older jobs omitted because of MAX_JOBS and MAX_ATTEMPTS. `workers` are ordered by slice.
    """

    name: str
    since: float
    at: float
    messages: tuple[str, ...]
    log_damage: Damage | None
    jobs: tuple[JobLine, ...]
    older: int
    workers: tuple[WorkerLine, ...]


def report(session: Session, since: str | None = None, *, every_job: bool = False) -> Report:
    """Return a report on the whole log with its archive, or from the time `since` on. Takes no lock.

    `since` is a time as accepted by `parse_moment`. The log is read only from the last snapshot before `since`. With
    `every_job`, ignore MAX_JOBS and MAX_ATTEMPTS. Raises UsageError, and NotFoundError if no log exists.
    """
    now = session.clock.now()
    begin = None if since is None else parse_moment(since, now)
    state = session.state
    start, reading = (
        (Cluster(), state.read_history(archive=True)) if begin is None else state.history_since(begin)
    )
    fleet = WorkerHistory(start)
    with session.progress(lambda: ("reading the log", *reading.progress)):
        cluster = replay(fleet.record(reading), start)
    if not reading.log_exists:
        if reading.damage is not None:
            raise reading.damage.error()
        raise NotFoundError(
            f"there is no event log in {session.state.path}", hint="name a directory with --state-dir"
        )
    begin = min(fleet.begin if begin is None else begin, now)
    workers = fleet.lines(begin, now)
    indexes = {each.id: index for index, each in enumerate(workers)}
    jobs, older = _jobs(cluster, _Span(begin, now), fleet, indexes, every_job=every_job)
    return Report(
        name=cluster.name or session.config.name,
        since=begin,
        at=now,
        messages=log_messages(reading.warnings, reading.damage),
        log_damage=reading.damage,
        jobs=jobs,
        older=older,
        workers=workers,
    )


class _Span(NamedTuple):
    """The reported span. Times are clipped to this span, so that wrong clocks don't extend it."""

    begin: float
    end: float

    def clip(self, at: float) -> float:
        return min(max(at, self.begin), self.end)


def _jobs(
    cluster: Cluster, span: _Span, fleet: WorkerHistory, indexes: dict[WorkerId, int], *, every_job: bool
) -> tuple[tuple[JobLine, ...], int]:
    """Return the newest jobs within the limits, in order of submission, and the number of omitted jobs."""
    reported = [job for job in values_in_memory(cluster.jobs) if job.end is None or job.end.at >= span.begin]
    lines: list[JobLine] = []
    attempts_left = MAX_ATTEMPTS
    for job in sorted(reported, key=attrgetter("order"), reverse=True):
        tasks = cluster.tasks_of(job.id)
        attempts_left -= sum(len(task.attempts) for task in tasks)
        if lines and not every_job and (attempts_left < 0 or len(lines) == MAX_JOBS):
            break
        attempts = tuple(_attempt_spans(tasks, job, span, fleet, indexes))
        lines.append(_line(cluster, job, tasks, attempts, span.end))
    return tuple(reversed(lines)), len(reported) - len(lines)


def _line(
    cluster: Cluster, job: Job, tasks: list[Task], attempts: tuple[AttemptSpan, ...], now: float
) -> JobLine:
    started_at = first_start(tasks)
    ended_at = job.end.at if job.end else None
    until = now if ended_at is None else ended_at
    return JobLine(
        id=job.id,
        state=cluster.job_state(job.id),
        display=job_display(cluster, job.id),
        labels=dict(job.labels),
        priority=job.priority,
        replicas=job.replicas,
        gang=job.is_gang,
        submitted_at=job.submitted_at,
        started_at=started_at,
        ended_at=ended_at,
        waited=max(0.0, (until if started_at is None else started_at) - job.submitted_at),
        ran=job_ran(job, tasks, now),
        retries=retry_count(job, tasks),
        tries=retry_count(job, tasks, PROGRAM_FAILURES | INFRASTRUCTURE),
        preemptions=job.preempted_rounds if job.is_gang else sum(task.preemptions for task in tasks),
        why="held" if job.end is None and job.held_at is not None else cause_words(cluster, job),
        again=job.again,
        tried_again=job.tried_again,
        last_lines=last_lines(cluster, job),
        attempts=attempts,
    )


def _attempt_spans(
    tasks: Iterable[Task], job: Job, span: _Span, fleet: WorkerHistory, indexes: dict[WorkerId, int]
) -> Iterator[AttemptSpan]:
    on_tpu = job.resources.device_type == "tpu"
    for task in tasks:
        for each in task.attempts:
            over_at = span.end if each.ended_at is None else each.ended_at
            if over_at < span.begin or each.worker not in indexes:
                continue
            placed_at = span.clip(each.assigned_at)
            started_at = None if each.started_at is None else max(placed_at, span.clip(each.started_at))
            yield AttemptSpan(
                task=task.index,
                attempt=each.number,
                worker=indexes[each.worker],
                chips=fleet.chips[AttemptId(task.id, each.number)] if on_tpu else len(each.gpus),
                placed_at=placed_at,
                started_at=started_at,
                over_at=max(placed_at, started_at or 0.0, span.clip(over_at)),
                reason=each.end.reason if each.end else None,
            )


class Sum(Struct, frozen=True, kw_only=True):
    """Sum over the jobs of a report, in seconds. `wasted`: chip-seconds of attempts that ended without success.

    `waited_*`: median and longest time from submission to the first start.
    """

    OMITTED: ClassVar = ("name",)
    name: str
    jobs: int
    task_seconds: float
    chip_seconds: float
    wasted: float = field(name="chip_seconds_in_vain")
    waited_median: float = field(name="waited_median_seconds")
    waited_most: float = field(name="waited_most_seconds")


class Ends(Struct, frozen=True, kw_only=True):
    """Attempts that ended for the same reason, or that still run (`reason` None). Times are in seconds."""

    reason: EndReason | None
    attempts: int
    task_seconds: float
    chip_seconds: float


class Use(Struct, frozen=True, kw_only=True):
    """Use of one worker: seconds busy, number of attempts, and number of attempts lost to the host."""

    FLATTENED: ClassVar = ("worker",)
    worker: WorkerLine
    busy_seconds: float
    attempts: int
    lost: int


def total(jobs: Iterable[JobLine], name: str = "") -> Sum:
    jobs = list(jobs)
    attempts = [each for job in jobs for each in job.attempts]
    waited = [job.waited for job in jobs]
    return Sum(
        name=name,
        jobs=len(jobs),
        task_seconds=sum(each.seconds for each in attempts),
        chip_seconds=sum(each.chip_seconds for each in attempts),
        wasted=sum(each.chip_seconds for each in attempts if each.wasted),
        waited_median=median(waited) if waited else 0.0,
        waited_most=max(waited, default=0.0),
    )


def by_label(jobs: Iterable[JobLine]) -> list[Sum]:
    """Return one sum per label. A job counts once for each of its labels, or for '' if it has no label."""
    return _sums_by(jobs, lambda job: [f"{key}={value}" for key, value in job.labels.items()] or [""])


def by_priority(jobs: Iterable[JobLine]) -> list[Sum]:
    return _sums_by(jobs, lambda job: [job.priority])


def ends(jobs: Iterable[JobLine]) -> list[Ends]:
    """Return the ends of attempts by reason, most frequent first."""
    by_reason = group_pairs((each.reason, each) for job in jobs for each in job.attempts)
    found = [
        Ends(
            reason=reason,
            attempts=len(attempts),
            task_seconds=sum(each.seconds for each in attempts),
            chip_seconds=sum(each.chip_seconds for each in attempts),
        )
        for reason, attempts in by_reason.items()
    ]
    return sorted(found, key=lambda each: (-each.attempts, each.reason or ""))


def uses(report: Report) -> list[Use]:
    """Return the use of each worker, in the order of `report.workers`."""
    by_worker = group_pairs((each.worker, each) for job in report.jobs for each in job.attempts)
    attempts_of = (by_worker.get(index, []) for index in range(len(report.workers)))
    return [
        Use(
            worker=worker,
            busy_seconds=total_length((each.placed_at, each.over_at) for each in attempts),
            attempts=len(attempts),
            lost=sum(each.reason in HOST_REASONS for each in attempts),
        )
        for worker, attempts in zip(report.workers, attempts_of, strict=True)
    ]


def _sums_by(jobs: Iterable[JobLine], names: Callable[[JobLine], Iterable[str]]) -> list[Sum]:
    """Return a sum for each name. `names` returns the names under which a job counts."""
    by_name = group_pairs((name, job) for job in jobs for name in names(job))
    sums = [total(named_jobs, name) for name, named_jobs in by_name.items()]
    return sorted(sums, key=lambda each: (-each.chip_seconds, -each.task_seconds, each.name))
