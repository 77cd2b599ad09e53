"""Read the newest usable snapshot, and write the next one when it is due."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from iris_cli.core.model.cluster import Cluster
from iris_cli.files import Disk, make_directory
from iris_cli.journal.layout import ARCHIVE, SNAPSHOT, archived_snapshot_path
from iris_cli.journal.log.position import START, Position

if TYPE_CHECKING:
    from iris_cli.journal.snapshot.reading import SnapshotFiles

EVERY_LINES = 10_000
EVERY_BYTES = 2_000_000
_ARCHIVE_FACTOR = 5  # a snapshot is archived after this many times `every_lines` lines
_MIN_BYTES = 200_000  # minimum size of the new lines; `iris status` reads these in half of its time
_MAX_RATIO = 16  # maximum size of the last snapshot, as a multiple of the size of the new lines
_NAME = re.compile(r"snapshot-([0-9]{12})\.json")

ReplayTo = Callable[[Position], Cluster]
"""Function that returns the cluster at a position, from the log alone."""


class SnapshotCache:
    """The snapshots of a state directory. Errors are ignored."""

    def __init__(
        self, directory: Path, disk: Disk, *, every_lines: int = EVERY_LINES, every_bytes: int = EVERY_BYTES
    ) -> None:
        self._directory = directory
        self._path = directory / SNAPSHOT
        self._disk = disk
        self._every = every_lines, every_bytes
        self.archive_every = _ARCHIVE_FACTOR * every_lines
        """Number of lines after which a snapshot is archived."""
        self._last = START  # position of the last known snapshot, or of the last failed write

    def read(self, fits: Callable[[Position], bool], replay_to: ReplayTo) -> tuple[Position, Cluster] | None:
        """Return the newest usable snapshot as its position in the log and its cluster; None if no snapshot is usable.

        `fits` returns whether the line at a position of this log has the position's checksum.
        """
        self._last = START
        if not (paths := list(self._paths())):
            return None
        from iris_cli.journal.snapshot.reading import UNUSABLE, SnapshotFile, read_snapshot

        for path in paths:
            with suppress(*UNUSABLE):
                file = SnapshotFile(path)
                position = file.header.position
                if archived := path != self._path:
                    position = replace(position, earliest=None)
                if fits(position):
                    replay = partial(replay_to, position)
                    cluster = read_snapshot(self._directory, file, replay, archived=archived)
                    self._last = position
                    return position, cluster
        return None

    def files(self, fits: Callable[[Position], bool]) -> "SnapshotFiles | None":
        """Return the files of the newest usable snapshot, or None. Reads only their first lines."""
        from iris_cli.journal.snapshot.reading import UNUSABLE, SnapshotFile, files_of_snapshot

        for path in self._paths():
            with suppress(*UNUSABLE):
                file = SnapshotFile(path)
                if fits(file.header.position):
                    return files_of_snapshot(self._directory, file, archived=path != self._path)
        return None

    @property
    def exists(self) -> bool:
        """True if there is any snapshot, even a damaged one."""
        return next(self._paths(), None) is not None

    def _paths(self) -> Iterator[Path]:
        if os.path.lexists(self._path):
            yield self._path
        names = []
        with suppress(OSError):
            names = sorted(filter(_NAME.fullmatch, os.listdir(self._directory / ARCHIVE)), reverse=True)
        yield from (self._directory / ARCHIVE / name for name in names)

    def keep(
        self,
        cluster: Cluster,
        position: Position,
        replay_to: ReplayTo,
        on_archived: Callable[[], None],
        *,
        always: bool,
    ) -> Cluster:
        """Write a snapshot of `cluster` if it is due, or if `always` and there are new lines since the last snapshot.

        `position` is the cluster's position in the log. Returns an equal cluster. If the snapshot was archived, calls
        `on_archived`, and the returned cluster uses less memory.
        """
        due = self._is_due(position) or (always and position.seq > self._last.seq)
        if position.header is None or not due or not self._is_ours():
            return cluster
        from iris_cli.journal.snapshot.reading import UNUSABLE
        from iris_cli.journal.snapshot.writing import SnapshotDraft

        self._last = position  # also if the write fails, because the next write would probably fail, too
        try:
            draft = SnapshotDraft(cluster, position)
            if position.seq - draft.since < self.archive_every:
                draft.write(self._disk, self._path)
                return cluster
            path = archived_snapshot_path(self._directory, position.seq)
            make_directory(self._disk, path.parent)
            if (archived := draft.write(self._disk, path)) is not None:
                # Only now, because until the write the earlier files were the newest snapshot.
                self._delete(path if draft.since == 0 else None)
                on_archived()
                return draft.trimmed(self._directory, archived, partial(replay_to, position))
        except UNUSABLE as error:
            if not isinstance(error, OSError):  # one of the earlier snapshots is damaged
                self._delete(self._path)
                self._delete()
        return cluster

    def reject(self) -> None:
        """Ignore the snapshot that was read, because it does not belong to this log."""
        self._last = START

    def _delete(self, all_except: Path | None = None) -> None:
        """Delete `snapshot.json`. If `all_except` is given, also delete all archived snapshots except this one."""
        for path in self._paths() if all_except is not None else (self._path,):
            if path != all_except:
                with suppress(OSError):
                    path.unlink()

    def _is_ours(self) -> bool:
        """Return whether this user owns the directory, because its owner could not replace a snapshot of root's."""
        try:
            return self._directory.stat().st_uid == os.geteuid()
        except OSError:
            return False

    def _is_due(self, position: Position) -> bool:
        lines, size = self._every
        grown = position.offset - self._last.offset
        if grown < 0:  # the log was compacted
            grown = position.offset
        if position.seq - self._last.seq >= lines or grown >= size:
            return True
        try:
            length = self._path.lstat().st_size
        except OSError:
            length = 0
        return grown >= _MIN_BYTES and length <= _MAX_RATIO * grown
