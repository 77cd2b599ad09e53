"""How much a task needs, and how much a worker has left."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from iris_cli.core.model.worker import Claim, Worker
from iris_cli.core.resources.resources import Resources


class Amounts(NamedTuple):
    """So much of everything: thousandths of a core, bytes, GPUs, and 1 for all the chips of a worker."""

    cpu_millis: int
    memory: int
    gpus: int
    chips: int

    @classmethod
    def needed(cls, resources: Resources) -> Amounts:
        """What one task takes of its worker."""
        device = resources.device
        gpus = device.count if device and device.kind == "gpu" else 0
        return cls(resources.cpu_millis, resources.memory, gpus, int(resources.device_type == "tpu"))

    @classmethod
    def idle(cls, worker: Worker) -> Amounts:
        """What a worker has while nothing runs there; who has chips is a matter of the device."""
        return cls(worker.cpu_millis, worker.memory, worker.gpus, 1)

    @classmethod
    def held(cls, claim: Claim) -> Amounts:
        """What one attempt holds of its worker."""
        return cls(claim.cpu_millis, claim.memory, len(claim.gpus), int(claim.chips))

    def covers(self, need: Amounts) -> bool:
        """Whether there is enough of everything."""
        return all(have >= wanted for have, wanted in zip(self, need, strict=True))


class WorkerCapacity(NamedTuple):
    """What one worker has left when a cycle begins, derived from the claims of its live attempts.

    `gpus` are the free ones by index, `attempts` counts the live ones. Amounts are negative where a worker
    has shrunk below what runs on it.
    """

    left: Amounts
    gpus: tuple[int, ...]
    attempts: int

    @classmethod
    def of(cls, worker: Worker) -> WorkerCapacity:
        """Derive it; the chips have one tenant at most."""
        claims = worker.claims
        if not claims:
            return _idle(worker.cpu, worker.memory, worker.gpus)
        cpu_millis, memory, chips = worker.cpu_millis, worker.memory, 1
        taken: list[int] = []
        for claim in claims.values():
            cpu_millis -= claim.cpu_millis
            memory -= claim.memory
            taken += claim.gpus
            if claim.chips:
                chips = 0
        gpus = tuple(gpu for gpu in range(worker.gpus) if gpu not in taken)
        return cls(Amounts(cpu_millis, memory, len(gpus), chips), gpus, len(claims))


@lru_cache(maxsize=256)
def _idle(cpu: float, memory: int, gpus: int) -> WorkerCapacity:
    """Kept, for most workers are like many others."""
    return WorkerCapacity(Amounts(round(cpu * 1000), memory, gpus, 1), tuple(range(gpus)), 0)
