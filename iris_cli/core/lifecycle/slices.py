"""Effects of the providers' lists of slices: slices start, join, fail and end. The list decides, not a call's answer.

A slice is requested, and deleted, only after the log says so. A lost call is repeated under the same name; a listed
iris slice that the log does not know is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from iris_cli.core import Cluster, Connection, JobId, Limits, WorkerCondition, WorkerId, count, lookup
from iris_cli.core.autoscaling.groups import backing_off
from iris_cli.core.autoscaling.scaling import Removal, ScalingPlan
from iris_cli.core.events import events
from iris_cli.core.events.events import SlicesAdopted
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import identity
from iris_cli.core.lifecycle.workers import hold_until_complete
from iris_cli.core.messages.cloud import CallOutcome, CloudSlice, CloudState, Refusal, Scope
from iris_cli.core.model.slice import INCOMPLETE, Slice, SliceOwner, SliceState, SliceTemplate, slice_number

_QUOTA_WAITS = 5  # as a multiple of other back-offs: quota and capacity do not return within a minute
_NO_ROOM = (Refusal.QUOTA, Refusal.STOCKOUT)


class Listing(Struct, frozen=True, kw_only=True):
    """All iris slices in one scope, and the slices of the log before the list was requested."""

    scope: Scope
    slices: tuple[CloudSlice, ...]
    before: Mapping[str, Slice]


def observed(
    draft: Draft, listing: Listing, connections: Mapping[str, Connection], limits: Limits
) -> list[JobId]:
    """Apply a list of slices; return the jobs whose attempts ended with a slice. `connections` are by group name.

    A missing slice counts only if its record has not changed since before the list was requested.
    """
    there = {each.name: each for each in listing.slices}
    touched: list[JobId] = []
    for known in [each for each in draft.cluster.slices.values() if Scope.of(each.template) == listing.scope]:
        seen = there.get(known.name)
        if seen is not None:
            touched += _seen(draft, known, seen, connections, limits)
        elif listing.before.get(known.name) == known:
            touched += _missing(draft, known, limits)
    for seen in listing.slices:
        if seen.name not in draft.cluster.slices and seen.name not in listing.before:
            template = SliceTemplate(
                provider=listing.scope.provider,
                project=listing.scope.project,
                zone=listing.scope.zone,
                type="",
            )
            draft.record(
                events.SliceDeletionRequested(
                    slice=seen.name, reason="not in the log", group=seen.group, template=template
                )
            )
    return touched


def joined(draft: Draft) -> None:
    """Turn the VMs of each slice into workers once all of them have passed their probes and are set up."""
    for each in list(draft.cluster.slices.values()):
        booted = each.state is SliceState.BOOTING and not each.to_set_up
        if booted and all(is_well(draft.cluster, worker) for worker in each.workers):
            draft.record(events.SliceJoined(slice=each.name))
            for worker in each.workers:
                if draft.cluster.workers[worker].drain_reason == INCOMPLETE:
                    draft.record(events.WorkerUncordoned(worker=worker))


def set_ups_due(cluster: Cluster) -> list[tuple[Slice, int]]:
    """Return the healthy VMs whose set-up is to be started or polled: slices and VM numbers."""
    return [
        (each, vm)
        for each in cluster.slices.values()
        if each.state is SliceState.BOOTING
        for vm in each.to_set_up
        if is_well(cluster, each.workers[vm])
    ]


def set_up_ended(draft: Draft, ended: events.SliceSetUp, limits: Limits) -> None:
    """Record the end of a set-up. A failure deletes the whole slice, since an immediate retry would fail, too."""
    known = draft.cluster.slices.get(ended.slice)
    if known is None or known.state is not SliceState.BOOTING or ended.vm not in known.to_set_up:
        return
    draft.record(ended)
    if ended.error:
        reason = f"set-up failed on {known.workers[ended.vm]}: {ended.error}"
        remove(draft, Removal(known.name, reason, failed=True), limits)


def intend(draft: Draft, plan: ScalingPlan, limits: Limits) -> None:
    """Record the decisions of a plan. A group whose slice just failed backs off: a request would expire unsent."""
    for removal in plan.delete:
        remove(draft, removal, limits)
    for order in plan.create:
        group = order.group
        if backing_off(draft.cluster.scale_groups.get(group.name), draft.at, limits):
            continue
        draft.record(
            events.SliceRequested(
                slice=order.slice,
                group=group.name,
                template=group.template,
                setup=group.setup.strip(),
                wanted_by=order.wanted_by,
            )
        )


def remove(draft: Draft, removal: Removal, limits: Limits) -> None:
    """Order the deletion of a slice: its VMs accept no new work, and VMs without attempts are forgotten."""
    known = draft.cluster.slices[removal.slice]
    draft.record(events.SliceDeletionRequested(slice=removal.slice, reason=removal.reason))
    if removal.failed:
        back_off(draft, known.group, f"{known.name}: {removal.reason}", limits)
    _dismiss(draft, known, removal.reason)


def calls_due(
    cluster: Cluster, listed: Mapping[Scope, Iterable[str]], now: float, limits: Limits
) -> tuple[list[Slice], list[Slice]]:
    """Return the slices to create, unless their group backs off, and those to delete, in the listed scopes."""
    create, delete = [], []
    names = {scope: frozenset(some) for scope, some in listed.items()}
    for each in cluster.slices.values():
        scope = Scope.of(each.template)
        if scope not in names:
            continue
        if each.state is SliceState.DELETING:
            delete.append(each)
        elif each.state is SliceState.REQUESTED and each.name not in names[scope]:
            record = cluster.scale_groups.get(each.group)
            if not backing_off(record, now, limits):
                create.append(each)
    return create, delete


def create_answered(draft: Draft, outcome: CallOutcome, limits: Limits) -> None:
    """Record the answer to a request for a slice. Without an answer the request is repeated."""
    known = draft.cluster.slices.get(outcome.slice)
    if known is None or known.state is not SliceState.REQUESTED:
        return
    if outcome.refusal is None:
        draft.record(events.SliceCreated(slice=outcome.slice))
        return
    back_off(
        draft, known.group, f"{outcome.refusal}: {outcome.error}", limits, quota=outcome.refusal in _NO_ROOM
    )
    if outcome.refusal is not Refusal.UNANSWERED:
        draft.record(events.SliceRefused(slice=outcome.slice, error=outcome.error))


def back_off(draft: Draft, group: str, error: str, limits: Limits, *, quota: bool = False) -> None:
    """Stop creating slices in a group for a while; simultaneous failures count once."""
    record = draft.cluster.scale_groups.get(group)
    if record is not None and backing_off(record, draft.at, limits):
        return
    failures = record.failures + 1 if record is not None else 1
    wait = limits.scale_backoff_first * 2.0 ** min(failures - 1, 32) * (_QUOTA_WAITS if quota else 1)
    until = round(draft.at + min(wait, limits.scale_backoff_max), 3)
    draft.record(events.ScaleGroupBackedOff(group=group, error=error, failures=failures, until=until))


# One slice of a list


def _seen(
    draft: Draft, known: Slice, seen: CloudSlice, connections: Mapping[str, Connection], limits: Limits
) -> list[JobId]:
    if known.state is SliceState.DELETING:
        return _dead(draft, known, seen.detail) if seen.state is CloudState.STOPPED else []
    if known.state is SliceState.REQUESTED:
        draft.record(events.SliceCreated(slice=known.name))
    if seen.state is CloudState.CREATING:
        return []
    # A list entry without a machine, as of a request that lost its machine, is no evidence of another machine.
    another = bool(known.incarnation and seen.incarnation) and seen.incarnation != known.incarnation
    if seen.state is CloudState.READY and not another:
        if known.hosts != seen.hosts and not _is_half_made(known, seen):
            _started(draft, known, seen, connections)
        return []
    reason = "it is a different machine now" if another else seen.detail or seen.state.value
    if known.coming:
        back_off(draft, known.group, f"{known.name}: {reason}", limits, quota=seen.quota)
    remove(draft, Removal(known.name, reason), limits)
    return _dead(draft, known, reason) if another or seen.state is CloudState.STOPPED else []


def _is_half_made(known: Slice, seen: CloudSlice) -> bool:
    """Return whether VMs of the slice are missing. They may follow; otherwise a timeout deletes the slice."""
    kind = lookup(known.template.type)
    return len(seen.hosts) < (kind.vms if kind is not None else 1)


def _missing(draft: Draft, known: Slice, limits: Limits) -> list[JobId]:
    """Handle a slice that is not listed: REQUESTED is requested again; any other is gone."""
    if known.state is SliceState.REQUESTED:
        return []
    if known.state is SliceState.DELETING:
        touched = _dead(draft, known, known.reason)
        draft.record(events.SliceDeleted(slice=known.name))
        return touched
    reason = "no longer listed by its provider"
    if known.coming:
        back_off(draft, known.group, f"{known.name}: {reason}", limits)
    remove(draft, Removal(known.name, reason), limits)
    return _dead(draft, known, reason)


def _started(draft: Draft, known: Slice, seen: CloudSlice, connections: Mapping[str, Connection]) -> None:
    """Register its VMs, which accept no work before all of them are healthy."""
    draft.record(events.SliceStarted(slice=known.name, hosts=seen.hosts, incarnation=seen.incarnation))
    connection = connections.get(known.group)
    if connection is None:
        return
    for worker, its in connections_of(draft.cluster.slices[known.name], connection).items():
        if worker not in draft.cluster.workers:
            draft.record(events.WorkerRegistered(worker=worker, connection=its))
            hold_until_complete(draft, worker)


def connections_of(known: Slice, connection: Connection) -> dict[WorkerId, Connection]:
    """Return the connection to each VM. A new host's first key is accepted unless the provider reported its key."""
    return {
        worker: Connection(
            host=host.host,
            user=connection.user,
            port=host.port or connection.port,
            key=connection.key,
            proxy_jump=connection.proxy_jump,
            known_hosts="strict" if host.key else "accept-new",
            remote_dir=connection.remote_dir,
            allocation=connection.allocation,
            node=connection.node,
            login=connection.login,
        )
        for worker, host in zip(known.workers, known.hosts, strict=True)
    }


def _dismiss(draft: Draft, known: Slice, reason: str) -> None:
    for worker_id in known.workers:
        worker = draft.cluster.workers.get(worker_id)
        if worker is None:
            continue
        if not worker.claims:
            draft.record(events.WorkerForgotten(worker=worker_id, reason=f"its slice is deleted: {reason}"))
        elif not worker.draining:
            draft.record(events.WorkerDrained(worker=worker_id, reason=f"its slice is deleted: {reason}"))


def _dead(draft: Draft, known: Slice, reason: str) -> list[JobId]:
    """End the attempts on the machines of a slice: the provider's report that they do not run is proof."""
    touched: list[JobId] = []
    for worker_id in [each for each in known.workers if each in draft.cluster.workers]:
        ended = identity.machine_gone(draft, worker_id, f"slice {known.name} is gone: {reason}")
        touched += [attempt_id.task.job for attempt_id in ended]
    return list(dict.fromkeys(touched))


def is_well(cluster: Cluster, worker_id: WorkerId) -> bool:
    worker = cluster.workers.get(worker_id)
    return worker is not None and worker.condition is WorkerCondition.HEALTHY and not worker.unschedulable


# Exactly one state directory manages the slices of a log, because a copy does not know later events. A copy has the
# same owner: it would see the original's newer slices as unknown slices of its own, and its busy slices as idle. So
# the log names its directory, and any other directory creates and deletes no slices. If an old log was restored in
# the same directory, the slice numbers reveal it.


class Objection(Struct, frozen=True, kw_only=True):
    """An objection to changing slices from this directory: managed `elsewhere`, or some are `unheard_of`."""

    elsewhere: str = ""
    unheard_of: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.elsewhere:
            what = "this state directory was copied or moved"
            return f"slices are managed from {self.elsewhere}; {what}"
        there = f"{count(len(self.unheard_of), 'slice')} of this cluster ({', '.join(self.unheard_of)})"
        return f"this log never created {there}: it is an old copy, or another copy is in use"


def objection(
    cluster: Cluster, here: SliceOwner, owner: str, listed: Iterable[CloudSlice] = ()
) -> Objection | None:
    """Return the objection to changing slices from this directory, as far as the `listed` slices show it; or None."""
    kept = cluster.keeper
    elsewhere = kept.where or kept.place if kept is not None and kept.place != here.place else ""
    beyond = tuple(sorted(each.name for each in listed if _is_beyond(cluster, each.name, owner)))
    return Objection(elsewhere=elsewhere, unheard_of=beyond) if elsewhere or beyond else None


def _is_beyond(cluster: Cluster, name: str, owner: str) -> bool:
    """Return whether a slice's number is higher than any in the log, which counts slices before it requests them."""
    numbered = slice_number(name, owner)
    if numbered is None or name in cluster.slices:
        return False
    record = cluster.scale_groups.get(numbered[0])
    return numbered[1] > (record.requested if record is not None else 0)


def claim(draft: Draft, here: SliceOwner) -> None:
    """Record this directory as the manager of slices with the log's first slice."""
    if draft.cluster.keeper is None and draft.cluster.slices:
        draft.record(SlicesAdopted(place=here.place, where=here.where))


def adopt(draft: Draft, here: SliceOwner, owner: str, unheard_of: Iterable[str]) -> None:
    """Record this directory as the manager of slices, and accept the deletion of these unknown slices."""
    counted: dict[str, int] = {}
    for name in unheard_of:
        numbered = slice_number(name, owner)
        if numbered is not None and _is_beyond(draft.cluster, name, owner):
            counted[numbered[0]] = max(numbered[1], counted.get(numbered[0], 0))
    if draft.cluster.keeper != here or counted:
        draft.record(SlicesAdopted(place=here.place, where=here.where, counted=counted))
