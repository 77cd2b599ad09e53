"""Decide which slices to create and to delete now."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import NamedTuple

from msgspec import Struct

from iris_cli.core import AttemptState, Cluster, JobId, Limits, Worker, WorkerCondition, WorkerId
from iris_cli.core.autoscaling.catalogue import Catalogue
from iris_cli.core.autoscaling.demand import (
    Demand,
    DemandEntry,
    IdleSite,
    compute_demand,
    count_groups,
    drop_preferences,
)
from iris_cli.core.autoscaling.groups import GroupState, booting_workers, group_states, sort_groups
from iris_cli.core.autoscaling.routing import RoutingDecision, route_demand
from iris_cli.core.model.job import NO_MISSING_INPUTS, MissingInputs
from iris_cli.core.model.slice import Provider, ScaleGroup, Slice, SliceState, slice_name, slice_of
from iris_cli.core.scheduling import Plan, plan
from iris_cli.core.scheduling.order import group_by_job
from iris_cli.core.scheduling.placement import REGION, VARIANT
from iris_cli.core.scheduling.reasons import ReasonKind
from iris_cli.core.scheduling.sets import positions_of
from iris_cli.core.units import format_duration

_IDLE_TIMEOUT = 600.0  # for groups that are no longer in the configuration


class Removal(NamedTuple):
    """A slice to delete, and the reason. `failed`: its creation failed, so its group backs off."""

    slice: str
    reason: str
    failed: bool = False


def stuck_slices(
    cluster: Cluster, groups: Sequence[ScaleGroup], now: float, limits: Limits
) -> Iterable[Removal]:
    """Yield incomplete slices that take too long, and requested slices that are no longer wanted."""
    surplus = {group.name: group.max_slices for group in groups}
    for each in cluster.slices.values():
        if each.group in surplus and each.requested_at:
            surplus[each.group] -= 1
    for each in reversed(cluster.slices.values()):
        # An allocation may stay in the queue of Slurm for any time. A new request would go to the end of the queue.
        queued = each.template.provider is Provider.SLURM and each.state is SliceState.CREATING
        is_requested = each.state in (SliceState.REQUESTED, SliceState.CREATING) and not queued
        if each.is_provisioning and each.group not in surplus:
            yield Removal(each.name, "its scale group is no longer in cluster.yaml")
        elif each.state is SliceState.REQUESTED and surplus[each.group] < 0:
            surplus[each.group] += 1
            yield Removal(each.name, "its group has more than max_slices slices")
        elif each.is_provisioning and not each.is_expected(now, limits.slice_request_timeout):
            timeout = format_duration(limits.slice_request_timeout)
            yield Removal(each.name, f"its provider accepted no request for it in {timeout}", failed=True)
        elif is_requested and _has_passed(each.requested_at, limits.slice_create_timeout, now):
            reason = f"not created after {format_duration(limits.slice_create_timeout)}"
            yield Removal(each.name, reason, failed=True)
        elif boots_too_long(each, now, limits):
            reason = f"its VMs were not ready after {format_duration(limits.slice_boot_timeout)}"
            yield Removal(each.name, _name_unready_vm(cluster, each, reason), failed=True)


def boots_too_long(known: Slice, now: float, limits: Limits) -> bool:
    """Return whether the VMs of a slice exist, but took too long to become healthy and set up."""
    booting = known.started_at is not None and known.state is SliceState.BOOTING
    return booting and _has_passed(known.started_at or 0.0, limits.slice_boot_timeout, now)


def _has_passed(since: float, wait: float, now: float) -> bool:
    """Return whether `wait` seconds have passed. Also True if `since` is that far in the future: a clock was wrong."""
    return not -wait < now - since < wait


def _name_unready_vm(cluster: Cluster, known: Slice, reason: str) -> str:
    """Return the reason with the name of the first VM that is not ready."""
    for worker_id in known.workers:
        worker = cluster.workers.get(worker_id)
        if worker is not None and (worker.unschedulable or worker.condition is not WorkerCondition.HEALTHY):
            return f"{reason} ({worker_id}: {worker.reason or worker.condition})"
    if known.vms_to_set_up:
        return f"{reason} ({known.workers[known.vms_to_set_up[0]]}: set-up has not ended)"
    return reason


def idle_slices(
    cluster: Cluster, groups: Sequence[ScaleGroup], needed: frozenset[WorkerId], now: float
) -> Iterable[Removal]:
    """Yield slices idle for too long, the longest first, but keep `min_slices` of a group and workers in `needed`."""
    groups_by_name = {group.name: group for group in groups}
    by_group: dict[str, list[Slice]] = {}
    for each in cluster.slices.values():
        if each.state is SliceState.READY:
            by_group.setdefault(each.group, []).append(each)
    for name, slices in sorted(by_group.items()):
        group = groups_by_name.get(name)
        min_slices = group.min_slices if group is not None else 0
        timeout = group.idle_timeout if group is not None else _IDLE_TIMEOUT
        times = ((idle_since(cluster, each, needed), each.name) for each in slices)
        idle = sorted((since, each) for since, each in times if since is not None)
        not_counted = {each.name: why for each in slices if (why := _why_not_counted(cluster, each, group))}
        spare = len(slices) - len(not_counted) - min_slices
        for since, idle_slice in idle:
            if not _has_passed(since, timeout, now) or (idle_slice not in not_counted and spare <= 0):
                continue
            reason = f"idle for {format_duration(max(timeout, now - since))}"
            if idle_slice in not_counted:
                reason += f", and {not_counted[idle_slice]}"
            else:
                spare -= 1
            yield Removal(idle_slice, reason)


def _why_not_counted(cluster: Cluster, known: Slice, group: ScaleGroup | None) -> str:
    """Return why a slice does not count for its group's `min_slices` (a lost VM, an old template); '' if it counts."""
    for worker_id in known.workers:
        worker = cluster.workers.get(worker_id)
        if worker is None:
            return f"{worker_id} was forgotten"
        if worker.condition is WorkerCondition.LOST:
            return f"{worker_id} is lost: {worker.reason}"
    if group is not None and group.template != known.template:
        return f"slice_template of {known.group} changed"
    return ""


def idle_since(cluster: Cluster, known: Slice, needed: frozenset[WorkerId] = frozenset()) -> float | None:
    """Return when a ready slice became idle; None if a task runs or (on a worker in `needed`) will run.

    Attempts that are presumed gone do not count: they are stopped anyway, and their VM may never answer again.
    """
    since = known.joined_at or 0.0
    for worker_id in known.workers:
        worker = cluster.workers.get(worker_id)
        if worker is None:
            continue  # nothing runs on a VM that the operator has forgotten
        if worker.claims or worker_id in needed:
            return None
        since = max(since, worker.freed_at)
    return since


class SliceOrder(NamedTuple):
    """A slice to create, and the jobs for which it is created."""

    slice: str
    group: ScaleGroup
    wanted_by: tuple[JobId, ...] = ()


class ScalingPlan(Struct, frozen=True, kw_only=True):
    """The demand, its routing, and the resulting decisions.

    `by_hand`: the number of slices that the operator must create, by group; only for the provider `manual`. `later`:
    the number of slices to request in later passes, by group, because the rate of requests is limited.
    """

    states: tuple[GroupState, ...]
    demand: tuple[DemandEntry, ...]
    routing: RoutingDecision
    create: tuple[SliceOrder, ...]
    delete: tuple[Removal, ...]
    by_hand: Mapping[str, int]
    later: Mapping[str, int]


def plan_scaling(
    cluster: Cluster,
    groups: Sequence[ScaleGroup],
    now: float,
    limits: Limits,
    *,
    owner: str,
    missing: MissingInputs = NO_MISSING_INPUTS,
    silent: Mapping[str, str] | None = None,
) -> ScalingPlan:
    """Plan the scaling at `now`, in seconds since the epoch. `owner` is the cluster's id, which is part of slice names.

    `silent`: groups whose provider did not answer, with the reason. No slice of these groups is created or deleted.
    """
    silent = silent or {}
    states = group_states(cluster, groups, now, limits, silent)
    # The demand is computed after a dry run in which all operations in progress have succeeded.
    expected = _expected_cluster(cluster, states)
    dry_run = plan(expected, now, limits=limits, gang_reserve_after=0.0, missing=missing)
    found = _demand_after(dry_run, expected, now)
    found.placed |= _workers_of_stopping_gangs(cluster, dry_run)
    routing = route_demand(found.entries, states)
    if routing.unmet and limits.gang_reserve_after:
        expected.workers |= {
            worker.id: worker for worker in booting_workers(_after_requests(states, routing))
        }
        dry_run = plan(expected, now, limits=limits, missing=missing)
        if dry_run.result.reservations:
            routing = _add_passed_over(found, routing, states, _demand_after(dry_run, expected, now))
    create, by_hand, later = _orders(cluster, states, routing, now, limits, owner)
    idle = idle_slices(cluster, groups, _needed(cluster, states, found, routing, now), now)
    removals = (*stuck_slices(cluster, groups, now, limits), *idle)
    return ScalingPlan(
        states=tuple(sort_groups(states)),
        demand=tuple(found.entries),
        routing=routing,
        create=tuple(create),
        delete=tuple(each for each in removals if cluster.slices[each.slice].group not in silent),
        by_hand=by_hand,
        later=later,
    )


def _demand_after(dry_run: Plan, cluster: Cluster, now: float) -> Demand:
    tasks, workers = group_by_job(cluster.pending_tasks()), list(cluster.workers.values())
    waiting = dry_run.waiting_for_own_slices
    return compute_demand(dry_run.result, workers, tasks, cluster.jobs.get, now, waiting)


def _after_requests(states: Sequence[GroupState], routing: RoutingDecision) -> list[GroupState]:
    return [each.after_requests(routing.launch.get(each.name, 0)) for each in states]


def _add_passed_over(
    found: Demand, routing: RoutingDecision, states: Sequence[GroupState], reserved: Demand
) -> RoutingDecision:
    """Return the decision with slices also for jobs that are passed over by reservations for unmet demand.

    `reserved`: the demand after a dry run with reservations. Entries that are routed are added to the demand `found`.
    """
    known = {each.key for each in found.entries}
    passed_over = [each for each in reserved.entries if each.key not in known]
    added = route_demand(passed_over, _after_requests(states, routing))
    names = dict.fromkeys((*routing.routed, *added.routed))
    unmet = {each.entry.key for each in added.unmet}
    found.entries += [each for each in passed_over if each.key not in unmet]
    return RoutingDecision(
        launch={
            name: routing.launch.get(name, 0) + added.launch.get(name, 0)
            for name in dict.fromkeys((*routing.launch, *added.launch))
        },
        routed={name: (*routing.routed.get(name, ()), *added.routed.get(name, ())) for name in names},
        unmet=routing.unmet,
    )


def _workers_of_stopping_gangs(cluster: Cluster, dry_run: Plan) -> frozenset[WorkerId]:
    """Return the workers of the last round of each gang whose next round waits only for the end of the last one."""
    gangs = dict.fromkeys(
        attempt_id.task.job
        for attempt_id, attempt in cluster.live_attempts()
        if attempt.state is AttemptState.STOPPING and cluster.jobs[attempt_id.task.job].is_gang
    )
    return frozenset(
        task.attempts[-1].worker
        for job in gangs
        if job in dry_run.waiting and {each.kind for each in dry_run.waiting[job]} == {ReasonKind.STOPPING}
        for task in cluster.tasks_of(job)
    )


def _expected_cluster(cluster: Cluster, states: Sequence[GroupState]) -> Cluster:
    """Return the cluster after suspect workers recover, cool-downs and stops end, and slices have booted."""
    unready = (each for each in cluster.slices.values() if each.state is not SliceState.READY)
    booting = {worker for each in unready for worker in each.workers}
    existing = (worker for worker in cluster.workers.values() if worker.id not in booting)
    workers = {worker.id: _expected_worker(cluster, worker) for worker in existing}
    workers.update((worker.id, worker) for worker in booting_workers(states))
    get_job = drop_preferences(cluster.jobs.get)
    jobs = cluster.jobs.copy()
    for job_id in dict.fromkeys(task.job for task in cluster.pending_tasks()):
        job = get_job(job_id)
        if job is not None:
            jobs[job_id] = job
    expected = copy(cluster)
    expected.workers, expected.jobs, expected.ghosts = workers, jobs, {}
    return expected


def _expected_worker(cluster: Cluster, worker: Worker) -> Worker:
    if not (worker.claims or worker.cooldown_until or worker.condition is WorkerCondition.SUSPECT):
        return worker
    claims = {
        attempt: claim
        for attempt, claim in worker.claims.items()
        if cluster.attempt(attempt).state is not AttemptState.STOPPING
    }
    expected = copy(worker)
    expected.claims, expected.cooldown_until = claims, 0.0
    if worker.condition is WorkerCondition.SUSPECT:
        expected.condition = WorkerCondition.HEALTHY
    return expected


def _needed(
    cluster: Cluster, states: Sequence[GroupState], found: Demand, routing: RoutingDecision, now: float
) -> frozenset[WorkerId]:
    """Return the workers to keep: workers with placements, and idle workers for gangs that can get all their slices."""
    unmet = {each.entry.key: each.entry for each in routing.unmet}
    kept = [
        site.workers
        for job, sites in found.kept.items()
        for site in sites
        if job not in unmet or _can_be_completed(cluster, states, unmet[job], site, now)
    ]
    return found.placed.union(*kept)


def _can_be_completed(
    cluster: Cluster, states: Sequence[GroupState], entry: DemandEntry, idle: IdleSite, now: float
) -> bool:
    """Return whether the rest of a gang could ever run at the location of the idle groups.

    The rest can run on slices of scale groups, and on groups of other workers that are busy now.
    """
    if entry.invalid_reason or entry.shape is None:
        return False
    catalogue, depth = Catalogue(states), VARIANT if entry.spread else REGION
    max_slices = sum(
        catalogue.states[index].group.max_slices
        for index in positions_of(catalogue.groups_serving(entry))
        if catalogue.location(entry, index)[:depth] == idle.location[:depth]
    )
    idle_of_groups = {slice_of(worker) for worker in idle.workers} & cluster.slices.keys()
    others = (
        _expected_worker(cluster, worker)
        for worker in cluster.workers.values()
        if slice_of(worker.id) not in cluster.slices and worker.id not in idle.workers
    )
    busy = count_groups(cluster.jobs[entry.task_ids[0].job], others, idle.location, now)
    return entry.shape.groups <= max_slices + idle.groups - len(idle_of_groups) + busy


def _orders(
    cluster: Cluster,
    states: Sequence[GroupState],
    routing: RoutingDecision,
    now: float,
    limits: Limits,
    owner: str,
) -> tuple[list[SliceOrder], dict[str, int], dict[str, int]]:
    orders: list[SliceOrder] = []
    by_hand: dict[str, int] = {}
    later: dict[str, int] = {}
    for state in sort_groups(states):
        wanted = routing.launch.get(state.name, 0)
        if state.group.template.provider is Provider.MANUAL:
            if wanted:
                by_hand[state.name] = wanted
            continue
        slices = [each for each in cluster.slices.values() if each.group == state.name]
        usable = [each for each in slices if each.state is not SliceState.DELETING]
        existing = sum(each.template == state.group.template for each in usable)
        wanted = max(wanted, min(state.group.min_slices - existing, state.room))
        requested_lately = sum(0 <= now - each.requested_at < 60.0 for each in slices)
        allowed_now = max(0, limits.slices_per_minute - requested_lately)
        if wanted > allowed_now:
            later[state.name] = wanted - allowed_now
        record = cluster.scale_groups.get(state.name)
        first_number = record.requested + 1 if record is not None else 1
        shares = _shares(routing.routed.get(state.name, ()), state.group, min(wanted, allowed_now))
        orders += [
            SliceOrder(slice_name(state.name, owner, number), state.group, jobs)
            for number, jobs in enumerate(shares, start=first_number)
        ]
    return orders, by_hand, later


def _shares(entries: Sequence[DemandEntry], group: ScaleGroup, slices: int) -> list[tuple[JobId, ...]]:
    """Distribute jobs over new slices. Return the jobs for which each slice is created.

    Jobs that need no device are ignored, except gangs if the slices have no device.
    """
    is_cpu = group.template.device.kind == "cpu"
    counted_entries = (
        each for each in entries if each.resources.device is not None or (is_cpu and each.shape is not None)
    )
    jobs = list(dict.fromkeys(entry.task_ids[0].job for entry in counted_entries))
    return [tuple(jobs[number::slices]) for number in range(slices)]
