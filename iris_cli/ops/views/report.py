"""Figures about all jobs and workers in the log, for the report page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from statistics import median

from msgspec import Struct

from iris_cli.core import AttemptId, Cluster, Job, JobId, JobState, Priority, WorkerId, in_memory
from iris_cli.core.evolve import replay
from iris_cli.core.lifecycle.display import job_display, retries_made
from iris_cli.core.model.task import INFRASTRUCTURE, PROGRAM_FAILURES, EndReason, Task
from iris_cli.errors import NotFoundError
from iris_cli.journal.log.recovery import Damage, banner
from iris_cli.ops.outcomes.durations import job_ran
from iris_cli.ops.session import Session
from iris_cli.ops.views.failure import cause_words
from iris_cli.ops.views.report_fleet import Fleet, WorkerLine
from iris_cli.ops.views.task_rows import last_lines
from iris_cli.ops.views.view import parse_moment

MOST_JOBS = 5_000
MOST_STRETCHES = 200_000
"""Most attempts that a browser draws in about a second; with more, only the newest jobs are listed."""


class Stretch(Struct, frozen=True, kw_only=True):
    """One attempt on its worker (`worker` is its index in the worker list), in seconds since the epoch.

    It holds its chips (all chips of the worker for a TPU task, else its GPUs) from `placed_at` until its end was
    proven, `over_at`; `reason` is None until then. `started_at` is the start of the user's command, or None.
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
    def in_vain(self) -> bool:
        """True if the attempt ended without success."""
        return self.reason not in (None, EndReason.OK)


class JobLine(Struct, frozen=True, kw_only=True):
    """One job. `waited`: seconds from submission to the first start, or to its end, or until now.

    `retries` counts retries after a failure, `tries` includes those after a lost host; `preemptions` counts
    charged host losses: per round of a gang, otherwise per attempt. `ran` is the result of `job_ran`. `again`
    is the ended job that it was resubmitted from, `tried_again` are the jobs resubmitted from it.
    `last_lines` are from the task that failed the job.
    """

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
    waited: float
    ran: float | None
    retries: int
    tries: int
    preemptions: int
    why: str
    again: JobId | None = None
    tried_again: tuple[JobId, ...] = ()
    last_lines: tuple[str, ...] = ()
    stretches: tuple[Stretch, ...]


class Report(Struct, frozen=True, kw_only=True):
    """Report from `since` to `at`. Times are cut to this span; jobs that ended before it are omitted.

    `older` counts the jobs that had no room. `workers` are ordered by slice.
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
    """Report on the whole log with its archive, or on the span since a time. Takes no lock.

    `every_job` includes jobs that exceed the limits of a page.

    `since` is a time as accepted by `look`: only lines after the snapshot before it are read, since jobs that
    ended earlier are not needed. Raises NotFoundError if there is no log, UsageError.
    """
    now = session.clock.now()
    wanted = None if since is None else parse_moment(since, now)
    state = session.state
    start, reading = (Cluster(), state.past(archive=True)) if wanted is None else state.since(wanted)
    fleet = Fleet(start)
    with session.progress(lambda: ("reading the log", *reading.progress)):
        cluster = replay(fleet.watched(reading), start)
    if not reading.begun:
        if reading.damage is not None:
            raise reading.damage.error()
        raise NotFoundError(
            f"there is no event log in {session.state.path}", hint="name a directory with --state-dir"
        )
    begin = min(fleet.begin if wanted is None else wanted, now)
    workers = fleet.lines(begin, now)
    places = {each.id: place for place, each in enumerate(workers)}
    jobs, older = _jobs(cluster, _Clip(begin, now), fleet, places, every_job=every_job)
    return Report(
        name=cluster.name or session.config.name,
        since=begin,
        at=now,
        messages=banner(reading.warnings, reading.damage),
        log_damage=reading.damage,
        jobs=jobs,
        older=older,
        workers=workers,
    )


class _Clip:
    """Reported span, to which times are clipped, so that wrong clocks don't extend it."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin, self.end = begin, end

    def __call__(self, at: float) -> float:
        return min(max(at, self.begin), self.end)


def _jobs(
    cluster: Cluster, clip: _Clip, fleet: Fleet, places: dict[WorkerId, int], *, every_job: bool
) -> tuple[tuple[JobLine, ...], int]:
    """Return the newest jobs within the limits, in order of submission, and the number of omitted jobs."""
    told = [job for job in in_memory(cluster.jobs) if job.end is None or job.end.at >= clip.begin]
    lines: list[JobLine] = []
    room = MOST_STRETCHES
    for job in sorted(told, key=attrgetter("order"), reverse=True):
        tasks = cluster.tasks_of(job.id)
        room -= sum(len(task.attempts) for task in tasks)
        if lines and not every_job and (room < 0 or len(lines) == MOST_JOBS):
            break
        stretches = tuple(_stretches(tasks, job, clip, fleet, places))
        lines.append(_line(cluster, job, tasks, stretches, clip.end))
    return tuple(reversed(lines)), len(told) - len(lines)


def _line(
    cluster: Cluster, job: Job, tasks: list[Task], stretches: tuple[Stretch, ...], now: float
) -> JobLine:
    started = [each.started_at for task in tasks for each in task.attempts if each.started_at is not None]
    started_at = min(started, default=None)
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
        retries=retries_made(job, tasks),
        tries=retries_made(job, tasks, PROGRAM_FAILURES | INFRASTRUCTURE),
        preemptions=job.preempted_rounds if job.is_gang else sum(task.preemptions for task in tasks),
        why=cause_words(cluster, job),
        again=job.again,
        tried_again=job.tried_again,
        last_lines=last_lines(cluster, job),
        stretches=stretches,
    )


def _stretches(
    tasks: Iterable[Task], job: Job, clip: _Clip, fleet: Fleet, places: dict[WorkerId, int]
) -> Iterator[Stretch]:
    """Yield the attempts within the reported span."""
    on_tpu = job.resources.device_type == "tpu"
    for task in tasks:
        for each in task.attempts:
            over_at = clip.end if each.ended_at is None else each.ended_at
            if over_at < clip.begin or each.worker not in places:
                continue
            placed_at = clip(each.assigned_at)
            started_at = None if each.started_at is None else max(placed_at, clip(each.started_at))
            attempt_id = AttemptId(task.id, each.number)
            yield Stretch(
                task=task.index,
                attempt=each.number,
                worker=places[each.worker],
                chips=fleet.chips_of(attempt_id) if on_tpu else len(each.gpus),
                placed_at=placed_at,
                started_at=started_at,
                over_at=max(placed_at, started_at or 0.0, clip(over_at)),
                reason=each.end.reason if each.end else None,
            )


# Sums over the jobs of a report: chip-hours, waiting times, ends of attempts, use of workers.


LOSSES = INFRASTRUCTURE | {EndReason.DISPATCH_FAILED}
"""End reasons that may be caused by a host."""


class Sum(Struct, frozen=True, kw_only=True):
    """Sum over several jobs, in seconds. `in_vain`: chip-seconds of attempts that ended without success."""

    name: str
    jobs: int
    task_seconds: float
    chip_seconds: float
    in_vain: float
    waited_median: float
    waited_most: float


class Ends(Struct, frozen=True, kw_only=True):
    """Attempts that ended for one reason, or that still run (`reason` None). Times in seconds."""

    reason: EndReason | None
    attempts: int
    task_seconds: float
    chip_seconds: float


class Use(Struct, frozen=True, kw_only=True):
    """Use of one worker: seconds busy, number of attempts, and number of attempts lost to the host."""

    worker: WorkerLine
    busy_seconds: float
    attempts: int
    lost: int


def total(jobs: Iterable[JobLine], name: str = "") -> Sum:
    """Return the sum over these jobs."""
    jobs = list(jobs)
    stretches = [each for job in jobs for each in job.stretches]
    waited = [job.waited for job in jobs]
    return Sum(
        name=name,
        jobs=len(jobs),
        task_seconds=sum(each.seconds for each in stretches),
        chip_seconds=sum(each.chip_seconds for each in stretches),
        in_vain=sum(each.chip_seconds for each in stretches if each.in_vain),
        waited_median=median(waited) if waited else 0.0,
        waited_most=max(waited, default=0.0),
    )


def by_label(jobs: Iterable[JobLine]) -> list[Sum]:
    """Return one sum per label. A job counts once for each of its labels, or for '' if it has no label."""
    return _by(jobs, lambda job: [f"{key}={value}" for key, value in job.labels.items()] or [""])


def by_priority(jobs: Iterable[JobLine]) -> list[Sum]:
    """Return one sum per priority in use."""
    return _by(jobs, lambda job: [job.priority])


def ends(jobs: Iterable[JobLine]) -> list[Ends]:
    """Return the ends of attempts by reason, most frequent first."""
    alike: dict[EndReason | None, list[Stretch]] = {}
    for job in jobs:
        for each in job.stretches:
            alike.setdefault(each.reason, []).append(each)
    found = [
        Ends(
            reason=reason,
            attempts=len(those),
            task_seconds=sum(each.seconds for each in those),
            chip_seconds=sum(each.chip_seconds for each in those),
        )
        for reason, those in alike.items()
    ]
    return sorted(found, key=lambda each: (-each.attempts, each.reason or ""))


def uses(report: Report) -> list[Use]:
    """Return the use of each worker, in their order."""
    there: list[list[Stretch]] = [[] for _ in report.workers]
    for job in report.jobs:
        for each in job.stretches:
            there[each.worker].append(each)
    return [
        Use(
            worker=worker,
            busy_seconds=_covered(those),
            attempts=len(those),
            lost=sum(each.reason in LOSSES for each in those),
        )
        for worker, those in zip(report.workers, there, strict=True)
    ]


def _by(jobs: Iterable[JobLine], names: Callable[[JobLine], Iterable[str]]) -> list[Sum]:
    alike: dict[str, list[JobLine]] = {}
    for job in jobs:
        for name in names(job):
            alike.setdefault(name, []).append(job)
    sums = [total(those, name) for name, those in alike.items()]
    return sorted(sums, key=lambda each: (-each.chip_seconds, -each.task_seconds, each.name))


def _covered(stretches: list[Stretch]) -> float:
    """Return the seconds covered by at least one attempt."""
    covered, until = 0.0, 0.0
    for each in sorted(stretches, key=lambda each: each.placed_at):
        covered += max(0.0, each.over_at - max(each.placed_at, until))
        until = max(until, each.over_at)
    return covered
