"""Demand: pending tasks and gangs for which no existing worker will ever have room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from iris_cli.core import Amounts, Job, JobId, Limits, ScaleGroup, Signature, Task, TaskId, Worker, WorkerId
from iris_cli.core.autoscaling.groups import GroupState, coming
from iris_cli.core.constraints import Constraint, contradiction_in, normalize_constraints
from iris_cli.core.resources import DEFAULT_RESOURCES, Resources
from iris_cli.core.scheduling import SchedulingResult, find_assignments
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.explain.explanation import UnconfirmedStops
from iris_cli.core.scheduling.explain.verdicts import fits
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.gangs import why_malformed
from iris_cli.core.scheduling.order import TasksByJob, group_by_job
from iris_cli.core.scheduling.placement import (
    ZONE,
    Location,
    Requirement,
    Shape,
    Sites,
    shape_of,
    shared_location,
)
from iris_cli.core.scheduling.reasons import ReasonKind, WaitingKey
from iris_cli.core.scheduling.sets import positions_of


class IdleSite(NamedTuple):
    """Idle groups that a gang may use together: their number, their workers, and the `place` that they share."""

    place: Location
    slices: int
    workers: frozenset[WorkerId]


class IdleWorkers:
    """The workers without attempts and placements. A worker kept for one gang is not kept for another gang."""

    def __init__(self, result: SchedulingResult, workers: Sequence[Worker], now: float) -> None:
        self._workers = workers
        self._now = now
        self.placed = frozenset(each.worker for each in result.assignments)
        self._kept: set[WorkerId] = set()
        self.kept_for: dict[JobId, tuple[IdleSite, ...]] = {}

    def keep_for(self, job: Job) -> tuple[IdleSite, ...]:
        """Keep idle groups for a gang. Return them by site, the site with most groups first."""
        context = SchedulingContext(self._fleet, [Amounts.needed(job.resources)])
        requirement = Requirement(job, context)
        shape, sites = requirement.shape, Sites(self._fleet, requirement)
        assert shape is not None
        free = requirement.candidates(context)
        groups = self._fleet.groups(shape.group_by).groups
        names = {
            group.number: [self._fleet.ids[position] for position in positions_of(group.mask & free)]
            for group in groups
            if fits(group, shape, free)
        }
        unkept = [number for number, those in names.items() if self._kept.isdisjoint(those)]
        found = []
        for site in sites.by_location(unkept, sites.required_depth).values():
            zone = sites.largest_site(site, ZONE)
            chosen = [*zone, *(number for number in site if number not in zone)][: shape.groups - 1]
            place = shared_location(sites.location_of(number) for number in chosen)
            workers = frozenset(worker for number in chosen for worker in names[number])
            found.append(IdleSite(place, len(chosen), workers))
            self._kept |= workers
        self.kept_for[job.id] = tuple(sorted(found, key=lambda site: -site.slices))
        return self.kept_for[job.id]

    @cached_property
    def _fleet(self) -> Fleet:
        idle = [each for each in self._workers if not each.claims and each.id not in self.placed]
        return Fleet(idle, self._now, Limits(), ())


class DemandEntry(Struct, kw_only=True):
    """One entry of the demand: missing room for one task, or for all tasks of a gang together.

    `constraints` are the job's constraints; `preemptible` and `required_regions` are derived from them (None: any). A
    gang has a `shape`, and needs `slices` new slices. It needs fewer slices than groups if some groups are `idle` or
    coming at one site. All its slices must have one device variant and be in one region (with `spread`: in any
    regions). `one_vm`: a TPU task uses only slices of one VM. `timeout`: the time limit of a task in seconds (0: none).
    An entry with an `invalid_reason` can never be served.
    """

    task_ids: tuple[TaskId, ...]
    resources: Resources = DEFAULT_RESOURCES
    shape: Shape | None = None
    slices: int = 1
    spread: bool = False
    one_vm: bool = False
    timeout: float = 0.0
    idle: tuple[IdleSite, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    tolerations: tuple[str, ...] = ()
    preemptible: bool | None = None
    required_regions: frozenset[str] | None = None
    invalid_reason: str = ""

    @property
    def key(self) -> TaskId | JobId:
        """The scheduler's key: the id of a task outside a gang, or the id of a gang's job."""
        return self.task_ids[0].job if self.shape is not None else self.task_ids[0]


class Survey(Struct, frozen=True, kw_only=True):
    """The demand, the workers with placements, and the workers kept for gangs that need more workers."""

    entries: tuple[DemandEntry, ...]
    placed: frozenset[WorkerId]
    kept: Mapping[JobId, tuple[IdleSite, ...]]


def compute_demand_entries(
    pending_tasks: Iterable[Task] | TasksByJob,
    workers: Iterable[Worker],
    get_job: Callable[[JobId], Job | None],
    now: float,
    *,
    groups: Sequence[GroupState | ScaleGroup] = (),
    backoff_max: float = 600.0,
    unconfirmed_stops: UnconfirmedStops = (),
) -> list[DemandEntry]:
    """Return the demand after a dry run of the scheduler, in the order of its queue.

    The booting slices of `groups` count as present: a task that waits only for a booting slice is no demand. A gang is
    one entry; each task of other jobs is an entry. The other arguments are as in `find_assignments`.
    """
    tasks = group_by_job(pending_tasks)
    present = [*workers, *coming(groups)]
    result = find_assignments(
        tasks,
        present,
        without_preferences(get_job),
        now,
        gang_reserve_after=0.0,
        backoff_max=backoff_max,
        unconfirmed_stops=unconfirmed_stops,
    )
    return list(survey(result, present, tasks, get_job, now).entries)


def without_preferences(get_job: Callable[[JobId], Job | None]) -> Callable[[JobId], Job | None]:
    """Return `get_job` without preferences: a preferred slice may have been requested for another job."""

    def plain(job_id: JobId) -> Job | None:
        job = get_job(job_id)
        if job is None or all(each.required for each in job.constraints):
            return job
        if job_id not in known:
            known[job_id] = indifferent = copy(job)
            indifferent.constraints = tuple(each for each in job.constraints if each.required)
        return known[job_id]

    known: dict[JobId, Job] = {}
    return plain


def survey(
    result: SchedulingResult,
    workers: Sequence[Worker],
    tasks: Mapping[JobId, list[Task]],
    get_job: Callable[[JobId], Job | None],
    now: float,
    held: Iterable[WaitingKey] = (),
) -> Survey:
    """Return the demand after the dry run `result` of `tasks`. `held` tasks and gangs wait for their own slices."""
    leftovers, alone = IdleWorkers(result, workers, now), _OneVmSlices(workers, now)
    entries = []
    for key in (*result.waiting, *held):
        job_id = key.job if isinstance(key, TaskId) else key
        job = get_job(job_id)
        if job is None:
            continue
        those = tasks[job_id] if job.is_gang else []
        malformed = why_malformed(job, those) if job.is_gang else None
        if malformed is not None and malformed.kind is not ReasonKind.INVALID:
            continue  # the whole gang is requeued later
        ids = (key,) if isinstance(key, TaskId) else tuple(task.id for task in those)
        entry = entry_of(job, ids, malformed.text if malformed is not None else "")
        if job.resources.device_type == "tpu" and not job.is_gang:
            entry.one_vm = alone.takes_one_vm(job)
        if entry.slices > 1 and not entry.invalid_reason:
            idle = leftovers.keep_for(job)
            entry.slices, entry.idle = entry.slices - (idle[0].slices if idle else 0), idle
        entries.append(entry)
    return Survey(entries=tuple(entries), placed=leftovers.placed, kept=leftovers.kept_for)


class _OneVmSlices:
    """Decides whether a single TPU task waits for slices of one VM: only if a suitable slice of one VM exists."""

    def __init__(self, workers: Sequence[Worker], now: float) -> None:
        self._workers = workers
        self._now = now
        self._known: dict[Signature, bool] = {}

    def takes_one_vm(self, job: Job) -> bool:
        signature = job.signature
        if signature not in self._known:
            context = SchedulingContext(self._fleet, [Amounts.needed(job.resources)])
            found = Requirement(job, context).one_vm_limit != self._fleet.all_workers
            self._known[signature] = found
        return self._known[signature]

    @cached_property
    def _fleet(self) -> Fleet:
        return Fleet(self._workers, self._now, Limits(), ())


def entry_of(job: Job, tasks: tuple[TaskId, ...], invalid: str = "") -> DemandEntry:
    """Return the demand of tasks of a job, without regard to the groups. `invalid`: why the demand can't be served."""
    preemptible, regions = None, None
    try:
        intent = normalize_constraints(job.constraints)
        preemptible, regions = intent.preemptible, intent.required_regions
        invalid = invalid or contradiction_in(job.constraints)
    except ValueError as error:
        invalid = invalid or str(error)
    shape = shape_of(job)
    return DemandEntry(
        task_ids=tasks,
        resources=job.resources,
        shape=shape,
        slices=shape.groups if shape is not None else 1,
        spread=job.spread,
        timeout=job.timeout,
        constraints=job.constraints,
        tolerations=job.tolerations,
        preemptible=preemptible,
        required_regions=regions,
        invalid_reason=invalid,
    )
