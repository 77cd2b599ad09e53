"""Scaling: which slices are to be made and which to be deleted now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from iris_cli.core.autoscaling.demand import DemandEntry, Survey, survey, without_preferences
from iris_cli.core.autoscaling.groups import GroupState, by_waterfall, coming
from iris_cli.core.autoscaling.routing import RoutingDecision, route_demand
from iris_cli.core.autoscaling.standing import group_states
from iris_cli.core.cluster import Cluster
from iris_cli.core.dataclass import dataclass, replace
from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.limits import Limits
from iris_cli.core.missing import NOTHING_MISSING, Missing
from iris_cli.core.scale_group import Provider, ScaleGroup
from iris_cli.core.scheduling import plan
from iris_cli.core.scheduling.order import by_job
from iris_cli.core.slice import Slice, SliceState, slice_name
from iris_cli.core.task import AttemptState
from iris_cli.core.units import format_duration
from iris_cli.core.worker import Worker, WorkerCondition

_IDLE_TIMEOUT = 600.0  # of a group that the configuration knows no more
_MINUTE = 60.0


class Order(NamedTuple):
    """A slice to be made, and jobs that it is for: it, or one that is made with it."""

    slice: str
    group: ScaleGroup
    wanted_by: tuple[JobId, ...] = ()


class Removal(NamedTuple):
    """A slice to be deleted, and why. `failed`: its group backs off for it."""

    slice: str
    reason: str
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPlan:
    """What is missing, who is to make it, and what follows now.

    `by_hand`: how many slices a person is to make in each group of the provider `manual`. `later`: how many are
    wanted in each group, and not asked for yet so as not to ask for too many at once.
    """

    states: tuple[GroupState, ...]
    demand: tuple[DemandEntry, ...]
    routing: RoutingDecision
    create: tuple[Order, ...]
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
    missing: Missing = NOTHING_MISSING,
    unheard: Mapping[str, str] | None = None,
) -> ScalingPlan:
    """Decide at `now`, in seconds since the epoch. `owner` is the id of the cluster: names are made with it.

    `unheard`: why the providers of some groups did not answer, by group; nothing is made or deleted in those.
    """
    unheard = unheard or {}
    states = group_states(cluster, groups, now, limits, unheard)
    found = _survey(cluster, states, now, limits, missing)
    routing = route_demand(found.entries, states)
    create, by_hand, later = _orders(cluster, states, routing, now, limits, owner)
    silent = frozenset(unheard)
    return ScalingPlan(
        states=tuple(by_waterfall(states)),
        demand=found.entries,
        routing=routing,
        create=tuple(create),
        delete=tuple(
            removal
            for removal in (*_stuck(cluster, now, limits), *_idle(cluster, groups, found.needed, now))
            if cluster.slices[removal.slice].group not in silent
        ),
        by_hand=by_hand,
        later=later,
    )


# What is missing


def _survey(
    cluster: Cluster,
    states: Sequence[GroupState],
    now: float,
    limits: Limits,
    missing: Missing,
) -> Survey:
    """What the scheduler would leave over if all that is under way went well."""
    hopeful = _hopeful(cluster, states)
    made = plan(hopeful, now, limits=limits, gang_reserve_after=0.0, missing=missing)
    tasks = by_job(hopeful.pending_tasks())
    return survey(made.result, list(hopeful.workers.values()), tasks, cluster.jobs.get, now)


def _hopeful(cluster: Cluster, states: Sequence[GroupState]) -> Cluster:
    """The cluster as it will be in a minute or a few: what is silent, cools down or is being stopped comes back.

    Making a slice takes longer than that. Booting slices stand there as they will be, in place of what is there.
    """
    booting = {
        worker
        for each in cluster.slices.values()
        if each.state is not SliceState.READY
        for worker in each.workers
    }
    workers = {
        worker.id: _hoped_for(cluster, worker)
        for worker in cluster.workers.values()
        if worker.id not in booting
    }
    workers.update((worker.id, worker) for worker in coming(states))
    plain = without_preferences(cluster.jobs.get)
    jobs = cluster.jobs.copy()
    for job_id in dict.fromkeys(task.job for task in cluster.pending_tasks()):
        job = plain(job_id)
        if job is not None:
            jobs[job_id] = job
    return replace(cluster, workers=workers, jobs=jobs, ghosts={})


def _hoped_for(cluster: Cluster, worker: Worker) -> Worker:
    if not (worker.claims or worker.cooldown_until or worker.condition is WorkerCondition.SUSPECT):
        return worker
    claims = {
        attempt: claim
        for attempt, claim in worker.claims.items()
        if cluster.attempt(attempt).state is not AttemptState.STOPPING
    }
    suspect = worker.condition is WorkerCondition.SUSPECT
    condition = WorkerCondition.HEALTHY if suspect else worker.condition
    return replace(worker, claims=claims, condition=condition, cooldown_until=0.0)


# What is to be made


def _orders(
    cluster: Cluster,
    states: Sequence[GroupState],
    routing: RoutingDecision,
    now: float,
    limits: Limits,
    owner: str,
) -> tuple[list[Order], dict[str, int], dict[str, int]]:
    orders: list[Order] = []
    by_hand: dict[str, int] = {}
    later: dict[str, int] = {}
    for state in by_waterfall(states):
        wanted = routing.launch.get(state.name, 0)
        if state.group.template.provider is Provider.MANUAL:
            if wanted:
                by_hand[state.name] = wanted
            continue
        wanted = max(wanted, min(_standing_short(cluster, state), state.room))
        now_at_most = max(0, limits.slices_per_minute - _asked_for_lately(cluster, state.name, now))
        if wanted > now_at_most:
            later[state.name] = wanted - now_at_most
        record = cluster.scale_groups.get(state.name)
        first = record.requested + 1 if record is not None else 1
        shares = _shares(routing.routed.get(state.name, ()), min(wanted, now_at_most))
        orders += [
            Order(slice_name(state.name, owner, number), state.group, jobs)
            for number, jobs in enumerate(shares, start=first)
        ]
    return orders, by_hand, later


def _shares(entries: Sequence[DemandEntry], slices: int) -> list[tuple[JobId, ...]]:
    """The jobs of entries that need a TPU, dealt out over so many slices: what runs anywhere has no home."""
    jobs = list(
        dict.fromkeys(entry.task_ids[0].job for entry in entries if entry.resources.device is not None)
    )
    return [tuple(jobs[number::slices]) for number in range(slices)]


def _standing_short(cluster: Cluster, state: GroupState) -> int:
    """How many slices a group lacks of those that it is always to have."""
    there = sum(
        each.group == state.name and each.state is not SliceState.DELETING for each in cluster.slices.values()
    )
    return max(0, state.group.min_slices - there)


def _asked_for_lately(cluster: Cluster, group: str, now: float) -> int:
    return sum(
        each.group == group and 0 <= now - each.requested_at < _MINUTE for each in cluster.slices.values()
    )


# What is to be deleted


def _stuck(cluster: Cluster, now: float, limits: Limits) -> Iterable[Removal]:
    """Half-made slices that take too long eat quota, and nobody knows what for."""
    for each in cluster.slices.values():
        asked = each.state in (SliceState.REQUESTED, SliceState.CREATING)
        if asked and now - each.requested_at >= limits.slice_create_timeout:
            words = f"not there after {format_duration(limits.slice_create_timeout)}"
            yield Removal(each.name, words, failed=True)
        started = each.started_at if each.state is SliceState.BOOTING else None
        if started is not None and now - started >= limits.slice_boot_timeout:
            words = f"its VMs were not ready after {format_duration(limits.slice_boot_timeout)}"
            yield Removal(each.name, _lagging(cluster, each, words), failed=True)


def _lagging(cluster: Cluster, each: Slice, words: str) -> str:
    """With the first VM that is to blame."""
    for worker_id in each.workers:
        worker = cluster.workers.get(worker_id)
        if worker is not None and (worker.unschedulable or worker.condition is not WorkerCondition.HEALTHY):
            return f"{words} ({worker_id}: {worker.reason or worker.condition})"
    return (
        f"{words} ({each.workers[each.to_set_up[0]]}: its set-up has not ended)" if each.to_set_up else words
    )


def _idle(
    cluster: Cluster, groups: Sequence[ScaleGroup], needed: frozenset[WorkerId], now: float
) -> Iterable[Removal]:
    """Of each group those that have been idle for long, the longest first, as long as enough are left."""
    known = {group.name: group for group in groups}
    by_group: dict[str, list[Slice]] = {}
    for each in cluster.slices.values():
        if each.state is SliceState.READY:
            by_group.setdefault(each.group, []).append(each)
    for name in sorted(by_group):
        group = known.get(name)
        least = group.min_slices if group is not None else 0
        timeout = group.idle_timeout if group is not None else _IDLE_TIMEOUT
        idle = sorted(
            (since, each.name)
            for each in by_group[name]
            if (since := idle_since(cluster, each, needed)) is not None
        )
        for since, slice_name_ in idle[: max(0, len(by_group[name]) - least)]:
            if now - since >= timeout:
                yield Removal(slice_name_, f"idle for {format_duration(now - since)}")


def idle_since(cluster: Cluster, each: Slice, needed: frozenset[WorkerId] = frozenset()) -> float | None:
    """Since when nothing runs on a slice that is ready; None if something does, may, or is to."""
    since = each.joined_at or 0.0
    for worker_id in each.workers:
        worker = cluster.workers.get(worker_id)
        if worker is None:
            continue  # the operator has forgotten it: nothing runs there
        if worker.claims or worker_id in needed or worker_id in cluster.ghosts:
            return None
        since = max(since, worker.freed_at)
    return since
