"""Which slices are to be deleted now: those that take too long, those that nobody wants, and those that are idle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from iris_cli.core.ids import WorkerId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.scale_group import ScaleGroup
from iris_cli.core.model.slice import Slice, SliceState
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.core.units import format_duration

_IDLE_TIMEOUT = 600.0  # of a group that the configuration knows no more


class Removal(NamedTuple):
    """A slice to be deleted, and why. `failed`: its group backs off for it."""

    slice: str
    reason: str
    failed: bool = False


def stuck(cluster: Cluster, groups: Sequence[ScaleGroup], now: float, limits: Limits) -> Iterable[Removal]:
    """Half-made slices that take too long, which eat quota, and those to come that nobody wants any more."""
    surplus = {group.name: group.max_slices for group in groups}
    for each in cluster.slices.values():
        if each.group in surplus and each.requested_at:
            surplus[each.group] -= 1
    for each in reversed(cluster.slices.values()):
        if each.coming and each.group not in surplus:
            yield Removal(each.name, "its scale group is in the configuration no more")
            continue
        if each.state is SliceState.REQUESTED and surplus[each.group] < 0:
            surplus[each.group] += 1
            yield Removal(each.name, "its group has more slices than its max_slices")
            continue
        if each.coming and not each.expected(now, limits.slice_request_timeout):
            words = f"its provider took no request for it in {format_duration(limits.slice_request_timeout)}"
            yield Removal(each.name, words, failed=True)
            continue
        asked = each.state in (SliceState.REQUESTED, SliceState.CREATING)
        if asked and _is_over(each.requested_at, limits.slice_create_timeout, now):
            words = f"not there after {format_duration(limits.slice_create_timeout)}"
            yield Removal(each.name, words, failed=True)
        if boots_too_long(each, now, limits):
            words = f"its VMs were not ready after {format_duration(limits.slice_boot_timeout)}"
            yield Removal(each.name, _lagging(cluster, each, words), failed=True)


def boots_too_long(each: Slice, now: float, limits: Limits) -> bool:
    """Whether its VMs are there, and have had all the time that they get to be well and set up."""
    booting = each.started_at is not None and each.state is SliceState.BOOTING
    return booting and _is_over(each.started_at or 0.0, limits.slice_boot_timeout, now)


def _is_over(since: float, wait: float, now: float) -> bool:
    """Whether a wait is over. One that began too far in the future is: a clock was wrong, and slices cost money."""
    return not -wait < now - since < wait


def _lagging(cluster: Cluster, each: Slice, words: str) -> str:
    """With the first VM that is to blame."""
    for worker_id in each.workers:
        worker = cluster.workers.get(worker_id)
        if worker is not None and (worker.unschedulable or worker.condition is not WorkerCondition.HEALTHY):
            return f"{words} ({worker_id}: {worker.reason or worker.condition})"
    return (
        f"{words} ({each.workers[each.to_set_up[0]]}: its set-up has not ended)" if each.to_set_up else words
    )


def idle(
    cluster: Cluster, groups: Sequence[ScaleGroup], needed: frozenset[WorkerId], now: float
) -> Iterable[Removal]:
    """Of each group those that have been idle for long, the longest first, as long as enough are left.

    Those that have lost a VM, or were made by an older template, don't count among these.
    """
    known = {group.name: group for group in groups}
    by_group: dict[str, list[Slice]] = {}
    for each in cluster.slices.values():
        if each.state is SliceState.READY:
            by_group.setdefault(each.group, []).append(each)
    for name in sorted(by_group):
        group = known.get(name)
        least = group.min_slices if group is not None else 0
        timeout = group.idle_timeout if group is not None else _IDLE_TIMEOUT
        free = sorted(
            (since, each.name)
            for each in by_group[name]
            if (since := idle_since(cluster, each, needed)) is not None
        )
        unfit = {each.name: why for each in by_group[name] if (why := _unfit(cluster, each, group))}
        spare = len(by_group[name]) - len(unfit) - least
        for since, idle_slice in free:
            if not _is_over(since, timeout, now) or (idle_slice not in unfit and spare <= 0):
                continue
            words = f"idle for {format_duration(max(timeout, now - since))}"
            if idle_slice in unfit:
                words += f", and {unfit[idle_slice]}"
            else:
                spare -= 1
            yield Removal(idle_slice, words)


def _unfit(cluster: Cluster, each: Slice, group: ScaleGroup | None) -> str:
    """Return why a slice does not count among its group's min_slices (a lost VM, an older template), or ''."""
    for worker_id in each.workers:
        worker = cluster.workers.get(worker_id)
        if worker is None:
            return f"{worker_id} was forgotten"
        if worker.condition is WorkerCondition.LOST:
            return f"{worker_id} is lost: {worker.reason}"
    if group is not None and not group.makes(each.template):
        return f"{each.group} makes other slices now"
    return ""


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
