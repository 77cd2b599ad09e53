"""Demand: pending tasks and gangs for which no existing worker will ever have room."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cache, cached_property
from typing import NamedTuple

from msgspec import Struct

from iris_cli.core import Amounts, Job, JobId, Limits, ScaleGroup, Signature, Task, TaskId, Worker, WorkerId
from iris_cli.core.autoscaling.groups import GroupState, booting_workers
from iris_cli.core.constraints import Constraint, contradiction_in, normalize_constraints
from iris_cli.core.resources import DEFAULT_RESOURCES, Resources
from iris_cli.core.scheduling import SchedulingResult, find_assignments, placement
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.explain.explanation import UnconfirmedStops
from iris_cli.core.scheduling.explain.group_checks import fits
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.gangs import why_malformed
from iris_cli.core.scheduling.order import TasksByJob, group_by_job
from iris_cli.core.scheduling.placement import Location, Requirement, Shape, Sites, shape_of
from iris_cli.core.scheduling.reasons import ReasonKind, WaitingKey, job_of
from iris_cli.core.scheduling.sets import positions_of


class IdleSite(NamedTuple):
    """Idle groups that a gang may use together, because they share the `location`.

    `groups` is their number; `workers` are their workers that suit the gang.
    """

    location: Location
    groups: int
    workers: frozenset[WorkerId]


class Demand:
    """The entries of the demand after a dry run of the scheduler, and the idle groups that are kept for gangs.

    Idle groups are kept for a gang that needs more groups than exist, until slices are created. `placed`: the workers
    on which the dry run has placed tasks. `kept`: the idle groups kept for each gang.
    """

    def __init__(self, result: SchedulingResult, workers: Sequence[Worker], now: float) -> None:
        self.entries: list[DemandEntry] = []
        self._workers = workers
        self._now = now
        self._one_vm: dict[Signature, bool] = {}
        self._kept_workers: set[WorkerId] = set()
        self.placed = frozenset(each.worker for each in result.assignments)
        self.kept: dict[JobId, tuple[IdleSite, ...]] = {}

    def keep_idle_groups(self, job: Job) -> tuple[IdleSite, ...]:
        """Keep idle groups for a gang, except groups kept for another gang. Return their sites, the largest first."""
        fleet = self._idle_fleet
        context = SchedulingContext(fleet, [Amounts.needed(job.resources)])
        requirement = Requirement(job, context)
        shape, sites = requirement.shape, Sites(fleet, requirement)
        assert shape is not None
        fitting = requirement.candidates(context)
        workers = {
            group.number: [fleet.ids[position] for position in positions_of(group.mask & fitting)]
            for group in fleet.groups(shape.group_by).groups
            if fits(group, shape, fitting)
        }
        free_groups = [number for number, names in workers.items() if self._kept_workers.isdisjoint(names)]
        found = []
        for site in sites.by_location(free_groups, sites.required_depth).values():
            zone = sites.largest_site(site, placement.ZONE)
            chosen_groups = [*zone, *(number for number in site if number not in zone)][: shape.groups - 1]
            location = placement.shared_location(sites.locations[number] for number in chosen_groups)
            names = frozenset(name for number in chosen_groups for name in workers[number])
            found.append(IdleSite(location, len(chosen_groups), names))
            self._kept_workers |= names
        self.kept[job.id] = tuple(sorted(found, key=lambda site: -site.groups))
        return self.kept[job.id]

    def needs_one_vm(self, job: Job) -> bool:
        """Return whether a single TPU task may use only slices of one VM, because a suitable slice of one VM exists."""
        if job.signature not in self._one_vm:
            context = SchedulingContext(self._fleet, [Amounts.needed(job.resources)])
            selected = Requirement(job, context).selected
            self._one_vm[job.signature] = bool(selected & self._fleet.single_vms)
        return self._one_vm[job.signature]

    @cached_property
    def _fleet(self) -> Fleet:
        return Fleet(self._workers, self._now, Limits(), ())

    @cached_property
    def _idle_fleet(self) -> Fleet:
        idle = [each for each in self._workers if not each.claims and each.id not in self.placed]
        return Fleet(idle, self._now, Limits(), ())


def count_groups(job: Job, workers: Iterable[Worker], location: Location, now: float) -> int:
    """Return the number of groups of these workers, busy or idle, that a gang could use at this location."""
    fleet = Fleet(workers, now, Limits(), ())
    context = SchedulingContext(fleet, [Amounts.needed(job.resources)])
    requirement = Requirement(job, context)
    shape, sites = requirement.shape, Sites(fleet, requirement)
    assert shape is not None
    suitable = requirement.schedulable & context.workers_of_size(requirement.need)
    found = [group.number for group in fleet.groups(shape.group_by).groups if fits(group, shape, suitable)]
    depth = sites.required_depth
    return len(sites.by_location(found, depth).get(location[:depth], ()))


class DemandEntry(Struct, kw_only=True):
    """One entry of the demand: missing room for one task, or for all tasks of a gang together.

    `constraints` are the job's constraints; `preemptible` and `required_regions` are derived from them (None: any). A
    gang has a `shape`, and needs `slices` new slices: as many as it has groups, minus the groups of its largest `idle`
    site. All its slices must have one device variant and be in one region (with `spread`: in any regions). `one_vm`: a
    TPU task uses only slices of one VM. `timeout`: the time limit of a task in seconds (0: none). An entry with an
    `invalid_reason` can never be served.
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

    The booting slices of `groups` count as ready, so tasks that wait only for them are not in the demand. A gang is one
    entry; each task of other jobs is an entry. For the other arguments see `find_assignments`.
    """
    tasks = group_by_job(pending_tasks)
    expected_workers = [*workers, *booting_workers(groups)]
    result = find_assignments(
        tasks,
        expected_workers,
        drop_preferences(get_job),
        now,
        gang_reserve_after=0.0,
        backoff_max=backoff_max,
        unconfirmed_stops=unconfirmed_stops,
    )
    return compute_demand(result, expected_workers, tasks, get_job, now).entries


def drop_preferences(get_job: Callable[[JobId], Job | None]) -> Callable[[JobId], Job | None]:
    """Return a `get_job` for jobs without preferences, which could place a job on a slice requested for another job."""

    @cache
    def get_job_without_preferences(job_id: JobId) -> Job | None:
        job = get_job(job_id)
        if job is None or all(each.required for each in job.constraints):
            return job
        job = copy(job)
        job.constraints = tuple(each for each in job.constraints if each.required)
        return job

    return get_job_without_preferences


def compute_demand(
    result: SchedulingResult,
    workers: Sequence[Worker],
    tasks: Mapping[JobId, list[Task]],
    get_job: Callable[[JobId], Job | None],
    now: float,
    waiting_for_own_slices: Iterable[WaitingKey] = (),
) -> Demand:
    """Return the demand after the dry run `result` with these workers and pending tasks.

    `waiting_for_own_slices`: tasks and gangs that did not compete in the dry run, because they wait for slices that are
    created for them.
    """
    demand = Demand(result, workers, now)
    for key in (*result.waiting, *waiting_for_own_slices):
        job_id = job_of(key)
        job = get_job(job_id)
        if job is None:
            continue
        gang_tasks = tasks[job_id] if job.is_gang else []
        malformed = why_malformed(job, gang_tasks) if job.is_gang else None
        if malformed is not None and malformed.kind is not ReasonKind.INVALID:
            continue  # a gang is in the demand only when all its tasks are pending
        ids = (key,) if isinstance(key, TaskId) else tuple(task.id for task in gang_tasks)
        entry = entry_of(job, ids, malformed.text if malformed is not None else "")
        if job.resources.device_type == "tpu" and not job.is_gang:
            entry.one_vm = demand.needs_one_vm(job)
        if entry.slices > 1 and not entry.invalid_reason:
            entry.idle = demand.keep_idle_groups(job)
            entry.slices -= entry.idle[0].groups if entry.idle else 0
        demand.entries.append(entry)
    return demand


def entry_of(job: Job, tasks: tuple[TaskId, ...], invalid_reason: str = "") -> DemandEntry:
    """Return the demand of tasks of a job. `invalid_reason`: why it can't be served; "" if it can."""
    preemptible, regions = None, None
    try:
        intent = normalize_constraints(job.constraints)
        preemptible, regions = intent.preemptible, intent.required_regions
        invalid_reason = invalid_reason or contradiction_in(job.constraints)
    except ValueError as error:
        invalid_reason = invalid_reason or str(error)
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
        invalid_reason=invalid_reason,
    )
