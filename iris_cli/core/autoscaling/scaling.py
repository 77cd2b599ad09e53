"""Scaling: which slices are to be made and which to be deleted now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import NamedTuple

from msgspec import Struct

from iris_cli.core.autoscaling.catalogue import Catalogue
from iris_cli.core.autoscaling.demand import DemandEntry, Survey, survey, without_preferences
from iris_cli.core.autoscaling.groups import GroupState, by_waterfall, coming
from iris_cli.core.autoscaling.leftovers import IdleSite
from iris_cli.core.autoscaling.removals import Removal, idle, stuck
from iris_cli.core.autoscaling.routing import RoutingDecision, route_demand
from iris_cli.core.autoscaling.standing import group_states
from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.missing import NOTHING_MISSING, Missing
from iris_cli.core.model.scale_group import Provider, ScaleGroup
from iris_cli.core.model.slice import SliceState, slice_name, slice_of
from iris_cli.core.model.task import AttemptState
from iris_cli.core.model.worker import Worker, WorkerCondition
from iris_cli.core.scheduling import plan
from iris_cli.core.scheduling.capacity import positions_of
from iris_cli.core.scheduling.order import by_job
from iris_cli.core.scheduling.sites import REGION, VARIANT

_MINUTE = 60.0


class Order(NamedTuple):
    """A slice to be made, and jobs that it is for: it, or one that is made with it."""

    slice: str
    group: ScaleGroup
    wanted_by: tuple[JobId, ...] = ()


class ScalingPlan(Struct, frozen=True, kw_only=True):
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
            for removal in (
                *stuck(cluster, groups, now, limits),
                *idle(cluster, groups, _needed(cluster, states, found, routing), now),
            )
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
    workers = list(hopeful.workers.values())
    return survey(made.result, workers, tasks, cluster.jobs.get, now, made.waiting_for_theirs)


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
    hoped_for = copy(cluster)
    hoped_for.workers, hoped_for.jobs, hoped_for.ghosts = workers, jobs, {}
    return hoped_for


def _hoped_for(cluster: Cluster, worker: Worker) -> Worker:
    if not (worker.claims or worker.cooldown_until or worker.condition is WorkerCondition.SUSPECT):
        return worker
    claims = {
        attempt: claim
        for attempt, claim in worker.claims.items()
        if cluster.attempt(attempt).state is not AttemptState.STOPPING
    }
    hoped_for = copy(worker)
    hoped_for.claims, hoped_for.cooldown_until = claims, 0.0
    if worker.condition is WorkerCondition.SUSPECT:
        hoped_for.condition = WorkerCondition.HEALTHY
    return hoped_for


def _needed(
    cluster: Cluster, states: Sequence[GroupState], found: Survey, routing: RoutingDecision
) -> frozenset[WorkerId]:
    """The workers that must stay. What is kept for a gang that can never have all of its slices is kept for nothing."""
    unmet = {each.entry.key: each.entry for each in routing.unmet}
    kept = [
        site.workers
        for job, sites in found.kept.items()
        for site in sites
        if job not in unmet or _in_reach(cluster, states, unmet[job], site)
    ]
    return found.placed.union(*kept)


def _in_reach(cluster: Cluster, states: Sequence[GroupState], entry: DemandEntry, idle: IdleSite) -> bool:
    """Whether the groups at a site could have enough slices, beside those that are idle and are none of theirs."""
    if entry.invalid_reason or entry.shape is None:
        return False
    catalogue, depth = Catalogue(states), VARIANT if entry.spread else REGION
    most = sum(
        catalogue.states[rank].group.max_slices
        for rank in positions_of(catalogue.serving(entry))
        if catalogue.place(entry, rank)[:depth] == idle.place[:depth]
    )
    made = {slice_of(worker) for worker in idle.workers} & cluster.slices.keys()
    return entry.shape.groups <= most + idle.slices - len(made)


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
        each.group == state.name
        and each.state is not SliceState.DELETING
        and state.group.makes(each.template)
        for each in cluster.slices.values()
    )
    return max(0, state.group.min_slices - there)


def _asked_for_lately(cluster: Cluster, group: str, now: float) -> int:
    return sum(
        each.group == group and 0 <= now - each.requested_at < _MINUTE for each in cluster.slices.values()
    )
