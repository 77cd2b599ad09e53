"""Placement of gangs: all tasks of a gang or none, on exactly the number of groups that it requests."""

from itertools import islice

from iris_cli.core import Job, Task, cached_by_argument
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.placement import Assignment, Requirement, Sites, assign, has_shape
from iris_cli.core.scheduling.reasons import Reason, ReasonKind
from iris_cli.core.scheduling.reservation import BlockingAttempts, Reservations
from iris_cli.core.scheduling.sets import Group, GroupQueue, Rank, Ranker, flags_of, mask_of


class GangPlacer:
    """Places the gangs of one cycle, and reserves workers for gangs that have been pending for a long time."""

    def __init__(self, context: SchedulingContext, reservations: Reservations) -> None:
        self.context = context
        self._reservations = reservations

    def place(self, job: Job, tasks: list[Task], requirement: Requirement, placed: list[Assignment]) -> bool:
        """Place all `tasks` of a gang (ordered by index), or none. Return whether they were placed."""
        if not requirement.exhausted:
            positions = self._search(requirement).find_positions()
            if positions is not None:
                for task, position in zip(tasks, positions, strict=True):
                    self.context.take(position, requirement.packed_need)
                    placed.append(assign(self.context, requirement, task, position))
                return True
            requirement.exhausted = True
        self.reserve(job, requirement)
        return False

    def reserve(self, job: Job, requirement: Requirement) -> None:
        """Reserve workers for a gang that has been pending for long enough."""
        reservations = self._reservations
        if job.submitted_at <= reservations.latest_submission and reservations.are_allowed(job):
            blocking = reservations.blocking_attempts(requirement.need)
            found = self._search(requirement).find_reservable(blocking)
            if found:
                reservations.reserve(job.id, *found, requirement.need)

    @cached_by_argument
    def _search(self, requirement: Requirement) -> "GroupSearch":
        return GroupSearch(self.context, requirement)


class GroupSearch:
    """Finds the groups on which gangs with one requirement fit now, or will fit after running attempts have ended."""

    def __init__(self, context: SchedulingContext, requirement: Requirement) -> None:
        assert requirement.shape is not None
        self._context = context
        self._requirement = requirement
        self._shape = requirement.shape
        self._index = context.fleet.groups(self._shape.group_by)
        self._sites = Sites(context.fleet, requirement)
        self._eligible = flags_of(requirement.eligible, context.fleet.all_workers)
        self._preferred = [flags_of(workers, context.fleet.all_workers) for workers in requirement.preferred]
        self._fitting: GroupQueue | None = None
        self._groups_by_blocking: GroupQueue | None = None

    def find_positions(self) -> list[int] | None:
        """Return the position of a worker for each task, by task index, or None if the gang does not fit.

        Several groups are in one zone if possible, otherwise in one region. Groups are ranked by the number of met
        preferences, then by fewest fitting workers, then by key. In a group, the workers that meet the most preferences
        are used, in the order of their numbers in the slice, or of their ids if they have no numbers.
        """
        if self._fitting is None:
            self._fitting = GroupQueue(
                self._index, self._context.changes, self._ranker_by_fit, self._sites.tiers
            )
        groups = self._fitting.best_set(self._shape.groups, by_tier=True)
        if groups is None:
            return None
        return [position for group in groups for position in self._first_members(group)]

    def find_reservable(self, blocking: BlockingAttempts) -> tuple[list[Group], list[int]] | None:
        """Return the groups with fewest blocking attempts and the workers to reserve, or None without enough groups."""
        if self._groups_by_blocking is None:
            usable = self._requirement.schedulable & self._context.workers_of_size(self._requirement.need)
            self._usable = flags_of(usable, self._context.fleet.all_workers)
            self._blocking = blocking
            self._groups_by_blocking = GroupQueue(
                self._index, self._context.changes, lambda: self._rank_by_blocking, self._sites.tiers
            )
        groups = self._groups_by_blocking.best_set(self._shape.groups)
        if groups is None:
            return None
        return groups, [position for group in groups for _, position in self._soonest_workers(group)]

    def _ranker_by_fit(self) -> Ranker:
        """Return the ranker for groups on which the gang fits now."""
        candidates = self._requirement.candidates(self._context)
        shape, preferred = self._shape, self._requirement.preferred

        def rank(group: Group) -> Rank | None:
            fitting = group.mask & candidates
            if shape.whole:
                if fitting != group.mask or not has_shape(group, shape):
                    return None
            elif fitting.bit_count() < shape.size:
                return None
            met = 0
            if preferred:
                chosen = mask_of(self._first_members(group))
                met = sum((chosen & workers).bit_count() for workers in preferred)
            return -met, fitting.bit_count()

        return rank

    def _first_members(self, group: Group) -> list[int]:
        """Return the workers of a group that the gang uses, in the order of the group.

        If more workers fit than the gang needs, workers that meet more preferences are used first.
        """
        if self._shape.whole:
            return list(group.members)
        has_room, need = self._context.has_room, self._requirement.packed_need
        fitting = (at for at in group.members if self._eligible[at] == "1" and has_room(at, need))
        if not self._preferred:
            return list(islice(fitting, self._shape.size))
        members = list(fitting)
        met = [sum(flags[position] == "1" for flags in self._preferred) for position in members]
        best = sorted(range(len(members)), key=lambda at: -met[at])[: self._shape.size]
        return [members[at] for at in sorted(best)]

    def _rank_by_blocking(self, group: Group) -> Rank | None:
        """Return the rank of a group on which the gang fits after attempts have ended."""
        soonest = self._soonest_workers(group)
        return (sum(count for count, _ in soonest),) if soonest else None

    def _soonest_workers(self, group: Group) -> list[tuple[int, int]]:
        """Return the workers to reserve, each with its number of blocking attempts; [] if there are too few."""
        taken = self._context.reserved_by
        if not has_shape(group, self._shape):
            return []
        usable = [each for each in group.members if self._usable[each] == "1" and each not in taken]
        if len(usable) < self._shape.size:
            return []
        counts = [(self._blocking.count(each), each) for each in usable]
        return sorted(counts, key=lambda pair: pair[0])[: self._shape.size]


def why_malformed(job: Job, tasks: list[Task]) -> Reason | None:
    """Return why no workers could run a gang: tasks are not pending, or their number is wrong; otherwise None."""
    if job.slices < 1 or job.replicas % job.slices:
        text = f"{job.replicas} replicas can't be spread over {job.slices} slices"
        return Reason(kind=ReasonKind.INVALID, text=text, need=job.slices, have=job.replicas)
    if len(tasks) == job.replicas == tasks[-1].id.index + 1:  # no task occurs twice
        return None
    placed_once = job.rounds > 0 or any(task.attempts for task in tasks)
    return Reason(
        kind=ReasonKind.STOPPING if placed_once else ReasonKind.INVALID,
        text=f"only {len(tasks)} of its {job.replicas} tasks are pending; a gang is placed as a whole",
        need=job.replicas,
        have=len(tasks),
    )
