"""The cloud's own books: all that was ever made, asked and deleted, with times, for whoever asks what leaked."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Entry(Struct):
    """One thing that was made. `kind` is `node` or `queuedResource`; times in seconds since the epoch."""

    kind: str
    zone: str
    name: str
    uid: int
    chips: int
    made_at: float
    ready_at: float | None = None
    stopped_at: float | None = None  # preempted or failed: it costs no more, and eats quota still
    gone_at: float | None = None
    labels: dict[str, str] = field(default_factory=dict)


class Call(Struct, frozen=True, kw_only=True):
    """One call of a client, and what was answered: an HTTP code, or `hang`, `lost` or `stall`."""

    at: float
    method: str
    path: str
    answer: str


class NoticeState(Struct):
    """`entries` by number of the machine or request; `calls` in the order of coming."""

    entries: dict[int, Entry] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    def left(self) -> list[Entry]:
        """What was made and is not gone."""
        return [each for each in self.entries.values() if each.gone_at is None]

    def made(self, kind: str = "node") -> list[Entry]:
        return [each for each in self.entries.values() if each.kind == kind]

    def as_json(self) -> dict[str, Any]:
        return {
            "entries": [_as_json(each) for each in self.entries.values()],
            "calls": [_as_json(each) for each in self.calls],
        }


def _as_json(record: Entry | Call) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}
