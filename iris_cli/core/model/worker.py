"""A worker: one host that runs tasks, with its attributes, claims, free capacity and condition."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from msgspec import field

from iris_cli.core.attributes import WORKER_ID_ATTRIBUTE_KEY
from iris_cli.core.constraints import AttributeValue, taint_key
from iris_cli.core.ids import AttemptId, Token, WorkerId
from iris_cli.core.model.limits import Limits
from iris_cli.core.resources import Resources
from iris_cli.core.structs import Record, Value

DEFAULT_REMOTE_DIR = "~/.iris"


class Connection(Value, frozen=True, kw_only=True):
    """SSH settings of one worker. For an empty or zero setting, `~/.ssh/config` or the default of ssh applies.

    `known_hosts` is `strict` (the host key must be recorded already) or `accept-new` (the first probe records the key).
    `remote_dir` is the directory on the worker below which iris keeps its files.

    If `allocation` (the id of a Slurm job) is set, iris reaches the worker with `srun` instead of SSH: the worker is
    the node `node` of that job. `srun` runs on the host `login`, and the SSH settings are for this host. If `login` is
    empty, `srun` runs on this machine.
    """

    host: str
    user: str = ""
    port: int = 0
    key: str = ""
    proxy_jump: str = ""
    known_hosts: str = "strict"
    remote_dir: str = DEFAULT_REMOTE_DIR
    allocation: str = ""
    node: str = ""
    login: str = ""


NOWHERE = Connection(host="")  # placeholder while the host is not known yet

MAX_SKEW = 30.0  # seconds of skew above which users are warned


class WorkerCondition(StrEnum):
    """Condition of a worker after the last calls to it. Draining and quarantine are separate flags."""

    UNPROBED = "unprobed"  # in the configuration, but has never answered a probe
    HEALTHY = "healthy"
    SUSPECT = "suspect"  # a poll failed
    LOST = "lost"  # polls failed for 10 minutes or more
    AUTH_FAILED = "auth_failed"
    UNTRUSTED = "untrusted"  # the host that answers may be another machine


class Claim(Value, frozen=True, kw_only=True):
    """Resources of a worker held by one live attempt: CPU in thousandths of a core, memory in bytes, GPUs by index."""

    cpu_millis: int = 0
    memory: int = 0
    gpus: tuple[int, ...] = ()
    chips: bool = False  # all chips of the worker: only one attempt can hold them

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(resources: Resources, gpus: tuple[int, ...] = ()) -> Claim:
        """Return the claim of one task. Cached, because many attempts hold equal resources."""
        is_tpu = resources.device_type == "tpu"
        return Claim(cpu_millis=resources.cpu_millis, memory=resources.memory, gpus=gpus, chips=is_tpu)


class Ghost(Value, frozen=True, kw_only=True):
    """An attempt presumed gone without proof. A reboot of its machine proves that it is gone."""

    attempt: AttemptId
    token: Token
    boot_id: str
    incarnation: str = ""


class Span(Value, frozen=True, kw_only=True):
    """The sum of the seconds between observations. `last` is the time of the last observation.

    The `longest` time between two observations may be wrong, because the clock may have been set in between.
    """

    last: float
    total: float = 0.0
    longest: float = 0.0

    def extend_to(self, at: float) -> Span:
        """Return the span with an observation at this time. If the clock went back, the sum does not change."""
        step = max(0.0, at - self.last)
        return Span(last=at, total=self.total + step, longest=max(self.longest, step))

    def minimum(self, max_step: float = 0.0) -> float:
        """Return the sum, in which the longest time between two observations counts for at most `max_step` seconds."""
        return self.total - self.longest + min(self.longest, max_step)


REMOVED = "removed from cluster.yaml"
OCCUPIED = "its host still runs tasks of a removed worker"
IS_VM = "its host is a VM of a slice that iris created"
VM_IS_PREEMPTED = "its VM is being preempted"
SLICE_IS_DELETED = "its slice is deleted"  # the first words of the reason
DRAINS_BY_CONFIGURATION = frozenset({REMOVED, OCCUPIED, IS_VM})


class Worker(Record, kw_only=True):
    """One host. `cpu` is in cores, `memory` in bytes. `claims` holds the resources of each live attempt on the host.

    `attributes` come from the probe; attributes declared in the configuration override them.
    """

    id: WorkerId
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    cpu: float = 0.0
    memory: int = 0
    chips: int = 0
    gpus: int = 0
    claims: dict[AttemptId, Claim] = field(default_factory=dict)
    freed_at: float = 0.0  # when the last live attempt on it ended; 0: never
    placed_before_change: tuple[AttemptId, ...] = ()  # live when the size was reduced or an attribute changed
    connection: Connection = NOWHERE
    condition: WorkerCondition = WorkerCondition.HEALTHY
    reason: str = ""  # explains the condition, or why the worker can't be used
    unschedulable: bool = False  # the probe's report was invalid; `reason` says why
    draining: bool = False
    drain_reason: str = ""
    quarantined: bool = False
    quarantine_reason: str = ""
    quarantined_at: float = 0.0
    cooldown_until: float = 0.0
    refusals: int = 0  # consecutive refused launches, of any job
    failed_polls: int = 0  # consecutive
    silent_since: float | None = None
    unwell: Span | None = None  # time from its first failed poll to its last, since it was healthy
    silence: Span | None = None  # time in which it did not answer although other workers did
    boot_id: str = ""
    incarnation: str = ""
    taints: tuple[str, ...] = ()  # set by the operator, in addition to taints in the configuration
    vm: str = ""  # the VM's id from the metadata server
    containment: str = ""  # how it contains a task's processes: `cgroup`, or `session` and marker
    skew: float = 0.0  # seconds by which its clock is ahead of the operator's
    declared: str = ""  # fingerprint of the configuration used for `attributes`
    ends_at: float | None = None  # time at which the time limit ends its allocation; None if unknown

    @property
    def cpu_millis(self) -> int:
        return round(self.cpu * 1000)

    @property
    def all_attributes(self) -> dict[str, AttributeValue]:
        """The attributes against which constraints are matched, including the worker's id."""
        return {**self.attributes, WORKER_ID_ATTRIBUTE_KEY: AttributeValue(self.id)}

    @property
    def attributes_without_taints(self) -> dict[str, AttributeValue]:
        """The attributes without the taints that the operator set."""
        taint_keys = {taint_key(taint) for taint in self.taints}
        return {key: value for key, value in self.attributes.items() if key not in taint_keys}


def with_taints(
    attributes: Mapping[str, AttributeValue], taints: tuple[str, ...]
) -> dict[str, AttributeValue]:
    """Return the attributes plus an attribute for each taint that the operator set."""
    return {**attributes, **{taint_key(taint): AttributeValue("true") for taint in taints}}


def has_wrong_clock(worker: Worker) -> bool:
    """Return whether the worker's clock or the operator's clock needs to be set."""
    return abs(worker.skew) > MAX_SKEW


def is_drained_by_iris(worker: Worker) -> bool:
    """Return whether iris drains a worker because of the configuration or its slice. It does so despite an uncordon."""
    reason = worker.drain_reason
    return worker.draining and (reason in DRAINS_BY_CONFIGURATION or reason.startswith(SLICE_IS_DELETED))


def is_cooling_down(worker: Worker, now: float, limits: Limits) -> bool:
    """Return whether the worker is in a cool-down. A cool-down longer than the maximum back-off is ignored."""
    return 0 < worker.cooldown_until - now <= limits.backoff_max


class Amounts(NamedTuple):
    """A resource vector: thousandths of a core, bytes, GPUs, and 1 for all the chips of a worker."""

    cpu_millis: int
    memory: int
    gpus: int
    chips: int

    @classmethod
    def needed(cls, resources: Resources) -> Amounts:
        """Return the resources that one task takes from its worker."""
        device = resources.device
        gpus = device.count if device and device.kind == "gpu" else 0
        return cls(resources.cpu_millis, resources.memory, gpus, int(resources.device_type == "tpu"))

    @classmethod
    def idle(cls, worker: Worker) -> Amounts:
        """Return the resources of an idle worker. `chips` is 1 even if the worker has no chips."""
        return cls(worker.cpu_millis, worker.memory, worker.gpus, 1)

    @classmethod
    def claimed(cls, claim: Claim) -> Amounts:
        return cls(claim.cpu_millis, claim.memory, len(claim.gpus), int(claim.chips))

    def covers(self, need: Amounts) -> bool:
        """Return whether every amount is at least the needed one."""
        return all(have >= wanted for have, wanted in zip(self, need, strict=True))


class WorkerCapacity(NamedTuple):
    """Free resources of one worker at the start of a cycle, derived from the claims of its live attempts.

    `gpus` are the indexes of free GPUs, `attempts` is the number of live attempts. Amounts are negative if a
    worker has shrunk below the claims on it.
    """

    free: Amounts
    gpus: tuple[int, ...]
    attempts: int

    @classmethod
    def of(cls, worker: Worker) -> WorkerCapacity:
        claims = worker.claims
        if not claims:
            return _idle_capacity(worker.cpu, worker.memory, worker.gpus)
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
def _idle_capacity(cpu: float, memory: int, gpus: int) -> WorkerCapacity:
    """Return the capacity of an idle worker. Cached, because many workers are equal."""
    return WorkerCapacity(Amounts(round(cpu * 1000), memory, gpus, 1), tuple(range(gpus)), 0)
