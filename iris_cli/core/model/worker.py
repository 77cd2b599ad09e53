"""A worker: one host that runs tasks, what it is, what it holds and has left, and whether it takes something new."""

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


class Connection(Value, frozen=True, kw_only=True):
    """SSH settings of one worker. Empty or zero means: as `~/.ssh/config` says, else ssh's own default.

    `known_hosts` is `strict` (the host key must be known beforehand) or `accept-new` (a first key is taken at
    the probe). `remote_dir` is the directory on the worker below which iris keeps its files.
    """

    host: str
    user: str = ""
    port: int = 0
    key: str = ""
    proxy_jump: str = ""
    known_hosts: str = "strict"
    remote_dir: str = "~/.iris"


NOWHERE = Connection(host="")  # settings for connections whose host is not known yet

MOST_SKEW = 30.0  # seconds of skew that are worth a word


class WorkerCondition(StrEnum):
    """Whether the worker answers, and as whom. Draining and quarantine are orders beside it."""

    UNPROBED = "unprobed"  # in the configuration, has never answered a probe
    HEALTHY = "healthy"
    SUSPECT = "suspect"  # a poll failed
    LOST = "lost"  # polls have failed for long
    AUTH_FAILED = "auth_failed"
    UNTRUSTED = "untrusted"  # somebody answers, and it may not be the same machine


class Claim(Value, frozen=True, kw_only=True):
    """What one live attempt holds of its worker: CPU in thousandths of a core, memory in bytes, GPUs by index."""

    cpu_millis: int = 0
    memory: int = 0
    gpus: tuple[int, ...] = ()
    chips: bool = False  # all chips of the worker: they have one tenant

    @staticmethod
    def of(resources: Resources, gpus: tuple[int, ...] = ()) -> Claim:
        device = resources.device
        return _claim(
            resources.cpu_millis, resources.memory, gpus, device is not None and device.kind == "tpu"
        )


@lru_cache(maxsize=1024)
def _claim(cpu_millis: int, memory: int, gpus: tuple[int, ...], chips: bool) -> Claim:
    """The tasks of a job hold the same of their workers, and so do those of many jobs."""
    return Claim(cpu_millis=cpu_millis, memory=memory, gpus=gpus, chips=chips)


class Ghost(Value, frozen=True, kw_only=True):
    """An attempt taken for dead without proof, with its host: only a reboot of that same machine ends it."""

    attempt: AttemptId
    token: Token
    boot_id: str
    incarnation: str = ""


class Span(Value, frozen=True, kw_only=True):
    """Watched time in seconds, from look to look up to `last`. In the longest step a clock may have jumped."""

    last: float
    total: float = 0.0
    longest: float = 0.0

    def until(self, at: float) -> Span:
        """The span with one more look. A clock that steps back adds nothing."""
        step = max(0.0, at - self.last)
        return Span(last=at, total=self.total + step, longest=max(self.longest, step))

    def at_least(self, most_of_one_step: float = 0.0) -> float:
        """How long it was, where so much at most is believed of its longest step."""
        return self.total - self.longest + min(self.longest, most_of_one_step)


class Worker(Record, kw_only=True):
    """One host. `cpu` in cores, `memory` in bytes; `claims` holds one entry for each live attempt on it.

    `attributes` are final: what the configuration declares lies over what the probe found.
    """

    id: WorkerId
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    cpu: float = 0.0
    memory: int = 0
    chips: int = 0
    gpus: int = 0
    claims: dict[AttemptId, Claim] = field(default_factory=dict)
    freed_at: float = 0.0  # when the last live attempt ended there; 0: none ever has
    outgrown: tuple[AttemptId, ...] = ()  # what was there when a probe found less than before
    connection: Connection = NOWHERE
    condition: WorkerCondition = WorkerCondition.HEALTHY
    reason: str = ""  # why the condition is what it is, or why the worker can't be used
    unschedulable: bool = False  # probed, but what it said of itself makes no sense (`reason`)
    draining: bool = False
    drain_reason: str = ""
    quarantined: bool = False
    quarantine_reason: str = ""
    quarantined_at: float = 0.0
    cooldown_until: float = 0.0
    refusals: int = 0  # launches refused in a row, of any jobs
    failed_polls: int = 0  # in a row
    silent_since: float | None = None
    unwell: Span | None = None  # since it is not healthy, from one failed poll to the next
    silence: Span | None = None  # while others answered, and it did not
    boot_id: str = ""
    incarnation: str = ""
    taints: tuple[str, ...] = ()  # set by hand, beside those of the configuration
    vm: str = ""  # what the metadata server calls the machine
    containment: str = ""  # of a task's processes: `cgroup`, or its `session` and marker alone
    skew: float = 0.0  # seconds that its clock is ahead of ours
    declared: str = ""  # fingerprint of the configuration entry that `attributes` were made with

    @property
    def cpu_millis(self) -> int:
        return round(self.cpu * 1000)

    @property
    def all_attributes(self) -> dict[str, AttributeValue]:
        """The attributes that constraints are matched with: also its id."""
        return {**self.attributes, WORKER_ID_ATTRIBUTE_KEY: AttributeValue(self.id)}

    @property
    def own_attributes(self) -> dict[str, AttributeValue]:
        """The attributes without the taints that were set by hand."""
        by_hand = {taint_key(taint) for taint in self.taints}
        return {key: value for key, value in self.attributes.items() if key not in by_hand}


def with_taints(
    attributes: Mapping[str, AttributeValue], taints: tuple[str, ...]
) -> dict[str, AttributeValue]:
    """A worker's own attributes, and these taints, which were set by hand: taints are attributes too."""
    return {**attributes, **{taint_key(taint): AttributeValue("true") for taint in taints}}


def has_wrong_clock(worker: Worker) -> bool:
    """Whether one of the two clocks, its own or ours, needs to be set."""
    return abs(worker.skew) > MOST_SKEW


def cooling(worker: Worker, now: float, limits: Limits) -> bool:
    """Whether the worker takes nothing new for a while. A wait longer than the longest back-off counts as over."""
    return 0 < worker.cooldown_until - now <= limits.backoff_max


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
