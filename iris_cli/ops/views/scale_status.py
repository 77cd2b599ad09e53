"""State of the scale groups: their slices and back-off, and the demand that no group serves."""

from collections.abc import Iterable, Mapping, Sequence

from iris_cli.capacity.provider import instructions
from iris_cli.core import REGION_ATTRIBUTE_KEY, Cluster, TaskId, count, format_duration, region_of_zone
from iris_cli.core.autoscaling.groups import GroupState
from iris_cli.core.autoscaling.scaling import ScalingPlan, plan_scaling
from iris_cli.core.grouping import group_pairs
from iris_cli.core.lifecycle import slices
from iris_cli.core.model.slice import ScaleGroup, Slice, SliceOwner, SliceState
from iris_cli.ops.secret_values import missing_for_jobs
from iris_cli.ops.session import Session
from iris_cli.ops.views.scaling_rows import CreatedSliceRow, ScaleGroupRow, Scaling, UnmetRow


def plan_of(
    session: Session, cluster: Cluster, now: float, silent: Mapping[str, str] | None = None
) -> ScalingPlan:
    """Return the plan of a pass at `now`; call no provider. `silent`: why the provider of a group did not answer."""
    return plan_scaling(
        cluster,
        session.config.scale_groups,
        now,
        session.limits,
        owner=session.cluster_id or "0000",
        missing=missing_for_jobs(cluster, session.state),
        silent=silent or {},
    )


def owner_conflict(session: Session, listings: Sequence[slices.Listing] = ()) -> slices.OwnerConflict | None:
    """Return why this state directory may not create and delete slices, or None if it may.

    The log is read AFTER the listings, so that the log contains each listed slice that this directory requested.
    """
    listed = [each for listing in listings for each in listing.slices]
    if session.view().slice_owner is None and not listed:
        return None
    return slices.owner_conflict(session.cluster, this_owner(session), session.cluster_id, listed)


def this_owner(session: Session) -> SliceOwner:
    return session.slice_owner or session.state.slice_owner


def scaling_rows(cluster: Cluster, plan: ScalingPlan, now: float) -> Scaling:
    """Return the rows of the scale groups and of the demand that no group serves."""
    by_group = group_pairs((each.group, _slice_row(each, now)) for each in cluster.slices.values())
    states = (*plan.states, *_removed_groups(cluster, plan.states))
    return Scaling(
        groups=tuple(_group(state, plan, tuple(by_group.get(state.name, ()))) for state in states),
        unmet=tuple(
            UnmetRow(id=str(each.entry.key), reason=each.reason.kind.value, text=str(each.reason))
            for each in plan.routing.unmet
        ),
    )


def demand_outcomes(plan: ScalingPlan) -> dict[TaskId, str]:
    """Map each task in the demand to the group that creates a slice for it, or to the reason why no group does."""
    routed = plan.routing.routed.items()
    served = ((entry, f"served by scale group {name}") for name, entries in routed for entry in entries)
    unmet = ((each.entry, f"not served: {each.reason}") for each in plan.routing.unmet)
    return {task: words for entry, words in (*served, *unmet) for task in entry.task_ids}


def who_creates(session: Session, cluster: Cluster, plan: ScalingPlan) -> Sequence[str]:
    """Return the command that creates the planned slices, if no cycle does that and no slice was created before."""
    if (
        session.config.scales
        or cluster.slice_owner is not None
        or not set(plan.routing.launch) - set(plan.by_hand)
    ):
        return ()
    return ("cluster.yaml says autoscale: off; to create slices for pending jobs: iris autoscale",)


def _removed_groups(cluster: Cluster, states: Iterable[GroupState]) -> Iterable[GroupState]:
    """Yield groups that are no longer in cluster.yaml but still have slices, because these slices cost money."""
    known = {state.name for state in states}
    templates = {each.group: each.template for each in cluster.slices.values() if each.group not in known}
    for name in sorted(templates):
        yield GroupState(group=ScaleGroup(name=name, template=templates[name], max_slices=0))


def _group(state: GroupState, plan: ScalingPlan, slices: tuple[CreatedSliceRow, ...]) -> ScaleGroupRow:
    group = state.group
    by_hand = plan.by_hand.get(group.name, 0)
    zone = group.template.zone
    return ScaleGroupRow(
        name=group.name,
        type=group.template.describe(state.vms),
        provider=group.template.provider.value,
        region=region_of_zone(zone) or str(group.attributes.get(REGION_ATTRIBUTE_KEY, "")),
        preemptible=group.template.preemptible,
        priority=group.priority,
        min_slices=group.min_slices,
        max_slices=group.max_slices,
        slices=slices,
        wanted=plan.routing.launch.get(group.name, 0),
        backing_off=state.backing_off,
        by_hand=tuple(instructions(group, by_hand)) if by_hand else (),
    )


def _slice_row(each: Slice, now: float) -> CreatedSliceRow:
    since = {
        SliceState.REQUESTED: each.requested_at,
        SliceState.CREATING: each.created_at,
        SliceState.BOOTING: each.started_at,
        SliceState.READY: each.joined_at,
        SliceState.DELETING: each.deleting_at,
    }[each.state]
    at = since if since is not None else each.requested_at
    in_set_up = each.state is SliceState.BOOTING and each.vms_to_set_up
    progress = f"{len(each.set_up)} of {count(len(each.hosts), 'VM')} set up" if in_set_up else ""
    runs = each.ends_at is not None and each.state is not SliceState.DELETING
    left = f"{format_duration(max(0.0, (each.ends_at or 0.0) - now))} left" if runs else ""
    return CreatedSliceRow(
        name=each.name,
        group=each.group,
        state=each.state.value,
        since_at=at,
        age=max(0.0, round(now - at, 3)),
        vms=len(each.hosts),
        reason="; ".join(filter(None, (each.reason or progress, each.remark, left))),
    )
