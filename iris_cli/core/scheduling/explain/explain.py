"""Explain why tasks and gangs are pending, from the sets of workers with which the cycle decided.

Each worker (for a gang, each group) is counted once, under the first kind of reason that rejects it. If no worker is
suitable (device, constraints, taints, shape), the reason is the criterion that rejects the last workers. Otherwise the
reasons are all kinds that make suitable workers unavailable now.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial, reduce
from math import inf
from operator import or_

from iris_cli.core import (
    AttemptId,
    AttemptState,
    Cluster,
    Job,
    JobId,
    WorkerId,
    cached_by_argument,
    parent_of,
)
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.explain import explanation, group_checks, wording
from iris_cli.core.scheduling.explain.change import single_change
from iris_cli.core.scheduling.explain.explanation import CycleRecord, ExpectedStart, ends_with, without_claims
from iris_cli.core.scheduling.explain.group_checks import Case, GroupCheck, Rejection, RejectionCounts
from iris_cli.core.scheduling.order import TasksByJob
from iris_cli.core.scheduling.placement import REGION, VARIANT, Requirement, Shape, Sites
from iris_cli.core.scheduling.reasons import BUSY_KINDS, Reason, ReasonKind, WaitingKey, job_of
from iris_cli.core.scheduling.sets import AMOUNT_KINDS, Group, mask_of, positions_of

_MAX_NEAR_MISSES = 5
_MEASURED_KINDS = (ReasonKind.GPUS, ReasonKind.MEMORY, ReasonKind.CPU)


Unmet = Mapping[WaitingKey, Requirement | tuple[Reason, ...]]
"""The requirement of each pending task or gang, or the reasons why it did not compete in the cycle."""


class Waiting(Mapping[WaitingKey, tuple[Reason, ...]]):
    """The reasons of each pending task or gang by precedence, computed on access and once for equal requirements."""

    def __init__(
        self,
        context: SchedulingContext,
        record: CycleRecord,
        unmet: Unmet,
        dependents: TasksByJob | None = None,
    ) -> None:
        """`dependents`: by job, the tasks that are held back only until this job ends."""
        self._context = context
        self._dependents = dependents or {}
        self._record = record
        self._unmet = unmet

    def with_held_back(self, held_back: Unmet, dependents: TasksByJob) -> "Waiting":
        """Return all reasons, including the reasons of tasks and gangs that did not compete in the cycle."""
        if not held_back:
            return self
        return Waiting(self._context, self._record, {**self._unmet, **held_back}, dependents)

    def __getitem__(self, key: WaitingKey) -> tuple[Reason, ...]:
        requirement = self._unmet[key]
        if isinstance(requirement, tuple):
            return requirement
        reserved = self._context.reservations.get(key)
        if not reserved:
            return self._reasons(Case(self._context, requirement, self._context.unreserved))
        first, *others = self._reasons(Case(self._context, requirement, self._workers_open_to(key)))
        names = ", ".join(wording.unit_name(requirement.shape, group) for group in reserved)
        text = f"{first.text}; {names} reserved for it"
        reason = Reason(kind=first.kind, text=text, need=first.need, have=first.have, refused=first.refused)
        return (reason, *others)

    def __iter__(self) -> Iterator[WaitingKey]:
        return iter(self._unmet)

    def __len__(self) -> int:
        return len(self._unmet)

    def causes(self, keys: Sequence[WaitingKey]) -> Sequence[object]:
        """Return an object for each key: the same object for equal reasons, None for a key that is not pending.

        Callers use it to group keys, because it is much faster to compute than the reasons.
        """
        found = list(map(self._unmet.get, keys))
        if reservations := self._context.reservations:
            return [
                key if cause is not None and reservations.get(key) else cause
                for key, cause in zip(keys, found, strict=True)
            ]
        return found

    def explain(self, key: WaitingKey) -> explanation.Explanation:
        """Return the explanation of a pending task or gang. Raises KeyError for other keys."""
        requirement = self._unmet[key]
        if isinstance(requirement, tuple):
            return explanation.Explanation(reasons=requirement)
        fleet, shape, job = self._context.fleet, requirement.shape, self._job_of(key)
        case = Case(self._context, requirement, self._workers_open_to(key))
        criteria = group_checks.suitability_criteria(requirement) + group_checks.availability_criteria(case)
        rejections = group_checks.first_rejections(fleet.all_workers, criteria)
        groups = [check.group for check in group_checks.check_groups(case, shape)] if shape else []
        largest = _largest(groups)
        nearest, equipped = group_checks.near_misses(case), requirement.with_device
        taken = (check.rejected for check in nearest if check.kind is ReasonKind.BEHIND)
        return explanation.Explanation(
            reasons=self[key],
            workers=len(fleet.workers),
            equipped=equipped.bit_count(),
            constraints=tuple(
                explanation.ConstraintCount(
                    constraint=each,
                    satisfied=(equipped & fleet.workers_satisfying(each)).bit_count(),
                    workers=equipped.bit_count(),
                )
                for each in requirement.job.constraints
            ),
            dimensions=tuple(
                explanation.DimensionCount(
                    kind=kind,
                    need=need,
                    lacking=(equipped & ~dimension.workers_at_start[need]).bit_count(),
                    workers=equipped.bit_count(),
                )
                for kind, need, dimension in zip(
                    AMOUNT_KINDS, requirement.need, self._context.dimensions, strict=True
                )
                if need
            ),
            refused=tuple((rejection.kind, rejection.units) for rejection in rejections),
            group_by=shape.group_by if shape else "",
            groups_found=len(groups),
            largest=(str(largest.key), len(largest.members)) if largest else None,
            near_misses=tuple(self._near_miss(case, check) for check in nearest[:_MAX_NEAR_MISSES]),
            more_near_misses=len(nearest[_MAX_NEAR_MISSES:]),
            behind=tuple(self._record.takers(job, self._ids(reduce(or_, taken, 0)))),
            hints=tuple(wording.hints(fleet, requirement)),
            change=single_change(case, job, nearest, self._record, self._dependents),
        )

    def expected_start(self, key: WaitingKey, cluster: Cluster) -> ExpectedStart | None:
        """Return the expected start of one more task of a job, or of a gang; None if it can't be known.

        It can't be known if a task without a time limit blocks the job, or if jobs ahead would take the room. A job
        does not start after a time limit that ends it, too: the limit of a job above it, or of another task of a job
        that tolerates no failure.
        """
        if not isinstance(self._unmet.get(key), Requirement):
            return None
        if any(reason.kind not in BUSY_KINDS for reason in self[key]):
            return None
        record, job = self._record, self._job_of(key)
        limits = {each: _end_by_limit(cluster, each) for worker in record.workers for each in worker.claims}
        fatal = {
            attempt
            for attempt in limits
            if ends_with(job.id, attempt.task.job)
            and (attempt.task.job != job.id or not (job.keep_going or job.max_task_failures))
        }
        ends = {attempt: end for attempt, end in _ends_with_parents(limits).items() if attempt not in fatal}
        last_time = min((end for attempt in fatal if (end := limits[attempt]) is not None), default=inf)
        times = sorted({end for end in ends.values() if end is not None and end > record.now})

        def fits_at(time: float, *, at_best: bool) -> bool:
            """Return whether the task or gang fits when all attempts with an earlier time limit have ended.

            `at_best`: assume that all attempts without a time limit have ended, too, and that no job is ahead.
            """

            def has_ended(attempt: AttemptId) -> bool:
                end = ends.get(attempt)
                return at_best and attempt in ends if end is None else end <= time

            workers = [without_claims(worker, has_ended) for worker in record.workers]
            return record.places_more(job, workers, alone=at_best)

        if not times or fits_at(record.now, at_best=True):
            return None
        found = bisect_left(times, True, key=partial(fits_at, at_best=True))
        if found == len(times) or times[found] >= last_time or not fits_at(times[found], at_best=False):
            return None
        last = sorted({attempt.task.job for attempt, end in limits.items() if end == times[found]})
        return ExpectedStart(not_before_at=times[found], jobs=tuple(last))

    def _job_of(self, key: WaitingKey) -> Job:
        job = self._record.get_job(job_of(key))
        assert job is not None  # a task of an unknown job has no requirement
        return job

    def _ids(self, workers: int) -> list[WorkerId]:
        return [self._context.fleet.ids[position] for position in positions_of(workers)]

    def _workers_open_to(self, key: WaitingKey) -> int:
        """Return the workers that are not reserved for another task or gang."""
        return self._context.unreserved | self._reserved_workers.get(key, 0)

    @cached_property
    def _reserved_workers(self) -> dict[WaitingKey, int]:
        found: dict[WaitingKey, list[int]] = {}
        for position, key in self._context.reserved_by.items():
            found.setdefault(key, []).append(position)
        return {key: mask_of(positions) for key, positions in found.items()}

    def _near_miss(self, case: Case, check: GroupCheck) -> explanation.NearMiss:
        assert check.kind is not None
        if check.kind is ReasonKind.BEHIND:
            text = self._takers_text(case.requirement.job, check.rejected)
        else:
            text = wording.shortage_text(self._context, case.requirement, check)
        return explanation.NearMiss(
            name=wording.unit_name(case.requirement.shape, check.group),
            kind=check.kind,
            lacking=tuple(self._ids(check.rejected)),
            text=text,
        )

    def _takers_text(self, job: Job, rejected: int) -> str:
        """Return `assigned to a, b`: the jobs that took these workers, if possible before the turn of `job`."""
        takers = self._record.takers_before_signature(job, self._ids(rejected))
        return f"assigned to {wording.list_few(map(str, takers))}"

    @cached_by_argument
    def _reasons(self, case: Case) -> tuple[Reason, ...]:
        requirement, selected = case.requirement, case.requirement.selected
        if not selected:
            rejections = group_checks.first_rejections(
                self._context.fleet.all_workers, group_checks.suitability_criteria(requirement)
            )
            return (self._no_suitable_reason(requirement, rejections),)
        if requirement.shape is not None:
            return tuple(self._reasons_of_groups(case, requirement.shape))
        rejections = group_checks.first_rejections(selected, group_checks.availability_criteria(case))
        count = selected.bit_count()
        return tuple(self._unavailable_reason((requirement, each, count)) for each in rejections)

    def _reasons_of_groups(self, case: Case, shape: Shape) -> Iterator[Reason]:
        checks, counts = self._check_all_groups(case.requirement)
        if case.reserved:  # a reservation for the gang changes only the checks on the reserved groups
            at = self._context.fleet.groups(shape.group_by).numbers
            changed = frozenset(at[position] for position in positions_of(case.reserved)) - {-1}
            before = [check for check in map(checks.get, changed) if check is not None]
            now = group_checks.check_groups(case, shape, changed)
            counts = counts.with_changed(before, now)
            if shape.groups > 1:
                checks = {**checks, **{check.group.number: check for check in now}}
        rejections = counts.rejections()
        unsuitable = [each for each in rejections if each.kind.rank <= ReasonKind.GROUP_SHAPE.rank]
        suitable = len(checks) - sum(rejection.units for rejection in unsuitable)
        if suitable >= shape.groups:
            reasons = [
                self._unavailable_reason((case.requirement, each, suitable))
                for each in rejections[len(unsuitable) :]
            ]
            yield from (
                self._with_site_reason(case.requirement, checks, reasons) if shape.groups > 1 else reasons
            )
        elif unsuitable and unsuitable[-1].kind is not ReasonKind.GROUP_SHAPE:
            yield self._no_suitable_reason(case.requirement, unsuitable, suitable)
        elif suitable:
            text = wording.too_few_groups_text(shape, suitable)
            yield Reason(kind=ReasonKind.GROUP_SHAPE, text=text, need=shape.groups, have=suitable)
        else:
            refused = [each for each in checks.values() if each.kind is ReasonKind.GROUP_SHAPE]
            yield self._wrong_shape_reason(shape, [check.group for check in refused])

    def _with_site_reason(
        self, requirement: Requirement, checks: dict[int, GroupCheck], reasons: list[Reason]
    ) -> list[Reason]:
        """Return `reasons`, extended or replaced by the reason why the gang can't use its groups together."""
        sites, apart_reasons = Sites(self._context.fleet, requirement), list[Reason]()
        free = [number for number, check in checks.items() if check.kind is None]
        of_variant, in_region = (len(sites.largest_site(free, depth)) for depth in (VARIANT, REGION))
        if of_variant >= sites.needed > in_region and not requirement.job.spread:
            apart_reasons.append(_apart_reason(requirement, sites, free, free=True))
        suitable = [number for number, check in checks.items() if check.is_suitable]
        if len(sites.largest_site(suitable, sites.required_depth)) < sites.needed:
            return apart_reasons or [_apart_reason(requirement, sites, suitable, free=False)]
        return sorted([*reasons, *apart_reasons], key=lambda reason: reason.kind.rank)

    @cached_by_argument
    def _check_all_groups(self, requirement: Requirement) -> tuple[dict[int, GroupCheck], RejectionCounts]:
        """Return the group checks by number, and the rejection counts, as if all reservations were for others."""
        assert requirement.shape is not None
        case = Case(self._context, requirement, self._context.unreserved)
        checks = group_checks.check_groups(case, requirement.shape)
        return {check.group.number: check for check in checks}, RejectionCounts(checks)

    def _wrong_shape_reason(self, shape: Shape, groups: list[Group]) -> Reason:
        fleet, largest = self._context.fleet, _largest(groups)
        only_reason = len(groups) == len(fleet.groups(shape.group_by).groups)
        return Reason(
            kind=ReasonKind.GROUP_SHAPE,
            text=wording.wrong_shape_text(shape, fleet, largest, only_reason=only_reason),
            need=shape.size,
            have=len(largest.members) if largest else 0,
            refused=len(groups),
        )

    def _no_suitable_reason(
        self, requirement: Requirement, rejections: list[Rejection], suitable: int = 0
    ) -> Reason:
        """Return the reason if no worker is suitable, or if only `suitable` groups are.

        The reason is the last of the `rejections`. If there are no workers, there are no rejections.
        """
        fleet, shape, device = self._context.fleet, requirement.shape, requirement.job.resources.device
        kind = rejections[-1].kind if rejections else ReasonKind.NO_SUCH_DEVICE
        refused = rejections[-1].units if rejections else 0
        other = suitable > 0  # some groups are suitable, but not enough
        if kind is ReasonKind.CONSTRAINT:
            text = wording.constraints_text(requirement, fleet, rejections[-1], other=other)
        elif kind is ReasonKind.TAINT:
            text = wording.taints_text(requirement, fleet, rejections[-1], other=other)
        elif shape is not None and device is not None and requirement.with_device:
            text = wording.too_few_equipped_text(shape, device, other=other)
        else:
            text = wording.no_device_text(fleet, device)
        if shape is not None and suitable:
            text = f"{wording.too_few_groups_text(shape, suitable)}: {text}"
        need = shape.groups if shape else 1
        return Reason(kind=kind, text=text, need=need, have=suitable, refused=refused)

    @cached_by_argument
    def _unavailable_reason(self, case: tuple[Requirement, Rejection, int]) -> Reason:
        """Return the reason for a rejection of suitable workers or groups. The last part of `case` is their number."""
        requirement, rejection, suitable = case
        kind, units, rejected, have = rejection
        text = wording.unavailable_text(self._context, requirement, rejection, suitable)
        if kind is ReasonKind.BEHIND:
            text += f" ({self._takers_text(requirement.job, rejected)})"
        need = requirement.shape.size if requirement.shape else 1
        if kind in _MEASURED_KINDS:
            number = AMOUNT_KINDS.index(kind)
            need = requirement.need[number]
            have = max(0, self._context.dimensions[number].levels.largest(rejected))
            largest = self._context.idle_levels[number].largest(requirement.selected)
            if largest < need:
                fleet, device = self._context.fleet, requirement.job.resources.device
                text = wording.too_large_text(fleet, device, kind, need, largest)
        return Reason(kind=kind, text=text, need=need, have=have, refused=units)


def _apart_reason(requirement: Requirement, sites: Sites, groups: list[int], *, free: bool) -> Reason:
    """Return the reason if enough groups are suitable (or `free`), but not in one region or not of one variant."""
    shape, of_one_variant = requirement.shape, sites.largest_site(groups, VARIANT)
    assert shape is not None
    if len(of_one_variant) < sites.needed:
        kind, have = ReasonKind.GROUP_SHAPE, len(of_one_variant)
        text = wording.several_variants_text(shape, sites.count_variants(groups))
    else:
        groups = of_one_variant
        kind, have = ReasonKind.REGION, len(sites.largest_site(groups, REGION))
        variant = "" if requirement.needs_no_device else next(iter(sites.count_variants(groups)))
        text = wording.several_regions_text(
            shape, variant, len(groups), sites.count_regions(groups), free=free
        )
    return Reason(kind=kind, text=text, need=sites.needed, have=have, refused=len(groups) - have)


def _largest(groups: list[Group]) -> Group | None:
    return max(groups, key=lambda group: (len(group.members), -group.number), default=None)


def _end_by_limit(cluster: Cluster, attempt_id: AttemptId) -> float | None:
    """Return the time at which the time limit ends an attempt, or None. iris does not retry such an attempt."""
    attempt, limit = cluster.attempt(attempt_id), cluster.jobs[attempt_id.task.job].timeout
    if attempt.state is not AttemptState.RUNNING or attempt.started_at is None or attempt.orphaned:
        return None  # no wrapper enforces its limit
    return attempt.started_at + limit if limit > 0 else None


def _ends_with_parents(limits: Mapping[AttemptId, float | None]) -> dict[AttemptId, float | None]:
    """Return the ends of attempts by their time limits, or by an earlier time limit of a job above, which ends them."""
    of_jobs: dict[JobId, float] = {}
    for attempt, end in limits.items():
        if end is not None:
            of_jobs[attempt.task.job] = min(end, of_jobs.get(attempt.task.job, inf))
    found: dict[AttemptId, float | None] = {}
    for attempt, end in limits.items():
        above = parent_of(attempt.task.job)
        while end is not None and above is not None:
            end = min(end, of_jobs.get(above, inf))
            above = parent_of(above)
        found[attempt] = end
    return found
