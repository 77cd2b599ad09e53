"""What must hold between the log, the cloud and the money that its slices cost. Every violation is told as a breach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from iris_cli.core.attributes import TPU_NAME_ATTRIBUTE_KEY
from iris_cli.core.events.events import (
    Event,
    SliceDeleted,
    SliceDeletionRequested,
    SliceJoined,
    SliceRequested,
    TaskAssigned,
)
from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.messages.cloud import CloudState
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.slice import ScaleGroup, Slice, SliceState
from iris_cli.core.model.task import AttemptState
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.core.topology import lookup
from tests.simulation.strands import Scheduler
from tests.simulation.truth import Truth

if TYPE_CHECKING:
    from tests.simulation.cloud import Made

SLACK = 400.0
"""Seconds in which a few passes of cron, and what they ask for, are over."""

_TICK = 20.0
_STALE = 30.0
"""Seconds after its list from which on a request comes from an invocation that was stopped meanwhile."""


class Ledger:
    """Knows the log and the cloud. After healing it counts what nobody uses: `wasted`, of `spent` slice-seconds."""

    def __init__(
        self,
        scheduler: Scheduler,
        truth: Truth,
        groups: Sequence[ScaleGroup],
        limits: Limits,
        durable: Callable[[], bytes],
    ) -> None:
        self.story = truth.story
        self.wasted = 0.0
        self.spent = 0.0
        self._scheduler = scheduler
        self._truth = truth
        self._groups: Mapping[str, ScaleGroup] = {group.name: group for group in groups}
        self._most = {group.name: group.max_slices for group in groups}
        self._least = {group.name: group.min_slices for group in groups}
        self._templates = {group.name: [group.template] for group in groups}  # all that it ever had
        self._limits = limits
        self._durable = durable
        self._requested: set[str] = set()  # all names that there ever were
        self._last = Cluster()
        self._doomed: set[str] = set()
        self._ever_made: set[str] = set()
        self._listed_at: dict[str, float] = {}  # by invocation
        self._there: Callable[[], Collection[Made]] = tuple
        self._since: dict[tuple[str, str], float] = {}  # of what is of no use: since when, by name and why

    # What the log says

    def committed(self, events: Sequence[Event], after: Cluster) -> None:
        for event in events:
            if isinstance(event, SliceRequested):
                self._is_to_be(event, after)
            elif isinstance(event, SliceDeletionRequested):
                self._is_to_go(after.slices[event.slice], after)
            elif isinstance(event, SliceDeleted):
                self._is_said_to_be_gone(event.slice)
            elif isinstance(event, SliceJoined):
                self._has_joined(after.slices[event.slice])
        placed = [event for event in events if isinstance(event, TaskAssigned)]
        self._only_where_it_may(placed, after)
        self._last = after

    def _is_to_be(self, event: SliceRequested, after: Cluster) -> None:
        if event.slice in self._requested:
            self.story.breach(f"slice {event.slice}: the name is used a second time")
        self._requested.add(event.slice)
        there = [
            each.name for each in after.slices.values() if each.group == event.group and each.requested_at
        ]
        most = self._most[event.group]
        if len(there) > most:
            self.story.breach(f"{event.group} has {len(there)} slices in the log, {most} at most")

    def _is_to_go(self, each: Slice, after: Cluster) -> None:
        self._doomed.add(each.name)
        known = [after.workers[worker] for worker in each.workers if worker in after.workers]
        if each.reason.startswith("idle") and any(worker.claims for worker in known):
            self.story.breach(f"slice {each.name} is to be deleted as {each.reason}, but is in use")
        made = next((made for made in self._there() if made.name == each.name), None)
        if made is None or not made.is_well or each.joined_at is None or self._lacks_a_vm(each):
            return
        if any(template != each.template for template in self._templates[each.group]):
            return  # whoever decided may have read a configuration by which the group makes others
        left = self._ready(after, each.group)
        if left < self._least[each.group]:
            self.story.breach(f"healthy slice {each.name} is to be deleted; {left} are left of {each.group}")

    def _lacks_a_vm(self, each: Slice) -> bool:
        """By the log, before the last line: one that the operator has forgotten, or that is silent for too long."""
        known = [self._last.workers.get(worker) for worker in each.workers]
        return any(worker is None or worker.condition is WorkerCondition.LOST for worker in known)

    def _is_said_to_be_gone(self, name: str) -> None:
        made = next((each for each in self._there() if each.name == name), None)
        if made is not None and not made.late:
            self.story.breach(f"slice {name} is gone in the log, but {made.state} in truth")

    def _has_joined(self, each: Slice) -> None:
        vms = _vms(each.template.type)
        if len(each.hosts) != vms:
            self.story.breach(f"slice {each.name} has joined with {len(each.hosts)} of {vms} VMs")

    def _only_where_it_may(self, placed: Sequence[TaskAssigned], after: Cluster) -> None:
        by_job: dict[JobId, list[WorkerId]] = {}
        for event in placed:
            by_job.setdefault(event.task.job, []).append(event.worker)
            each = after.slices.get(event.worker.rpartition("-")[0])
            if each is None:
                continue
            if each.state is not SliceState.READY:
                self.story.breach(f"{event.attempt_id} is for {event.worker}, whose slice is {each.state}")
            wanted = _REGIONS.get(event.task.job)
            if wanted is not None and not each.template.zone.startswith(wanted):
                self.story.breach(f"{event.attempt_id} is for {each.template.zone}, but wants {wanted}")
        for job_id, workers in by_job.items():
            job = after.jobs[job_id]
            device = job.resources.device
            if job.is_gang and device is not None and device.kind == "tpu":
                by_slice = Counter(_home(after, worker) for worker in workers)
                if set(by_slice.values()) != {_vms(device.variant)}:
                    self.story.breach(f"{job_id} is not on whole slices: {dict(by_slice)}")

    # What the operator allows

    def may_have(self, groups: Sequence[ScaleGroup]) -> None:
        """The configuration is another one; there are invocations that have read an older one."""
        for name in self._groups:
            now = next((group for group in groups if group.name == name), None)
            self._most[name] = max(self._most[name], now.max_slices if now else 0)
            self._least[name] = min(self._least[name], now.min_slices if now else 0)
            if now is not None:
                self._templates[name].append(now.template)

    # What the cloud is asked, and does

    def watch(self, there: Callable[[], Collection[Made]]) -> None:
        self._there = there

    def listed(self, who: str) -> None:
        self._listed_at[who] = self._scheduler.now

    def asks_for(self, who: str, name: str) -> None:
        if name.encode() not in self._durable() or name not in self._requested:
            self.story.breach(f"{who} requests {name}, but that is not on the disk")

    def asks_to_delete(self, who: str, name: str) -> None:
        if name not in self._doomed:
            self.story.breach(f"{who} deletes {name}, but that is not in the log")

    def made(self, who: str, made: Made, there: Iterable[Made]) -> None:
        """A slice is being made now that was not there."""
        again = made.name in self._ever_made
        self._ever_made.add(made.name)
        made.late = made.late or self._scheduler.now - self._listed_at.get(who, 0.0) > _STALE
        if made.late:
            return
        if again and made.name in self._doomed:  # else somebody deleted it before anybody had seen it
            self.story.breach(f"slice {made.name} is made a second time")
        ours = [each.name for each in there if each.group.name == made.group.name and not each.late]
        if len(ours) > self._most[made.group.name]:
            self.story.breach(
                f"{made.group.name} has {len(ours)} slices, {self._most[made.group.name]} at most"
            )

    def removed(self, made: Made) -> None:
        """A slice is about to be deleted: nobody may lose by that what runs well."""
        if not made.is_well:
            return
        for life in self._truth.lives.values():
            if life.where not in made.machines or life.over or life.presumed:
                continue
            attempt = self._truth.cluster.attempt(life.id)
            if attempt.live and attempt.state is not AttemptState.STOPPING:
                self.story.breach(f"slice {made.name} is deleted, but {life.id} runs well there")

    # What it costs

    def audit(self) -> None:
        """From now on nothing goes wrong any more, and what is of no use for long is wasted."""
        cluster, now = self._truth.cluster, self._scheduler.now
        if now < self._scheduler.asleep_until:  # the operator's machine is: so long nobody can do anything
            self._scheduler.at(self._scheduler.asleep_until, self.audit)
            return
        useless = dict(self._useless(cluster))
        self._since = {key: self._since.get(key, now) for key in useless}
        for key, allowed in useless.items():
            if now - self._since[key] > allowed:
                self.wasted += _TICK
        self.spent += _TICK * len(self._there())
        self._scheduler.after(_TICK, self.audit)

    def _useless(self, cluster: Cluster) -> Iterable[tuple[tuple[str, str], float]]:
        """The slices that are of no use now, with the reason, and for how long that is fine.

        Where the operator's clock was set back, a wait may last up to twice as long.
        """
        waits = bool(cluster.pending_tasks())
        for made in self._there():
            known = cluster.slices.get(made.name)
            if made.state is CloudState.DELETING:
                continue
            if known is None or known.state is SliceState.DELETING:
                yield (made.name, "given up"), SLACK
            elif known.is_provisioning:
                takes = self._limits.slice_create_timeout + self._limits.slice_boot_timeout
                yield (made.name, "coming"), 2 * takes + SLACK
            elif not made.is_well:
                yield (made.name, "dead"), SLACK
            elif not waits and self._is_idle(cluster, known) and self._is_more_than_least(cluster, known):
                yield (made.name, "idle"), 2 * self._groups[known.group].idle_timeout + SLACK

    def _is_idle(self, cluster: Cluster, known: Slice) -> bool:
        workers = [cluster.workers[each] for each in known.workers if each in cluster.workers]
        return not any(worker.claims for worker in workers)

    def _is_more_than_least(self, cluster: Cluster, known: Slice) -> bool:
        group = self._groups[known.group]
        return self._ready(cluster, known.group) > group.min_slices or known.template != group.template

    @staticmethod
    def _ready(cluster: Cluster, group: str) -> int:
        return sum(each.group == group and each.state is SliceState.READY for each in cluster.slices.values())

    def is_settled(self) -> bool:
        """Whether nothing is left but what is always to be there."""
        there, known, ready = self._books()
        return there == known and ready == {name: group.min_slices for name, group in self._groups.items()}

    def at_the_end_of_the_day(self) -> None:
        """Nothing waits, nothing runs, all idle times are over."""
        there, known, ready = self._books()
        if there != known:
            self.story.breach(f"the cloud has {there}, the log {known}")
        for name, group in self._groups.items():
            if ready[name] != group.min_slices:
                self.story.breach(
                    f"{name} has {ready[name]} slices after the last job, not {group.min_slices}"
                )
        if self.wasted:
            self.story.breach(f"{self.wasted:.0f} slice-seconds are wasted")

    def _books(self) -> tuple[dict[str, str], dict[str, str], dict[str, int]]:
        """The slices of the cloud and of the log with their machines, and how many of each group are ready."""
        slices = self._truth.cluster.slices.values()
        ready = {name: self._ready(self._truth.cluster, name) for name in self._groups}
        there = {made.name: made.incarnation for made in self._there()}
        return there, {each.name: each.incarnation for each in slices}, ready


_REGIONS = {JobId("west"): "us-west4", JobId("central"): "us-central2"}
"""Where jobs that want to be somewhere want to be."""


def _home(cluster: Cluster, worker: WorkerId) -> str:
    """The slice of a VM: by its name if it was made on demand, else by what it says of itself."""
    made = worker.rpartition("-")[0]
    return made if made in cluster.slices else str(cluster.workers[worker].attributes[TPU_NAME_ATTRIBUTE_KEY])


def _vms(tpu: str) -> int:
    known = lookup(tpu)
    assert known is not None
    return known.vms
