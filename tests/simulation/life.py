"""One attempt, as the auditor follows it: what the log says of it, and what really became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_cli.core.ids import AttemptId, WorkerId

if TYPE_CHECKING:
    from tests.simulation.machines import Machine


@dataclass
class Life:
    """One attempt: what the log says of it, and what really became of it."""

    id: AttemptId
    worker: WorkerId
    boot_id: str  # of the worker, as the log knew it when it was assigned
    round: int
    gang: bool
    exclusive: bool
    cpu_millis: int
    gpus: tuple[int, ...]
    assigner: str
    senders: set[str] = field(default_factory=set)  # invocations that sent a launch of it
    where: Machine | None = None  # while processes of it live
    prepared: bool = False
    hung: bool = False  # it was told to start, and nothing came of that for a while
    started: bool = False
    started_at: float = 0.0  # true time, as `ended_at`
    ended_at: float = 0.0  # when it ended by itself
    code: int | None = None  # it ended by itself with this code
    cause: str = ""
    setup_failed: bool = False
    refused: bool = False  # the worker would not start it
    fenced: bool = False  # a stop has reached the worker
    misfortune: str = ""  # what the world did to it, other than its own end
    record_lost: bool = False
    over: bool = False  # the log says ENDED
    taken_over: bool = False
    presumed: bool = False  # it ended in the log without proof, by the operator's word or choice
    over_by_lease: bool = False
    supervised: bool = True  # its wrapper and its watchdogs live
