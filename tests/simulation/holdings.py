"""What a machine is, what its disk remembers of attempts, and what runs on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages.observations import RemoteState as S
from iris_cli.remote.launch_request import LaunchRequest

FOREIGN = Token("f" * 32)
"""An attempt that no log ever saw."""


@dataclass
class Entry:
    """What a worker's disk says of one token: a directory, or its tombstone. Survives a reboot."""

    state: S
    boot_id: str = ""
    request: LaunchRequest | None = None
    half: bool = False  # the call that made it was cut off
    exit_code: int | None = None
    cause: str = ""
    told_at: float | None = None  # when it was first told to start, where that could be noted
    signed_at: float | None = None  # the last sign of life of its wrapper on its way
    began: float | None = None
    ended: float | None = None
    renewed: float = 0.0  # its lease
    stop_at: float = 0.0  # when its stopper gets to SIGKILL


@dataclass
class Home:
    """The iris directory of one worker id on one machine."""

    incarnation: str = ""
    entries: dict[Token, Entry] = field(default_factory=dict)


@dataclass
class Running:
    """The processes of one attempt."""

    token: Token
    worker: WorkerId
    request: LaunchRequest
    supervised: bool = True  # its wrapper lives


@dataclass
class Facts:
    """What a machine is, by its metadata server."""

    cpus: int = 4
    metadata: tuple[tuple[str, str], ...] = ()
    chips: int = 0
    gpus: int = 0
