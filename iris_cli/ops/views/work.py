"""What a cluster still needs cycles for: with nothing left the loop ends, with something left a command starts one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.slice import SliceState
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.core.units import count

if TYPE_CHECKING:
    from iris_cli.config.schema import ClusterConfig
    from iris_cli.core.model.task import Attempt
    from iris_cli.journal.state_dir import StateDir


def work_left(cluster: Cluster, config: ClusterConfig, state: StateDir) -> str:
    """What is left to do, in a few words; '' if nothing is."""
    return next(_parts(cluster, config, state), "")


def _parts(cluster: Cluster, config: ClusterConfig, state: StateDir) -> Iterator[str]:
    if needs := jobs_need_cycles(cluster):
        yield needs
    if config.scales and _slices_change(cluster, config):
        yield "slices to create or delete"
    if config.notify.channels:
        books = state.notices.read()
        waiting = sum(len(each.waiting) for each in books.channels.values()) if books is not None else 0
        if waiting:
            yield f"{count(waiting, 'notice')} to send"


def jobs_need_cycles(cluster: Cluster) -> str:
    """The open jobs, or the attempts that still have to be stopped, in a few words; '' if there are none.

    An attempt on a lost worker, and one that can't be killed, may stay for weeks: nobody waits for these.
    """
    still_open = cluster.open_jobs()
    if jobs := sum(job.end is None for job in still_open):
        return count(jobs, "open job")
    attempts = [attempt for job in still_open for _, attempt in cluster.live_of(job.id)]
    stopping = sum(not _is_stuck(cluster, attempt) for attempt in attempts)
    return f"{count(stopping, 'attempt')} to stop" if stopping else ""


def _is_stuck(cluster: Cluster, attempt: Attempt) -> bool:
    worker = cluster.workers.get(attempt.worker)
    return attempt.unkillable or worker is None or worker.condition is WorkerCondition.LOST


def _slices_change(cluster: Cluster, config: ClusterConfig) -> bool:
    """Whether slices are on their way, are going, or are to: those above the least number go when they were idle."""
    groups = {group.name: group for group in config.scale_groups}
    least = {name: group.min_slices for name, group in groups.items()}
    number = dict.fromkeys(least, 0)
    for each in cluster.slices.values():
        group = groups.get(each.group)
        if each.state is not SliceState.READY or (group is not None and not group.makes(each.template)):
            return True
        number[each.group] = number.get(each.group, 0) + 1
    return any(number[group] != least.get(group, 0) for group in number)
