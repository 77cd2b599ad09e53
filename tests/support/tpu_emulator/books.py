"""The audit log of the emulated cloud: all resources and calls with times, to find leaks."""

from __future__ import annotations

from msgspec import Struct, field


class Entry(Struct):
    """A created resource. `kind` is `node` or `queuedResource`; times are in seconds since the epoch."""

    kind: str
    zone: str
    name: str
    uid: int
    chips: int
    made_at: float
    ready_at: float | None = None
    stopped_at: float | None = (
        None  # preempted or failed: it costs nothing, but still counts against the quota
    )
    gone_at: float | None = None
    labels: dict[str, str] = field(default_factory=dict)


class Call(Struct, frozen=True, kw_only=True):
    """A call of a client with its result: an HTTP code, or `hang`, `lost` or `stall`."""

    at: float
    method: str
    path: str
    answer: str


class Books(Struct):
    """`entries` by the number of the node or request; `calls` in order."""

    entries: dict[int, Entry] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    def left(self) -> list[Entry]:
        """Return the resources that still exist."""
        return [each for each in self.entries.values() if each.gone_at is None]

    def made(self, kind: str = "node") -> list[Entry]:
        return [each for each in self.entries.values() if each.kind == kind]
