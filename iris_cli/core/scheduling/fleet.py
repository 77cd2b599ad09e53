"""Sets of workers by attribute, constraint, device and health, for one cycle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain, compress, count

from iris_cli.core import AttributeValue, Constraint, JobId, Limits, WorkerId, attributes
from iris_cli.core.model.worker import Worker, WorkerCondition, cooling
from iris_cli.core.resources import AUTO, Device, device_compatible
from iris_cli.core.scheduling.sets import GroupIndex, mask_of, vm_count


class Fleet:
    """The workers of a cycle, in the order of their ids as text (`w-10` comes before `w-2`), and sets of them.

    `healthy`: workers that accept tasks, a cool-down not considered. `offered` are the devices of workers that scale
    groups could add.
    """

    def __init__(
        self,
        workers: Iterable[Worker],
        now: float,
        limits: Limits,
        unconfirmed_stops: Mapping[WorkerId, Collection[JobId | None]] | Collection[WorkerId],
        offered: Collection[Device] = (),
    ) -> None:
        by_id = {worker.id: worker for worker in workers}
        self.ids = sorted(by_id)
        self.workers = [by_id[worker_id] for worker_id in self.ids]
        self.everyone = (1 << len(self.workers)) - 1
        self.now = now
        self.limits = limits
        self._offered = offered
        self._stops = unconfirmed_stops if isinstance(unconfirmed_stops, Mapping) else {}
        stopping = frozenset(unconfirmed_stops)
        self.healthy = self._all_but(not accepts_tasks(worker) for worker in self.workers)
        self.not_cooling_down = self._all_but(
            worker.cooldown_until > now and cooling(worker, now, limits) for worker in self.workers
        )
        self.without_unconfirmed_stops = self._all_but(worker_id in stopping for worker_id in self.ids)
        self.taints = self._taints()
        self._members: dict[str, dict[AttributeValue, list[int]]] = {}
        self._holders: dict[str, dict[AttributeValue, int]] = {}
        self._satisfying: dict[Constraint, int] = {}
        self._groups: dict[str, GroupIndex] = {}
        self._of_type: dict[str, int] = {}

    def members(self, key: str) -> dict[AttributeValue, list[int]]:
        """Return, for each value of an attribute, the positions of its workers in ascending order."""
        found = self._members.get(key)
        if found is None:
            found = self._members[key] = dict(self._by_value(key).values())
        return found

    def holders(self, key: str) -> dict[AttributeValue, int]:
        """Return, for each value of an attribute, the set of its workers."""
        found = self._holders.get(key)
        if found is None:
            found = {value: mask_of(positions) for value, positions in self.members(key).items()}
            self._holders[key] = found
        return found

    def values(self, key: str) -> list[AttributeValue | None]:
        """Return the value of an attribute for each worker; None for workers without the attribute."""
        found: list[AttributeValue | None] = [None] * len(self.workers)
        for value, positions in self.members(key).items():
            for position in positions:
                found[position] = value
        return found

    def satisfying(self, constraint: Constraint) -> int:
        """Return the workers that satisfy a constraint. The constraint is evaluated once for each existing value."""
        found = self._satisfying.get(constraint)
        if found is None:
            found, without = 0, self.everyone
            for value, workers in self.holders(constraint.key).items():
                without &= ~workers
                if constraint.matches({constraint.key: value}):
                    found |= workers
            if constraint.matches({}):
                found |= without
            self._satisfying[constraint] = found
        return found

    def tolerating(self, tolerations: Collection[str]) -> int:
        """Return the workers whose taints are all tolerated."""
        tainted = 0
        for taint, workers in self.taints.items():
            if taint not in tolerations:
                tainted |= workers
        return self.everyone & ~tainted

    def of_type(self, job_device_type: str) -> int:
        """Return the workers with a device type that a job of this type can use. A worker's default type is CPU."""
        if job_device_type in self._of_type:
            return self._of_type[job_device_type]
        kinds = self.holders(attributes.DEVICE_TYPE_ATTRIBUTE_KEY)
        found, without = 0, self.everyone
        for kind, workers in kinds.items():
            without &= ~workers
            if device_compatible(job_device_type, str(kind)):
                found |= workers
        if device_compatible(job_device_type, "cpu"):
            found |= without
        self._of_type[job_device_type] = found
        return found

    def with_device(self, device: Device | None) -> int:
        """Return the workers with a compatible device: the same type, and the same variant if the device has one."""
        right_type = self.of_type(device.kind if device else "cpu")
        if device is None or device.kind == "cpu" or device.variant == AUTO:
            return right_type
        variants = self.holders(attributes.DEVICE_VARIANT_ATTRIBUTE_KEY)
        return right_type & variants.get(AttributeValue(device.variant), 0)

    def may_get(self, device: Device | None) -> bool:
        """Return whether scale groups may add workers with a compatible device, or first probes may find one."""
        kind, variant = (device.kind, device.variant) if device else ("cpu", AUTO)
        offered = any(
            device_compatible(kind, each.kind) and (kind == "cpu" or variant in (AUTO, each.variant))
            for each in self._offered
        )
        return offered or self.unknown > 0

    @cached_property
    def unknown(self) -> int:
        """The number of workers that may have any device because they were never probed."""
        return sum(map(_unknown, self.workers))

    def stopping(self, positions: Iterable[int]) -> Iterator[JobId]:
        """Yield the jobs with unconfirmed stops on these workers, as far as they are known."""
        for position in positions:
            yield from filter(None, self._stops.get(self.ids[position], ()))

    def lasting(self, seconds: float) -> int:
        """Return the workers whose allocation lasts at least this long; 0 seconds means a task without time limit."""
        if not seconds:
            return self.everyone
        ends = (worker.ends_at for worker in self.workers)
        return self._all_but(end is not None and end - self.now < seconds for end in ends)

    def groups(self, key: str) -> GroupIndex:
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = GroupIndex(self.workers, self.members(key))
        return found

    @cached_property
    def single_vms(self) -> int:
        """The workers that are not VMs of a multi-host slice, as far as attributes show."""
        slices = self.groups(attributes.TPU_NAME_ATTRIBUTE_KEY)
        return self._all_but(
            vm_count(worker) not in (None, 1) or (at >= 0 and len(slices.groups[at].members) > 1)
            for worker, at in zip(self.workers, slices.at, strict=True)
        )

    def _all_but(self, exceptions: Iterable[object]) -> int:
        """Return all workers except those for which `exceptions` has a true value, in the order of positions."""
        return self.everyone & ~mask_of(list(compress(count(), exceptions)))

    def _by_value(self, key: str) -> dict[object, tuple[AttributeValue, list[int]]]:
        """Return positions by values. Keys are fast to hash: text values as they are, other values with their type."""
        found: dict[object, tuple[AttributeValue, list[int]]] = {}
        if key == attributes.WORKER_ID_ATTRIBUTE_KEY:
            return {each: (AttributeValue(each), [position]) for position, each in enumerate(self.ids)}
        for position, worker in enumerate(self.workers):
            value = worker.attributes.get(key)
            if value is None:
                continue
            plain = value.value
            same = plain if type(plain) is str else (type(plain), plain)
            if same in found:
                found[same][1].append(position)
            else:
                found[same] = (value, [position])
        return found

    def _taints(self) -> dict[str, int]:
        keys = dict.fromkeys(chain.from_iterable(worker.attributes for worker in self.workers))
        tainted: dict[str, list[int]] = {
            key: [] for key in sorted(keys) if key.startswith(attributes.TAINT_KEY_PREFIX)
        }
        if not tainted:
            return {}
        for position, worker in enumerate(self.workers):
            for key in filter(tainted.__contains__, worker.attributes):
                tainted[key].append(position)
        return {
            key.removeprefix(attributes.TAINT_KEY_PREFIX): mask_of(positions)
            for key, positions in tainted.items()
        }


def _unknown(worker: Worker) -> bool:
    return (
        worker.condition is WorkerCondition.UNPROBED
        and attributes.DEVICE_TYPE_ATTRIBUTE_KEY not in worker.attributes
    )


def accepts_tasks(worker: Worker) -> bool:
    """Return whether a worker accepts tasks, apart from a cool-down."""
    return worker.condition is WorkerCondition.HEALTHY and not (
        worker.unschedulable or worker.draining or worker.quarantined
    )
