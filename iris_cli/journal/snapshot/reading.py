"""Reading a snapshot: what is open at once, a job that ended for good when somebody looks it up."""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TypeVar
from zlib import crc32

from msgspec import Raw

from iris_cli.core import Job, JobId, Task, TaskId, Token, WorkerId
from iris_cli.core.model.cluster import Cluster, Outputs
from iris_cli.core.model.past import Past, Table
from iris_cli.journal.codec import decode
from iris_cli.journal.durable import open_safely
from iris_cli.journal.layout import moment_path
from iris_cli.journal.log.position import is_intact, unsealed
from iris_cli.journal.snapshot.form import (
    FORM,
    MEANING,
    DamagedSnapshotError,
    Entries,
    Entry,
    Header,
    Live,
    Moment,
    Piece,
    Whole,
    as_written,
    opened,
    whole_in,
    whole_of,
)

T = TypeVar("T")
UNUSABLE = (OSError, DamagedSnapshotError)
"""Errors of reading a snapshot that isn't what we wrote."""
_BLOCK = 1 << 16  # bytes


class SnapshotFile:
    """An open snapshot; it may be replaced meanwhile. Raises OSError and DamagedSnapshotError, as do all methods."""

    _fd = -1

    def __init__(self, path: Path) -> None:
        # Without waiting: something else than a file may stand there.
        self._fd = open_safely(path, os.O_RDONLY | os.O_NONBLOCK)
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise DamagedSnapshotError("not ours alone")
        line = self._first_line()
        if not is_intact(line):
            raise DamagedSnapshotError("header")
        with as_written():
            self.header = decode(Header, unsealed(line))
        if (self.header.form, self.header.meaning) != (FORM, MEANING):
            raise DamagedSnapshotError("of another program")
        self.crc = line[-10:-2].decode("ascii")
        self._start = len(line) + 1
        self._pages: dict[int, Entries] = {}

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def read(self, piece: Piece) -> bytes:
        """One line, without its newline."""
        raw = os.pread(self._fd, piece.size, self._start + piece.start)
        if len(raw) != piece.size or crc32(raw) != piece.crc:
            raise DamagedSnapshotError("a part")
        return raw

    def live(self) -> Live:
        with as_written():
            return decode(Live, self.read(self.header.live))

    def outputs(self) -> dict[WorkerId, Raw]:
        with as_written():
            return decode(dict[WorkerId, Raw], self.read(self.header.outputs))

    def find(self, job: JobId) -> Raw | None:
        """A job of the pages, still encoded."""
        number = bisect_right(self.header.pages, job, key=attrgetter("first")) - 1
        if number < 0:
            return None
        if number not in self._pages:
            self._pages[number] = self._page(number)
        return self._pages[number].get(job)

    def names(self, piece: Piece) -> list[str]:
        """The ids in a line."""
        with as_written():
            return decode(list[str], self.read(piece))

    def entries(self) -> dict[str, Raw]:
        """All jobs of the pages, still encoded."""
        found: dict[str, Raw] = {}
        for number in range(len(self.header.pages)):
            found.update(self._page(number))
        return found

    def texts(self) -> Iterator[bytes]:
        return (self.read(page.piece) for page in self.header.pages)

    def _page(self, number: int) -> Entries:
        with as_written():
            return decode(dict[str, Raw], self.read(self.header.pages[number].piece))

    def _first_line(self) -> bytes:
        read = b""
        while b"\n" not in read:
            more = os.pread(self._fd, _BLOCK, len(read))
            if not more:
                raise DamagedSnapshotError("too short")
            read += more
        return read[: read.index(b"\n")]


class Files:
    """A snapshot and those of earlier moments that it goes on from. `last` is None if the newest is a moment, too."""

    def __init__(self, directory: Path, last: SnapshotFile | None, moments: Sequence[Moment]) -> None:
        self.last = last
        self.moments = tuple(moments)
        self._crcs = {moment.seq: moment.crc for moment in moments}
        self.where: dict[str, int] | None = None
        """The newest moment that has a job; 0 for the last snapshot. None: not read yet."""
        self._directory = directory
        self._open: dict[int, SnapshotFile] = {}

    @staticmethod
    def of(directory: Path, file: SnapshotFile, *, kept: bool) -> Files:
        """A snapshot and all that it goes on from; `kept`: it is a moment itself."""
        if not kept:
            return Files(directory, file, file.header.moments)
        position = file.header.position
        newest = Moment(position.seq, file.crc, position.earliest or 0.0)
        return Files(directory, None, (*file.header.moments, newest))

    def moment(self, seq: int) -> SnapshotFile:
        """One of the moments. Raises what is in `UNUSABLE`."""
        if seq not in self._open:
            file = SnapshotFile(moment_path(self._directory, seq))
            if file.crc != self._crcs[seq]:
                raise DamagedSnapshotError("another moment")
            self._open[seq] = file
        return self._open[seq]

    def find(self, job: JobId) -> Raw | None:
        """A job, still encoded. Those that ended last are found without reading the names of all."""
        if self.where is None:
            newest = next(self.newest_first(), None)
            if newest is None or (raw := newest.find(job)) is not None:
                return raw if newest is not None else None
            self.where = self._located()
        if (seq := self.where.get(job)) is None:
            return None
        file = self.last if seq == 0 and self.last is not None else self.moment(seq)
        return file.find(job)

    def _located(self) -> dict[str, int]:
        where: dict[str, int] = {}
        for moment in self.moments:
            file = self.moment(moment.seq)
            where.update(dict.fromkeys(file.names(file.header.ended), moment.seq))
        if self.last is not None:
            where.update(dict.fromkeys(self.last.names(self.last.header.ended), 0))
        return where

    def newest_first(self) -> Iterator[SnapshotFile]:
        if self.last is not None:
            yield self.last
        yield from (self.moment(moment.seq) for moment in reversed(self.moments))


class Snapshot(Past):
    """All that was known when a snapshot was written: from its files, or from the log if one of them is damaged.

    `live` were the open jobs, `kept` those in memory that are in the files as they are.
    """

    def __init__(
        self,
        files: Files,
        live: Sequence[Whole],
        last: Sequence[JobId],
        replayed: Callable[[], Cluster],
        kept: dict[JobId, Whole] | None = None,
    ) -> None:
        self.files = files
        self.log: Cluster | None = None
        """What the log came to, once a file turned out to be damaged."""
        self.kept = kept if kept is not None else {}
        self._live = live
        self._last = last
        self._replayed = replayed

    def _ask(self, files: Callable[[], T], log: Callable[[Cluster], T]) -> T:
        """Ask the files, or the log if one is damaged. Raises LogDamagedError if the log is, too."""
        if self.log is None:
            try:
                return files()
            except UNUSABLE:
                self.log = self._replayed()
        return log(self.log)

    def find(self, job: JobId) -> Whole:
        """Return a job that was over. Raises KeyError."""
        if job not in self.kept:
            self.kept[job] = self._ask(lambda: self._in_files(job), lambda log: whole_in(log, job))
        return self.kept[job]

    def _in_files(self, job: JobId) -> Whole:
        if (raw := self.files.find(job)) is None:
            raise KeyError(job)
        return _decoded(raw)

    def everything(self) -> list[Whole]:
        """All jobs of then, in the order of their submission."""
        found = self._ask(self._all_in_files, lambda log: {job: whole_in(log, job) for job in log.jobs})
        found |= self.kept
        found |= {whole.job.id: whole for whole in self._live}
        return sorted(found.values(), key=lambda whole: whole.job.order)

    def _all_in_files(self) -> dict[JobId, Whole]:
        raws: dict[str, Raw] = {}
        for file in self.files.newest_first():
            raws = file.entries() | raws
        return {JobId(job): _decoded(raw) for job, raw in raws.items() if job not in self.kept}

    def last_ended(self, most: int) -> Sequence[JobId]:
        if most <= len(self._last):
            return self._last[:most]
        return [whole.job.id for whole in self.everything() if whole.job.end is not None]

    def foreign(self, tokens: Iterable[Token]) -> tuple[Token, ...]:
        asked = tuple(tokens)
        return self._ask(lambda: self._foreign(asked), lambda log: log.foreign(asked))

    def _foreign(self, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        missing = dict.fromkeys(tokens)
        for text in (text for file in self.files.newest_first() for text in file.texts()):
            for token in [token for token in missing if token.encode() in text]:
                del missing[token]
        return tuple(missing)


def _decoded(raw: Raw) -> Whole:
    with as_written():
        return whole_of(decode(Entry, bytes(raw)))


class _Jobs:
    """A table of a cluster, as a snapshot has it; so are the others."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def find(self, key: JobId) -> Job:
        return self._snapshot.find(key).job

    def everything(self) -> Iterable[tuple[JobId, Job]]:
        return ((whole.job.id, whole.job) for whole in self._snapshot.everything())


class _Tasks:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def find(self, key: TaskId) -> Task:
        if not isinstance(key, TaskId):  # None, mostly
            raise KeyError(key)
        tasks = self._snapshot.find(key.job).tasks
        if not 0 <= key.index < len(tasks):
            raise KeyError(key)
        return tasks[key.index]

    def everything(self) -> Iterable[tuple[TaskId, Task]]:
        return ((task.id, task) for whole in self._snapshot.everything() for task in whole.tasks)


class _Children:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def find(self, key: JobId) -> tuple[JobId, ...]:
        if children := self._snapshot.find(key).children:
            return children
        raise KeyError(key)

    def everything(self) -> Iterable[tuple[JobId, tuple[JobId, ...]]]:
        wholes = self._snapshot.everything()
        return ((whole.job.id, whole.children) for whole in wholes if whole.children)


class OutputTexts:
    """The outputs of workers, read one by one."""

    def __init__(self, raws: dict[WorkerId, Raw]) -> None:
        self.raws = raws

    def find(self, key: WorkerId) -> Outputs:
        return decode(Outputs, bytes(self.raws[key]))

    def everything(self) -> Iterable[tuple[WorkerId, Outputs]]:
        return ((worker, self.find(worker)) for worker in self.raws)


def cluster_of(
    fleet: Cluster,
    past: Snapshot,
    held: Sequence[Whole],
    sizes: tuple[int, int, int],
    outputs: dict[WorkerId, Outputs],
) -> Cluster:
    """Return the cluster with these jobs in memory, and the others in the snapshot. `sizes`: as in `Header`."""
    jobs = {whole.job.id: whole.job for whole in held}
    tasks = {task.id: task for whole in held for task in whole.tasks}
    children = {whole.job.id: whole.children for whole in held if whole.children}
    fleet.jobs = Table(jobs, _Jobs(past), sizes[0] - len(jobs))
    fleet.tasks = Table(tasks, _Tasks(past), sizes[1] - len(tasks))
    fleet.children = Table(children, _Children(past), sizes[2] - len(children))
    fleet.outputs = outputs
    fleet.past = past
    return fleet


def read_snapshot(
    directory: Path, file: SnapshotFile, replayed: Callable[[], Cluster], *, kept: bool
) -> Cluster:
    """Return the cluster as of a snapshot; `kept`: the file is that of a moment. Raises what is in `UNUSABLE`.

    `replayed` gives the same cluster from the log, for the case that a part turns out to be damaged later.
    """
    header, live = file.header, file.live()
    with as_written():
        held = opened(live)
    past = Snapshot(Files.of(directory, file, kept=kept), held, live.last, replayed)
    raws = file.outputs()
    outputs = Table({}, OutputTexts(raws), len(raws))
    return cluster_of(live.fleet, past, held, (header.jobs, header.tasks, header.parents), outputs)
