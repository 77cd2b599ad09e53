"""Find the range of log lines that a command about history must read, by the positions of archived snapshots."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from iris_cli.core import Cluster, JobId
from iris_cli.journal.durable import open_safely
from iris_cli.journal.layout import LOG
from iris_cli.journal.log.position import START, Position
from iris_cli.journal.log.reading import ALL, LineRange, Reading
from iris_cli.journal.log.record import FORMAT, BadLineError, NewerLogError, decode_line
from iris_cli.journal.log.scan import origin_of
from iris_cli.journal.snapshot.cache import ReplayTo, SnapshotCache
from iris_cli.journal.snapshot.reading import UNUSABLE, SnapshotFile, SnapshotFiles, read_snapshot


class LineRanges(Struct):
    """The ranges of lines between the snapshots of a state directory.

    If a snapshot is unusable, ranges are longer than necessary. `fits` and `replay_to` are as in `SnapshotCache.read`.
    """

    directory: Path
    snapshots: SnapshotCache
    fits: Callable[[Position], bool]
    replay_to: ReplayTo

    def range_before(self, time: float) -> tuple[Cluster, LineRange]:
        """Return the range with the last transaction at or before a time, and the cluster at the range's start."""
        try:
            files = self.snapshots.files(self.fits)
            if files is None:
                return Cluster(), ALL
            found = list(files.newest_first())
            for number, file in enumerate([None, *found]):
                start = found[number].header.position if number < len(found) else START
                end = None if file is None else file.header.position
                if end is None or (end.earliest or 0.0) <= time:
                    part = LineRange(start, end.seq if end is not None else sys.maxsize)
                    if any(each.at <= time for each in Reading(self.directory, part, archive=True)):
                        return self._cluster(files, found[number]) if number < len(found) else Cluster(), part
            return Cluster(), ALL
        except UNUSABLE:
            return Cluster(), ALL

    def ranges_of_job(self, job: JobId) -> list[LineRange]:
        """Return the ranges that may contain events about a job, in order."""
        ranges: list[LineRange] = []
        start = START
        try:
            files = self.snapshots.files(self.fits)
            for file in reversed(list(files.newest_first())) if files is not None else ():
                header = file.header
                quoted_id = f'"{job}"'.encode()
                if quoted_id in file.read(header.open) or quoted_id in file.read(header.ended):
                    ranges.append(LineRange(start, header.position.seq))
                start = header.position
        except UNUSABLE:
            return [ALL]
        return [*ranges, LineRange(start)]

    def range_of_last(self, lines: int) -> LineRange:
        """Return a range with at least the last `lines` lines."""
        log = self.directory / LOG
        try:
            with open(log, "rb", opener=open_safely) as stream:
                if (start := _position_before_last(stream, lines)) is not None:
                    return LineRange(start)
                begin = origin_of(stream).seq
            files = self.snapshots.files(self.fits) if begin else None
            for file in files.newest_first() if files is not None else ():
                if file.header.position.seq + lines <= begin:
                    return LineRange(file.header.position)
        except (*UNUSABLE, BadLineError, NewerLogError):
            pass
        return ALL

    def _cluster(self, files: SnapshotFiles, file: SnapshotFile) -> Cluster:
        replay_to = partial(self.replay_to, file.header.position)
        return read_snapshot(self.directory, file, replay_to, archived=file is not files.current)


def _position_before_last(stream: BinaryIO, lines: int) -> Position | None:
    """Return the position before the last lines; None if the log is shorter. Raises BadLineError, NewerLogError."""
    origin, size = origin_of(stream), os.fstat(stream.fileno()).st_size
    stream.seek(0)
    header = decode_line(stream.readline().removesuffix(b"\n")).header
    window, parts = 0, [b""]
    while len(parts) < lines + 3:  # the line before these lines must be complete
        if window >= size:
            return None
        window = max(_WINDOW, 4 * window)
        stream.seek(max(0, size - window))
        parts = stream.read(min(size, window)).rsplit(b"\n", lines + 2)
    record = decode_line(parts[1], header.format if header is not None else FORMAT)
    offset = size - sum(map(len, parts[2:])) - lines
    return Position(
        line=record.seq - origin.seq,
        offset=offset,
        seq=record.seq,
        crc=record.crc,
        at=record.at,
        header=header,
    )


_WINDOW = 1 << 16  # bytes
