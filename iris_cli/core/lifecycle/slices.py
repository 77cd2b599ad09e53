"""Update slices from the providers' lists. Only a list proves the state of a slice; no answer to a request does.

iris records each creation and deletion in the log before it calls the provider. It repeats a lost call with the same
slice name. It deletes a listed slice of this cluster that is not in the log.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from iris_cli.core import INCOMPLETE, AttributeValue, Cluster, JobId, Limits, Provider, WorkerId, count
from iris_cli.core.attributes import CGROUP_OF_JOB_ATTRIBUTE_KEY
from iris_cli.core.autoscaling.groups import backoff_reason
from iris_cli.core.autoscaling.scaling import Removal, ScalingPlan
from iris_cli.core.events import events
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import identity
from iris_cli.core.lifecycle.workers import hold_until_complete, remove_worker
from iris_cli.core.messages.cloud import CallOutcome, CloudSlice, CloudState, Refusal, Scope
from iris_cli.core.model.limits import doubling_backoff
from iris_cli.core.model.slice import NodeAccess, Slice, SliceOwner, SliceState, SliceTemplate, slice_number
from iris_cli.core.model.worker import DEFAULT_REMOTE_DIR, SLICE_IS_DELETED, Connection, WorkerCondition

_SHORTAGE_FACTOR = 5  # factor of back-offs if quota or capacity is missing, because shortages last longer
_SHORTAGES = (Refusal.QUOTA, Refusal.STOCKOUT)
SUBMIT_DEADLINE = 120.0
"""Seconds after which a submission without an answer can no longer reach Slurm."""


class Listing(Struct, frozen=True, kw_only=True):
    """All iris slices in one scope (project and zone). `before`: the slices in the log when the list was requested."""

    scope: Scope
    slices: tuple[CloudSlice, ...]
    before: Mapping[str, Slice]


def apply_listing(
    draft: Draft, listing: Listing, connections: Mapping[str, Connection], limits: Limits
) -> list[JobId]:
    """Apply a list of slices. Return the jobs with attempts that ended because their slice is gone.

    `connections` are by group name. A slice that is not listed is treated as gone only if its record has not
    changed since the list was requested.
    """
    listed = {each.name: each for each in listing.slices}
    affected: list[JobId] = []
    for known in [each for each in draft.cluster.slices.values() if Scope.of(each.template) == listing.scope]:
        entry = listed.get(known.name)
        if entry is not None:
            affected += _apply_listed(draft, known, entry, connections, limits)
        elif listing.before.get(known.name) == known:
            affected += _apply_missing(draft, known, limits)
    for entry in listing.slices:
        if entry.name not in draft.cluster.slices and entry.name not in listing.before:
            provider, project, zone = listing.scope
            template = SliceTemplate(provider=provider, project=project, zone=zone, type="")
            draft.record(
                events.SliceDeletionRequested(
                    slice=entry.name, reason="not in the log", group=entry.group, template=template
                )
            )
    return affected


def join_complete_slices(draft: Draft) -> None:
    """Record `SliceJoined` for each slice whose VMs are all probed and set up: its workers now accept tasks."""
    for each in list(draft.cluster.slices.values()):
        is_set_up = each.state is SliceState.BOOTING and not each.vms_to_set_up
        if is_set_up and all(can_join(draft.cluster, worker) for worker in each.workers):
            draft.record(events.SliceJoined(slice=each.name))
            for worker in each.workers:
                if draft.cluster.workers[worker].drain_reason == INCOMPLETE:
                    draft.record(events.WorkerUncordoned(worker=worker))


def set_ups_due(cluster: Cluster) -> list[tuple[Slice, int]]:
    """Return the healthy VMs whose set-up must be started or polled, as pairs of slice and VM number."""
    return [
        (each, vm)
        for each in cluster.slices.values()
        if each.state is SliceState.BOOTING
        for vm in each.vms_to_set_up
        if can_join(cluster, each.workers[vm])
    ]


def record_set_up(draft: Draft, ended: events.SliceSetUp, limits: Limits) -> None:
    """Record the end of a set-up. After a failure the slice is deleted, because a retry would fail, too."""
    known = draft.cluster.slices.get(ended.slice)
    if known is None or known.state is not SliceState.BOOTING or ended.vm not in known.vms_to_set_up:
        return
    draft.record(ended)
    if ended.error:
        reason = f"set-up failed on {known.workers[ended.vm]}: {ended.error}"
        remove(draft, Removal(known.name, reason, failed=True), limits)


def record_scaling_plan(draft: Draft, plan: ScalingPlan, limits: Limits) -> None:
    """Record the decisions of a plan, except new slices of groups in back-off."""
    for removal in plan.delete:
        remove(draft, removal, limits)
    for name, group, wanted_by in plan.create:
        if not backoff_reason(draft.cluster.scale_groups.get(group.name), draft.at, limits):
            template, setup = group.template, group.setup.strip()
            draft.record(
                events.SliceRequested(
                    slice=name, group=group.name, template=template, setup=setup, wanted_by=wanted_by
                )
            )


def remove(draft: Draft, removal: Removal, limits: Limits) -> None:
    """Order the deletion of a slice. Drain its workers, or forget them if they have no attempts."""
    known = draft.cluster.slices[removal.slice]
    draft.record(events.SliceDeletionRequested(slice=removal.slice, reason=removal.reason))
    if removal.failed:
        back_off(draft, known.group, f"{known.name}: {removal.reason}", limits)
    for worker_id in _registered_workers(draft.cluster, known):
        remove_worker(draft, worker_id, f"{SLICE_IS_DELETED}: {removal.reason}")


def calls_due(
    cluster: Cluster, listed: Mapping[Scope, Iterable[str]], now: float, limits: Limits
) -> tuple[list[Slice], list[Slice]]:
    """Return the slices to request and the slices to delete.

    `listed` has the names of the listed slices of each scope. Slices of other scopes are not returned, and no slice is
    requested for a group in back-off.
    """
    create, delete = [], []
    names = {scope: frozenset(listed_names) for scope, listed_names in listed.items()}
    for each in cluster.slices.values():
        scope = Scope.of(each.template)
        if scope not in names:
            continue
        if each.state is SliceState.DELETING:
            delete.append(each)
        elif each.state is SliceState.REQUESTED and each.name not in names[scope]:
            record = cluster.scale_groups.get(each.group)
            if not backoff_reason(record, now, limits):
                create.append(each)
    return create, delete


def record_create_answer(draft: Draft, outcome: CallOutcome, limits: Limits) -> None:
    """Record the answer to a request for a slice. A later cycle repeats a request without an answer."""
    known = draft.cluster.slices.get(outcome.slice)
    if known is None or known.state is not SliceState.REQUESTED:
        return
    if outcome.refusal is None:
        draft.record(events.SliceCreated(slice=outcome.slice))
        return
    error, shortage = f"{outcome.refusal}: {outcome.error}", outcome.refusal in _SHORTAGES
    back_off(draft, known.group, error, limits, shortage=shortage)
    if outcome.refusal is not Refusal.UNANSWERED:
        draft.record(events.SliceRefused(slice=outcome.slice, error=outcome.error))


def back_off(draft: Draft, group: str, error: str, limits: Limits, *, shortage: bool = False) -> None:
    """Record a failure of a group: the group backs off. Further failures during a back-off are ignored."""
    record = draft.cluster.scale_groups.get(group)
    if record is not None and backoff_reason(record, draft.at, limits):
        return
    failures = record.failures + 1 if record is not None else 1
    first = limits.scale_backoff_first * (_SHORTAGE_FACTOR if shortage else 1)
    until = round(draft.at + doubling_backoff(first, failures, limits.scale_backoff_max), 3)
    draft.record(events.ScaleGroupBackedOff(group=group, error=error, failures=failures, until=until))


def _apply_listed(
    draft: Draft, known: Slice, entry: CloudSlice, connections: Mapping[str, Connection], limits: Limits
) -> list[JobId]:
    if known.state is SliceState.DELETING:
        return _apply_listed_deleting(draft, known, entry)
    if known.state is SliceState.REQUESTED:
        draft.record(events.SliceCreated(slice=known.name))
    if (entry.remark, entry.ends_at) != (known.remark, known.ends_at):
        draft.record(events.SliceReported(slice=known.name, remark=entry.remark, ends_at=entry.ends_at))
    # A listed slice without VMs has no incarnation: that does not prove that the slice was re-created.
    recreated = bool(known.incarnation and entry.incarnation) and entry.incarnation != known.incarnation
    if entry.state is CloudState.CREATING and not recreated:
        return []
    if entry.state is CloudState.READY and not recreated:
        # If VMs are missing in the list and stay missing, a timeout deletes the slice.
        if known.hosts != entry.hosts and len(entry.hosts) >= (known.template.vms or 1):
            _register(draft, known, entry, connections)
        return []
    reason = entry.detail or entry.state.value
    if recreated:
        reason = f"its VMs were re-created ({reason})"
    if known.is_provisioning:
        back_off(draft, known.group, f"{known.name}: {reason}", limits, shortage=entry.quota)
    remove(draft, Removal(known.name, reason), limits)
    if entry.state is CloudState.ENDED:
        return _end_attempts(draft, known, reason, processes_gone=entry.processes_gone)
    return _end_attempts(draft, known, reason) if recreated or entry.state is CloudState.STOPPED else []


def _apply_listed_deleting(draft: Draft, known: Slice, entry: CloudSlice) -> list[JobId]:
    """Handle a listed slice that iris deletes. If its allocation has ended, nothing is left to delete."""
    if entry.state is CloudState.ENDED:
        affected = _end_attempts(draft, known, entry.detail, processes_gone=entry.processes_gone)
        draft.record(events.SliceDeleted(slice=known.name))
        return affected
    return _end_attempts(draft, known, entry.detail) if entry.state is CloudState.STOPPED else []


def _apply_missing(draft: Draft, known: Slice, limits: Limits) -> list[JobId]:
    """Handle a slice that is not listed. The slice is gone, unless the provider may still get its creation request."""
    if known.state is SliceState.REQUESTED or _may_arrive_later(known, draft.at):
        return []
    if known.state is SliceState.DELETING:
        affected = _end_attempts(draft, known, known.reason)
        draft.record(events.SliceDeleted(slice=known.name))
        return affected
    reason = "no longer listed by its provider"
    if known.is_provisioning:
        back_off(draft, known.group, f"{known.name}: {reason}", limits)
    remove(draft, Removal(known.name, reason), limits)
    return _end_attempts(draft, known, reason)


def _may_arrive_later(known: Slice, now: float) -> bool:
    """Return whether a submission without an answer may still reach Slurm, so that a missing Slurm job proves nothing.

    It can't after SUBMIT_DEADLINE seconds from the order to delete the slice.
    """
    is_unanswered = known.template.provider is Provider.SLURM and known.created_at is None
    return is_unanswered and known.deleting_at is not None and 0 <= now - known.deleting_at < SUBMIT_DEADLINE


def _register(draft: Draft, known: Slice, entry: CloudSlice, connections: Mapping[str, Connection]) -> None:
    """Register the VMs of a slice as workers. They accept no tasks until all VMs are healthy and set up."""
    draft.record(events.SliceStarted(slice=known.name, hosts=entry.hosts, incarnation=entry.incarnation))
    connection = connections.get(known.group)
    if connection is None:
        return
    for worker, to_vm in connections_of(draft.cluster.slices[known.name], connection).items():
        if worker not in draft.cluster.workers:
            draft.record(events.WorkerRegistered(worker=worker, connection=to_vm))
            hold_until_complete(draft, worker)


def connections_of(known: Slice, connection: Connection) -> dict[WorkerId, Connection]:
    """Return the connection to each VM. A new host key is accepted if the provider does not report the key."""
    is_default = connection.remote_dir == DEFAULT_REMOTE_DIR
    allocation = known.allocation if known.template.slurm.transport is NodeAccess.SRUN else ""
    return {
        worker: Connection(
            host=host.host,
            user=connection.user,
            port=host.port or connection.port,
            key=connection.key,
            proxy_jump=connection.proxy_jump,
            known_hosts="strict" if host.key else "accept-new",
            remote_dir=(is_default and host.remote_dir) or connection.remote_dir,
            allocation=allocation,
            node=host.host if allocation else "",
            login=known.template.slurm.login if allocation else "",
        )
        for worker, host in zip(known.workers, known.hosts, strict=True)
    }


def _registered_workers(cluster: Cluster, known: Slice) -> list[WorkerId]:
    return [worker for worker in known.workers if worker in cluster.workers]


def _end_attempts(draft: Draft, known: Slice, reason: str, *, processes_gone: bool = False) -> list[JobId]:
    """Record the end of a slice's attempts. Return the jobs of the ended attempts.

    The provider's report that the VMs do not run is proof, but processes can outlive a Slurm allocation. Their end is
    proven only if Slurm reports that the cgroups of its Slurm job are empty (`processes_gone`), and only on nodes where
    the probe found iris's processes inside such a cgroup. On other nodes iris stops each attempt, and records its end
    when the worker confirms the stop.
    """
    gone: list[WorkerId] = []
    for worker_id in known.workers:
        worker = draft.cluster.workers.get(worker_id)  # None if forgotten; then its presumed attempts remain
        cgroup = worker.attributes.get(CGROUP_OF_JOB_ATTRIBUTE_KEY) if worker is not None else None
        proven = processes_gone and cgroup == AttributeValue(known.allocation)
        if proven or known.template.provider is not Provider.SLURM:
            gone.append(worker_id)
        elif worker is not None:
            identity.stop_attempts(draft, worker_id)
    error = f"slice {known.name} is gone: {reason}"
    ended = [attempt for worker in gone for attempt in identity.remove_machine(draft, worker, error)]
    return list(dict.fromkeys(attempt.task.job for attempt in ended))


def can_join(cluster: Cluster, worker_id: WorkerId) -> bool:
    """Return whether the VM is registered and healthy, and passed its probe."""
    worker = cluster.workers.get(worker_id)
    return worker is not None and worker.condition is WorkerCondition.HEALTHY and not worker.unschedulable


# Exactly one state directory manages the slices of a log. A copy of the log lacks later events. An invocation with a
# copy would take newer slices for unknown ones and busy slices for idle ones, and would delete both. Therefore the log
# names its directory, and iris creates and deletes no slices from another directory. Slice numbers reveal that an old
# log was restored in the same directory.


class OwnerConflict(Struct, frozen=True, kw_only=True):
    """The reason why this state directory must not change slices.

    `elsewhere`: the other state directory that manages the slices. `unknown`: listed slices that are not in the log.
    """

    elsewhere: str = ""
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.elsewhere:
            cause = "this state directory was copied or moved"
            return f"slices are managed from {self.elsewhere}; {cause}"
        slices = f"{count(len(self.unknown), 'slice')} of this cluster ({', '.join(self.unknown)})"
        return f"this log lacks {slices}; it is an old copy, or another copy is in use"


def owner_conflict(
    cluster: Cluster, this_owner: SliceOwner, cluster_id: str, listed: Iterable[CloudSlice] = ()
) -> OwnerConflict | None:
    """Return why `this_owner` must not change slices, or None. `listed`: the slices as their providers list them."""
    owner = cluster.slice_owner
    elsewhere = owner.where or owner.place if owner is not None and owner.place != this_owner.place else ""
    unknown = tuple(sorted(each.name for each in listed if _is_unknown(cluster, each.name, cluster_id)))
    return OwnerConflict(elsewhere=elsewhere, unknown=unknown) if elsewhere or unknown else None


def _is_unknown(cluster: Cluster, name: str, cluster_id: str) -> bool:
    """Return whether the slice's number is higher than all numbers in the log. iris records a number before its use."""
    group_and_number = slice_number(name, cluster_id)
    if group_and_number is None or name in cluster.slices:
        return False
    record = cluster.scale_groups.get(group_and_number[0])
    return group_and_number[1] > (record.requested if record is not None else 0)


def record_first_owner(draft: Draft, this_owner: SliceOwner) -> None:
    """Record this directory as the owner of the slices, if the log has slices and no owner yet."""
    if draft.cluster.slice_owner is None and draft.cluster.slices:
        draft.record(events.SlicesAdopted(place=this_owner.place, where=this_owner.where))


def record_new_owner(draft: Draft, this_owner: SliceOwner, cluster_id: str, unknown: Iterable[str]) -> None:
    """Record this directory as owner of the slices, and the numbers of `unknown` slices, which iris then deletes."""
    counted: dict[str, int] = {}
    for name in unknown:
        group_and_number = slice_number(name, cluster_id)
        if group_and_number is not None and _is_unknown(draft.cluster, name, cluster_id):
            counted[group_and_number[0]] = max(group_and_number[1], counted.get(group_and_number[0], 0))
    if draft.cluster.slice_owner != this_owner or counted:
        draft.record(events.SlicesAdopted(place=this_owner.place, where=this_owner.where, counted=counted))
