"""Sets of workers by attribute, constraint, device and condition, for one cycle."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property, reduce
from itertools import chain, compress, count
from operator import and_, or_

from iris_cli.core import AttributeValue, Constraint, JobId, Limits, WorkerId, attributes, cached_by_argument
from iris_cli.core.model.worker import Worker, WorkerCondition, is_cooling_down
from iris_cli.core.resources import AUTO, Device, device_compatible
from iris_cli.core.scheduling.sets import GroupIndex, mask_of, vm_count


class Fleet:
    """The workers of a cycle, in the order of their ids as text (`w-10` comes before `w-2`), and sets of them.

    A set of workers is an int: bit N is the worker at position N of `ids`. `schedulable`: workers that accept tasks, or
    will accept them after their cool-down.
    """

    def __init__(
        self,
        workers: Iterable[Worker],
        now: float,
        limits: Limits,
        unconfirmed_stops: Mapping[WorkerId, Collection[JobId | None]] | Collection[WorkerId],
        offered: Collection[Device] = (),
    ) -> None:
        """`offered`: the devices of workers that scale groups could add."""
        by_id = {worker.id: worker for worker in workers}
        self.ids = sorted(by_id)
        self.workers = [by_id[worker_id] for worker_id in self.ids]
        self.all_workers = (1 << len(self.workers)) - 1
        self.now = now
        self.limits = limits
        self._offered = offered
        self._stops = unconfirmed_stops if isinstance(unconfirmed_stops, Mapping) else {}
        stopping = frozenset(unconfirmed_stops)
        self.schedulable = self._workers_except(
            worker.condition is not WorkerCondition.HEALTHY
            or (worker.unschedulable or worker.draining or worker.quarantined)
            for worker in self.workers
        )
        self.not_cooling_down = self._workers_except(
            worker.cooldown_until > now and is_cooling_down(worker, now, limits) for worker in self.workers
        )
        self.without_unconfirmed_stops = self._workers_except(worker_id in stopping for worker_id in self.ids)

    @cached_by_argument
    def positions_by_value(self, key: str) -> dict[AttributeValue, list[int]]:
        """Return, for each value of an attribute, the positions of its workers in ascending order."""
        if key == attributes.WORKER_ID_ATTRIBUTE_KEY:
            return {AttributeValue(each): [position] for position, each in enumerate(self.ids)}
        # The hash of an AttributeValue is slow, so the keys are texts, or pairs of a type and a number.
        found: dict[object, tuple[AttributeValue, list[int]]] = {}
        for position, worker in enumerate(self.workers):
            value = worker.attributes.get(key)
            if value is None:
                continue
            raw = value.value
            raw_key = raw if type(raw) is str else (type(raw), raw)
            if raw_key in found:
                found[raw_key][1].append(position)
            else:
                found[raw_key] = (value, [position])
        return dict(found.values())

    @cached_by_argument
    def workers_by_value(self, key: str) -> dict[AttributeValue, int]:
        """Return, for each value of an attribute, the set of its workers."""
        return {value: mask_of(positions) for value, positions in self.positions_by_value(key).items()}

    def workers_with_attribute(self, key: str) -> int:
        return reduce(or_, self.workers_by_value(key).values(), 0)

    def values_by_position(self, key: str) -> list[AttributeValue | None]:
        """Return the value of an attribute for each worker; None for workers without the attribute."""
        found: list[AttributeValue | None] = [None] * len(self.workers)
        for value, positions in self.positions_by_value(key).items():
            for position in positions:
                found[position] = value
        return found

    @cached_by_argument
    def workers_satisfying(self, constraint: Constraint) -> int:
        """Return the workers that satisfy a constraint. The constraint is evaluated once for each value."""
        key = constraint.key
        return self._workers_with_accepted_value(
            key, lambda value: constraint.matches({} if value is None else {key: value})
        )

    def workers_satisfying_all(self, constraints: Iterable[Constraint]) -> int:
        return reduce(and_, map(self.workers_satisfying, constraints), self.all_workers)

    def workers_tolerated_by(self, tolerations: Collection[str]) -> int:
        """Return the workers whose taints are all tolerated."""
        tainted = (workers for taint, workers in self.taints.items() if taint not in tolerations)
        return self.all_workers & ~reduce(or_, tainted, 0)

    def _workers_with_accepted_value(self, key: str, accepts: Callable[[AttributeValue | None], bool]) -> int:
        """Return the workers whose value of an attribute is accepted. Workers without the attribute have None."""
        found = self.all_workers & ~self.workers_with_attribute(key) if accepts(None) else 0
        for value, workers in self.workers_by_value(key).items():
            if accepts(value):
                found |= workers
        return found

    @cached_by_argument
    def workers_with_device(self, device: Device | None) -> int:
        """Return the workers with a compatible type (default: CPU) and with the requested variant, if any."""
        wanted = device.kind if device else "cpu"
        suitable = self._workers_with_accepted_value(
            attributes.DEVICE_TYPE_ATTRIBUTE_KEY, lambda kind: device_compatible(wanted, str(kind or "cpu"))
        )
        if device is None or device.kind == "cpu" or device.variant == AUTO:
            return suitable
        variants = self.workers_by_value(attributes.DEVICE_VARIANT_ATTRIBUTE_KEY)
        return suitable & variants.get(AttributeValue(device.variant), 0)

    def may_get_device(self, device: Device | None) -> bool:
        """Return whether scale groups could add a worker with this device, or an unprobed worker may have it."""
        kind, variant = (device.kind, device.variant) if device else ("cpu", AUTO)
        offered = any(
            device_compatible(kind, each.kind) and (kind == "cpu" or variant in (AUTO, each.variant))
            for each in self._offered
        )
        return offered or self.unprobed_count > 0

    @cached_property
    def unprobed_count(self) -> int:
        """The number of unprobed workers, which may have any device."""
        return sum(
            worker.condition is WorkerCondition.UNPROBED
            and attributes.DEVICE_TYPE_ATTRIBUTE_KEY not in worker.attributes
            for worker in self.workers
        )

    def stopping_jobs(self, positions: Iterable[int]) -> Iterator[JobId]:
        """Yield the known jobs with attempts on these workers whose stop is not confirmed."""
        for position in positions:
            yield from filter(None, self._stops.get(self.ids[position], ()))

    @cached_by_argument
    def workers_lasting(self, seconds: float) -> int:
        """Return the workers whose allocation does not end within this time. 0 means no time limit: all workers."""
        if not seconds:
            return self.all_workers
        ends = (worker.ends_at for worker in self.workers)
        return self._workers_except(end is not None and end - self.now < seconds for end in ends)

    @cached_by_argument
    def groups(self, key: str) -> GroupIndex:
        """Return the groups of workers that share a value of an attribute."""
        return GroupIndex(self.workers, self.positions_by_value(key))

    @cached_property
    def single_vms(self) -> int:
        """The workers that are not VMs of a multi-host slice, according to their attributes."""
        slices = self.groups(attributes.TPU_NAME_ATTRIBUTE_KEY)
        return self._workers_except(
            vm_count(worker) not in (None, 1) or (at >= 0 and len(slices.groups[at].members) > 1)
            for worker, at in zip(self.workers, slices.numbers, strict=True)
        )

    def _workers_except(self, exceptions: Iterable[object]) -> int:
        """Return all workers except those at positions where `exceptions` has a true value."""
        return self.all_workers & ~mask_of(list(compress(count(), exceptions)))

    @cached_property
    def taints(self) -> dict[str, int]:
        """The workers with each taint."""
        prefix = attributes.TAINT_KEY_PREFIX
        keys = dict.fromkeys(chain.from_iterable(worker.attributes for worker in self.workers))
        taints = sorted(key for key in keys if key.startswith(prefix))
        return {key.removeprefix(prefix): self.workers_with_attribute(key) for key in taints}
