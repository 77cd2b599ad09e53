"""Read a snapshot: open jobs at once, ended jobs on demand."""

import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from threading import RLock
from typing import TypeVar
from zlib import crc32

from msgspec import Raw, Struct

from iris_cli.core import Job, JobId, Task, TaskId, Token, WorkerId
from iris_cli.core.model.cluster import Cluster, Outputs, Past, Table
from iris_cli.files import open_safely
from iris_cli.journal.codec import decode
from iris_cli.journal.layout import archived_snapshot_path
from iris_cli.journal.log.position import is_intact, unseal
from iris_cli.journal.snapshot import form

T = TypeVar("T")
UNUSABLE = (OSError, form.DamagedSnapshotError)
"""The errors of reading a missing, unreadable or damaged snapshot."""
_BLOCK = 1 << 16  # bytes


class SnapshotFile:
    """An open snapshot. It stays readable if the file is replaced. Methods raise OSError and DamagedSnapshotError."""

    _fd = -1

    def __init__(self, path: Path) -> None:
        # If the path is a pipe, open must not block.
        self._fd = open_safely(path, os.O_RDONLY)
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise form.DamagedSnapshotError("other users can write it")
        with os.fdopen(self._fd, "rb", _BLOCK, closefd=False) as stream:
            line = stream.readline().removesuffix(b"\n")
        if not is_intact(line):
            raise form.DamagedSnapshotError("the first line has a wrong checksum")
        with form.raising_damaged():
            self.header = decode(form.FirstLine, unseal(line))
        if (self.header.form, self.header.meaning) != (form.FORM, form.MEANING):
            raise form.DamagedSnapshotError("it has another format")
        self.crc = line[-10:-2].decode("ascii")
        self._start = len(line) + 1
        self._pages: dict[int, form.StoredJobs] = {}

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def read(self, piece: form.Piece) -> bytes:
        """Return one line without its newline."""
        raw = os.pread(self._fd, piece.size, self._start + piece.start)
        if len(raw) != piece.size or crc32(raw) != piece.crc:
            raise form.DamagedSnapshotError("a line has a wrong checksum")
        return raw

    def decode(self, kind: type[T], piece: form.Piece) -> T:
        """Return the value in one line."""
        with form.raising_damaged():
            return decode(kind, self.read(piece))

    def find(self, job: JobId) -> Raw | None:
        """Return an ended job, encoded; None if absent. Ended jobs are on the pages: lines in the order of job ids."""
        number = bisect_right(self.header.pages, job, key=attrgetter("first")) - 1
        if number < 0:
            return None
        if number not in self._pages:
            self._pages[number] = self._page(number)
        return self._pages[number].get(job)

    def entries(self) -> dict[str, Raw]:
        """Return all ended jobs, encoded, by id."""
        found: dict[str, Raw] = {}
        for number in range(len(self.header.pages)):
            found.update(self._page(number))
        return found

    def texts(self) -> Iterator[bytes]:
        return (self.read(page.piece) for page in self.header.pages)

    def _page(self, number: int) -> form.StoredJobs:
        return self.decode(dict[str, Raw], self.header.pages[number].piece)


class SnapshotFiles:
    """The files of a snapshot: `current`, and the archived snapshots with jobs that ended earlier, oldest first.

    `current` is the file outside the archive; None if the newest snapshot is in the archive.
    """

    def __init__(
        self, directory: Path, current: SnapshotFile | None, archived_snapshots: Sequence[form.Archived]
    ) -> None:
        self.current = current
        self.archived_snapshots = tuple(archived_snapshots)
        self._crcs = {each.seq: each.crc for each in archived_snapshots}
        self.newest_by_job: dict[str, int] | None = None
        """By job, the seq of the newest snapshot that has the job. None: not read yet."""
        self._directory = directory
        self._open = {} if current is None else {current.header.position.seq: current}

    def archived(self, seq: int) -> SnapshotFile:
        """Return the snapshot with this seq. Raises the errors in `UNUSABLE`."""
        if seq not in self._open:
            file = SnapshotFile(archived_snapshot_path(self._directory, seq))
            if file.crc != self._crcs[seq]:
                raise form.DamagedSnapshotError("another snapshot has its name")
            self._open[seq] = file
        return self._open[seq]

    def find(self, job: JobId) -> Raw | None:
        """Return an encoded job from the newest snapshot that has it; None if no snapshot has it."""
        if self.newest_by_job is None:
            newest = next(self.newest_first(), None)
            if newest is None or (raw := newest.find(job)) is not None:
                return raw if newest is not None else None
            self.newest_by_job = self._newest_files()
        if (seq := self.newest_by_job.get(job)) is None:
            return None
        return self.archived(seq).find(job)

    def _newest_files(self) -> dict[str, int]:
        newest_by_job: dict[str, int] = {}
        for file in reversed(list(self.newest_first())):
            newest_by_job |= dict.fromkeys(
                file.decode(list[str], file.header.ended), file.header.position.seq
            )
        return newest_by_job

    def newest_first(self) -> Iterator[SnapshotFile]:
        if self.current is not None:
            yield self.current
        yield from (self.archived(each.seq) for each in reversed(self.archived_snapshots))


def files_of_snapshot(directory: Path, file: SnapshotFile, *, archived: bool) -> SnapshotFiles:
    """Return the files of the snapshot in `file`. `archived`: this file is itself in the archive."""
    if not archived:
        return SnapshotFiles(directory, file, file.header.moments)
    position = file.header.position
    newest = form.Archived(position.seq, file.crc, position.earliest or 0.0)
    return SnapshotFiles(directory, None, (*file.header.moments, newest))


class Snapshot(Past):
    """All jobs at the time of a snapshot, from its files, or from the log if a file is damaged.

    `live` are the open jobs. `last_ended_ids` are the ids of the jobs that ended last. `replay` computes the same
    cluster from the log. `kept` are ended jobs in memory that have not changed since the snapshot.
    """

    def __init__(
        self,
        files: SnapshotFiles,
        live: Sequence[form.FullJob],
        last_ended_ids: Sequence[JobId],
        replay: Callable[[], Cluster],
        kept: dict[JobId, form.FullJob] | None = None,
    ) -> None:
        self.files = files
        self.log: Cluster | None = None
        """The cluster replayed from the log; None unless a file was found damaged."""
        self.kept = kept if kept is not None else {}
        self.lock = RLock()  # for the tables, because threads also read ended jobs
        self.live = live
        self._last_ended_ids = last_ended_ids
        self._replay = replay

    def _query(self, files: Callable[[], T], log: Callable[[Cluster], T]) -> T:
        """Return `files()`, or `log(cluster)` of the replayed cluster if a file is damaged. Raises LogDamagedError."""
        if self.log is None:
            try:
                return files()
            except UNUSABLE:
                self.log = self._replay()
        return log(self.log)

    def find(self, job: JobId) -> form.FullJob | None:
        """Return an ended job; None if there is no such job."""
        if (full_job := self.kept.get(job)) is None:
            full_job = self._query(
                lambda: self._in_files(job), lambda log: form.job_in(log, job) if job in log.jobs else None
            )
            if full_job is not None:
                self.kept[job] = full_job
        return full_job

    def _in_files(self, job: JobId) -> form.FullJob | None:
        raw = self.files.find(job)
        return None if raw is None else _decode_job(raw)

    def all_entries(self) -> list[form.FullJob]:
        """Return all jobs at the time of the snapshot, in the order of submission."""
        found = self._query(self._all_in_files, lambda log: {job: form.job_in(log, job) for job in log.jobs})
        found |= self.kept
        found |= {full_job.job.id: full_job for full_job in self.live}
        return sorted(found.values(), key=lambda full_job: full_job.job.order)

    def _all_in_files(self) -> dict[JobId, form.FullJob]:
        raws: dict[str, Raw] = {}
        for file in self.files.newest_first():
            raws = file.entries() | raws
        return {JobId(job): _decode_job(raw) for job, raw in raws.items() if job not in self.kept}

    def last_ended(self, limit: int) -> Sequence[JobId]:
        if limit <= len(self._last_ended_ids):
            return self._last_ended_ids[:limit]
        return [full_job.job.id for full_job in self.all_entries() if full_job.job.end is not None]

    def unknown_tokens(self, tokens: Iterable[Token]) -> tuple[Token, ...]:
        with self.lock:
            tasks = [task for full_job in self.kept.values() for task in full_job.tasks]
        known = {attempt.token for task in tasks for attempt in task.attempts}
        wanted = tuple(token for token in tokens if token not in known)
        if not wanted:
            return ()
        return self._query(lambda: self._unknown_tokens(wanted), lambda log: log.unknown_tokens(wanted))

    def _unknown_tokens(self, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        missing = dict.fromkeys(tokens)
        for text in (text for file in self.files.newest_first() for text in file.texts()):
            for token in [token for token in missing if token.encode() in text]:
                del missing[token]
            if not missing:
                break
        return tuple(missing)


def _decode_job(raw: Raw) -> form.FullJob:
    with form.raising_damaged():
        return form.expand_job(decode(form.StoredJob, bytes(raw)))


class _Jobs(Struct):
    """The table of jobs in a snapshot. `_Tasks` and `_Children` are the two other tables."""

    snapshot: Snapshot

    def find(self, key: JobId) -> Job | None:
        full_job = self.snapshot.find(key)
        return None if full_job is None else full_job.job

    def all_entries(self) -> Iterable[tuple[JobId, Job]]:
        return ((full_job.job.id, full_job.job) for full_job in self.snapshot.all_entries())


class _Tasks(Struct):
    snapshot: Snapshot

    def find(self, key: TaskId | None) -> Task | None:
        if key is None or (full_job := self.snapshot.find(key.job)) is None:
            return None
        return full_job.tasks[key.index] if 0 <= key.index < len(full_job.tasks) else None

    def all_entries(self) -> Iterable[tuple[TaskId, Task]]:
        return ((task.id, task) for full_job in self.snapshot.all_entries() for task in full_job.tasks)


class _Children(Struct):
    snapshot: Snapshot

    def find(self, key: JobId) -> tuple[JobId, ...] | None:
        full_job = self.snapshot.find(key)
        return (full_job.children or None) if full_job is not None else None

    def all_entries(self) -> Iterable[tuple[JobId, tuple[JobId, ...]]]:
        full_jobs = self.snapshot.all_entries()
        return ((full_job.job.id, full_job.children) for full_job in full_jobs if full_job.children)


class OutputTexts(Struct):
    """For each worker, the ended attempts whose files it still has; decoded on access."""

    raws: dict[WorkerId, Raw]

    def find(self, key: WorkerId) -> Outputs | None:
        return decode(Outputs, bytes(self.raws[key])) if key in self.raws else None

    def all_entries(self) -> Iterable[tuple[WorkerId, Outputs]]:
        return ((worker, decode(Outputs, bytes(raw))) for worker, raw in self.raws.items())


def cluster_of(
    cluster: Cluster,
    past: Snapshot,
    sizes: tuple[int, int, int],
    outputs: dict[WorkerId, Outputs],
) -> Cluster:
    """Give `cluster` tables with the open jobs of `past` in memory, and return it. `sizes`: lengths of the tables."""
    jobs = {full_job.job.id: full_job.job for full_job in past.live}
    tasks = {task.id: task for full_job in past.live for task in full_job.tasks}
    children = {full_job.job.id: full_job.children for full_job in past.live if full_job.children}
    cluster.jobs = Table(jobs, _Jobs(past), sizes[0] - len(jobs), past.lock)
    cluster.tasks = Table(tasks, _Tasks(past), sizes[1] - len(tasks), past.lock)
    cluster.children = Table(children, _Children(past), sizes[2] - len(children), past.lock)
    cluster.outputs = outputs
    cluster.past = past
    return cluster


def read_snapshot(
    directory: Path, file: SnapshotFile, replay: Callable[[], Cluster], *, archived: bool
) -> Cluster:
    """Return the cluster in a snapshot. `archived`: the file is in the archive. Raises the errors in `UNUSABLE`.

    `replay` returns the same cluster from the log. It is called later if a part of the file is damaged.
    """
    header, live = file.header, file.decode(form.Live, file.header.live)
    with form.raising_damaged():
        opened = form.open_jobs(live)
    past = Snapshot(files_of_snapshot(directory, file, archived=archived), opened, live.last, replay)
    raws = file.decode(dict[WorkerId, Raw], header.outputs)
    outputs = Table({}, OutputTexts(raws), len(raws), past.lock)
    return cluster_of(live.fleet, past, (header.jobs, header.tasks, header.parents), outputs)
