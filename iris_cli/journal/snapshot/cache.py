"""When a snapshot is read, and when the next one is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from zlib import crc32

from iris_cli.core.cluster import Cluster
from iris_cli.journal.durable import Disk
from iris_cli.journal.layout import SNAPSHOT
from iris_cli.journal.position import PROGRAM, START, Position

EVERY_LINES = 10_000
EVERY_BYTES = 2_000_000
_WORTH_WRITING = (
    200_000  # bytes of the log: reading these takes about as long as all else that `iris status` does
)
_DEAR = 16  # a snapshot so many times as long as what came since is not yet written anew by the way


class SnapshotCache:
    """The snapshot in a state directory. Nothing that goes wrong with it is anybody's trouble."""

    def __init__(
        self, directory: Path, disk: Disk, *, every_lines: int = EVERY_LINES, every_bytes: int = EVERY_BYTES
    ) -> None:
        self._path = directory / SNAPSHOT
        self._disk = disk
        self._every = every_lines, every_bytes
        self._last = START  # where the last one stands, as far as we know, or where we tried to write one

    def read(self, replayed: Callable[[Position], Cluster]) -> tuple[Position, Cluster] | None:
        """Where it stands in its log, and what that comes to; None if there is none that can be used.

        Whether it is a snapshot of this log is for the caller to see. `replayed` gives the same from the log.
        """
        self._last = START
        if not os.path.lexists(self._path):
            return None
        from iris_cli.journal.snapshot.thawing import UNUSABLE, read_snapshot

        try:
            position, cluster = read_snapshot(self._path, fingerprint(), replayed)
        except UNUSABLE:
            return None
        self._last = position
        return position, cluster

    def refuse(self) -> None:
        """It is that of another log: the next one comes as if it were not there."""
        self._last = START

    def keep(self, cluster: Cluster, position: Position, *, always: bool = False) -> None:
        """Write one if so much came since the last, or less, and it costs little. `always`: if anything came."""
        if position.header is None or not (
            self._is_due(position) or (always and position.seq > self._last.seq)
        ):
            return
        if not self._is_ours():
            return
        from iris_cli.journal.snapshot.form import DamagedSnapshotError
        from iris_cli.journal.snapshot.writing import write_snapshot

        self._last = position  # should it fail, it would fail again
        try:
            write_snapshot(self._disk, self._path, cluster, position, fingerprint())
        except DamagedSnapshotError:
            with suppress(OSError):
                self._path.unlink()
        except OSError:
            pass

    def _is_ours(self) -> bool:
        """Whether the state is that of this user: a file of root's would be in its owner's way."""
        try:
            return self._path.parent.stat().st_uid == os.geteuid()
        except OSError:
            return False

    def _is_due(self, position: Position) -> bool:
        lines, size = self._every
        grown = position.offset - self._last.offset
        if grown < 0:  # the log was compacted meanwhile
            grown = position.offset
        if position.seq - self._last.seq >= lines or grown >= size:
            return True
        return grown >= _WORTH_WRITING and self._length() <= _DEAR * grown

    def _length(self) -> int:
        """Bytes of the last snapshot, 0 if there is none."""
        try:
            return self._path.lstat().st_size
        except OSError:
            return 0


_RULES = (
    "cluster",
    "ids",
    "structs",
    "attributes",
    "endpoints",
    "job",
    "task",
    "worker",
    "outcome",
    "outputs",
    "resources",
    "constraints",
    "connection",
    "event",
    "events",
    "any_event",
    "slice_events",
    "scale_group",
    "slice",
)
_EVOLVE = ("attempts", "edit", "fleet", "jobs", "log", "slices")
_FORMS = ("codec", "event_codec", "upgrades", "snapshot/entries", "snapshot/writing")


@cache
def fingerprint() -> str:
    """Tells programs apart that make other things of the same log, also those of one version."""
    core, journal = Path(__file__).parents[2] / "core", Path(__file__).parents[1]
    crc = 0
    for path in (
        *(core / f"{name}.py" for name in _RULES),
        *(core / "evolve" / f"{name}.py" for name in _EVOLVE),
        *(journal / f"{name}.py" for name in _FORMS),
    ):
        with suppress(OSError):  # there may be compiled files only
            crc = crc32(path.read_bytes(), crc)
    return f"{PROGRAM} {crc:08x}"
