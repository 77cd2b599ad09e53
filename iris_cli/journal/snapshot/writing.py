"""Writing a snapshot: what is open, and the jobs that ended for good since the last one in the archive."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from itertools import islice
from pathlib import Path
from zlib import crc32

from msgspec import Raw

from iris_cli.core import Cluster, JobId, Table, WorkerId, in_memory
from iris_cli.journal.codec import encode
from iris_cli.journal.durable import Disk, opened, sync_directory, write_all
from iris_cli.journal.log.position import Position, sealed
from iris_cli.journal.snapshot.form import Header, Moment, Page, Piece, Whole, entry_of, live_of, whole_in
from iris_cli.journal.snapshot.reading import Files, OutputTexts, Snapshot, cluster_of

LAST = 100
"""How many of the jobs that ended last are known without looking at the others."""

_PAGE = 64  # jobs


class Draft:
    """A snapshot of a cluster, ready to be written. Raises OSError and DamagedSnapshotError, as does `write`."""

    def __init__(self, cluster: Cluster, position: Position) -> None:
        self._open, self._over, self._last, past = _looked_through(cluster)
        self._cluster = cluster
        self._past = past
        self._moments = past.files.moments if past is not None else ()
        self.since = self._moments[-1].seq if self._moments else 0
        is_open = {whole.job.id for whole in self._open}
        entries = _entries(past, self._over)
        pages = list(_pages(entries))
        live = live_of(cluster, self._open, self._last)
        self._ended = sorted(entries)
        self._lines = [encode(live), encode(sorted(is_open)), encode(self._ended), _object(_outputs(cluster))]
        self._lines += (text for _, text in pages)
        pieces = list(_pieces(self._lines))
        self._header = Header(
            position=position,
            moments=self._moments,
            jobs=len(cluster.jobs),
            tasks=len(cluster.tasks),
            parents=len(cluster.children),
            live=pieces[0],
            open=pieces[1],
            ended=pieces[2],
            outputs=pieces[3],
            pages=tuple(
                Page(JobId(first), piece) for (first, _), piece in zip(pages, pieces[4:], strict=True)
            ),
        )

    def write(self, disk: Disk, path: Path) -> Moment | None:
        """Put the snapshot in the place of `path`, durably; None if another process is writing it."""
        first = sealed(encode(self._header)[:-1])
        draft = path.with_name(path.name + ".tmp")
        with opened(
            draft, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK
        ) as fd:  # a pipe there must not hold us up
            if not _is_ours_alone(fd, draft):
                return None
            try:
                disk.truncate(fd, 0)
                write_all(disk, fd, first + b"".join(line + b"\n" for line in self._lines))
                disk.fsync(fd)
                disk.rename(draft, path)
            except BaseException:
                with suppress(OSError):
                    draft.unlink()  # it may be what filled the disk
                raise
        sync_directory(disk, path.parent)
        position = self._header.position
        return Moment(position.seq, first[-11:-3].decode("ascii"), position.earliest or 0.0)

    def trimmed(self, directory: Path, moment: Moment, replayed: Callable[[], Cluster]) -> Cluster:
        """Return the cluster without the jobs that nobody needs in memory, once they are in the archive."""
        there = {attempt.task.job for each in in_memory(self._cluster.outputs) for attempt in each.attempts}
        kept = {whole.job.id: whole for whole in self._over if whole.job.id in there}
        files = Files(directory, None, (*self._moments, moment))
        if (where := self._past.files.where if self._past is not None else {}) is not None:
            files.where = where | dict.fromkeys(self._ended, moment.seq)
        past = Snapshot(files, self._open, self._last, replayed, kept)
        header = self._header
        sizes = header.jobs, header.tasks, header.parents
        held = [*self._open, *kept.values()]
        return cluster_of(copy(self._cluster), past, held, sizes, self._cluster.outputs)


Looked = tuple[list[Whole], list[Whole], tuple[JobId, ...], "Snapshot | None"]
"""Open jobs, those that are over for good, the ids of those that ended last, and the files to go on from."""


def _looked_through(cluster: Cluster) -> Looked:
    """What a snapshot is made of; all jobs if there are no files to go on from."""
    past = sound_past(cluster)
    opened, over = _divided(cluster, complete=past is None)
    is_open = {whole.job.id for whole in opened}
    last = tuple(job.id for job in cluster.last_ended(LAST) if job.id not in is_open)
    if past is not None and past.log is not None:
        # One of the files turned out to be damaged just now: what was looked up is from the log and in no file.
        return _looked_through(cluster)
    return opened, over, last, past


def _divided(cluster: Cluster, *, complete: bool) -> tuple[list[Whole], list[Whole]]:
    """The jobs in memory, or all: those that are open, and those that are over for good."""
    for job_id in {task.job for task in in_memory(cluster.tasks)}:
        cluster.jobs[job_id]
    held = {job.id for job in cluster.open_jobs()}
    opened: list[Whole] = []
    over: list[Whole] = []
    jobs = cluster.jobs.values() if complete else in_memory(cluster.jobs)
    for job in sorted(jobs, key=lambda job: job.order):
        whole = whole_in(cluster, job.id)
        is_open = job.id in held or not all(task.state.terminal for task in whole.tasks)
        (opened if is_open else over).append(whole)
    return opened, over


def sound_past(cluster: Cluster) -> Snapshot | None:
    """The files that the next snapshot can go on from; without any, everything is taken into memory."""
    past = cluster.past
    return past if isinstance(past, Snapshot) and past.log is None else None


def _entries(past: Snapshot | None, over: Sequence[Whole]) -> dict[str, bytes | Raw]:
    """The jobs for the pages: those of the last snapshot, unless it is a moment, and those that changed since."""
    entries: dict[str, bytes | Raw] = {}
    if past is not None and past.files.last is not None:
        entries.update(past.files.last.entries())
    for whole in over:
        if past is None or past.kept.get(whole.job.id) != whole:
            entries[whole.job.id] = encode(entry_of(whole))
    return entries


def _outputs(cluster: Cluster) -> dict[WorkerId, bytes | Raw]:
    """Those in memory, and the others as they stand in the last snapshot."""
    table, left = cluster.outputs, dict[WorkerId, bytes | Raw]()
    if isinstance(table, Table) and isinstance(table.kept, OutputTexts):
        left.update((worker, raw) for worker, raw in table.kept.raws.items() if not table.dropped(worker))
    return left | {worker: encode(outputs) for worker, outputs in dict.items(table)}


def _object(entries: Mapping[WorkerId, bytes | Raw] | Mapping[str, bytes | Raw]) -> bytes:
    """A JSON object of values that are encoded already, by ids, which need no escapes."""
    return b"{%s}" % b",".join(
        b'"%s":%s' % (key.encode("ascii"), bytes(value)) for key, value in entries.items()
    )


def _pages(entries: Mapping[str, bytes | Raw]) -> Iterator[tuple[str, bytes]]:
    """So many jobs at a time, by id: the first one, and the text of all."""
    jobs = iter(sorted(entries))
    while page := list(islice(jobs, _PAGE)):
        yield page[0], _object({job: entries[job] for job in page})


def _pieces(lines: Iterable[bytes]) -> Iterator[Piece]:
    start = 0
    for line in lines:
        yield Piece(start, len(line), crc32(line))
        start += len(line) + 1


def _is_ours_alone(fd: int, draft: Path) -> bool:
    """Whether nobody else writes it, and nobody has put it in place since we opened it."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.stat(draft, follow_symlinks=False))
    except (BlockingIOError, FileNotFoundError):
        return False
