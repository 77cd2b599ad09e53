"""Write a snapshot: open jobs, and the jobs that ended since the last archived snapshot."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from itertools import islice
from pathlib import Path
from zlib import crc32

from msgspec import Raw

from iris_cli.core import Cluster, JobId, Table, Task, WorkerId, values_in_memory
from iris_cli.files import Disk, is_in_place, opened, sync_directory, try_lock, write_all
from iris_cli.journal.codec import encode
from iris_cli.journal.log.position import Position, seal
from iris_cli.journal.snapshot import form
from iris_cli.journal.snapshot.reading import OutputTexts, Snapshot, SnapshotFiles, cluster_of

LAST = 100
"""Number of last ended jobs whose ids are in the part that every command reads."""

_PAGE = 64  # jobs in a page


class SnapshotDraft:
    """A snapshot of a cluster, ready to be written. Methods raise OSError and DamagedSnapshotError."""

    def __init__(self, cluster: Cluster, position: Position) -> None:
        self._open, self._changed, self._last_ended_ids, past = _parts_of(cluster)
        self._cluster = cluster
        self._past = past
        self._archived = past.files.archived_snapshots if past is not None else ()
        self.since = self._archived[-1].seq if self._archived else 0
        open_ids = sorted(full_job.job.id for full_job in self._open)
        entries = _entries(past, self._changed)
        pages = list(_pages(entries))
        live = form.live_part(cluster, self._open, self._last_ended_ids)
        self._ended = sorted(entries)
        self._lines = [encode(live), encode(open_ids), encode(self._ended), _object(_outputs(cluster))]
        self._lines += (text for _, text in pages)
        pieces = list(_pieces(self._lines))
        self._header = form.FirstLine(
            position=position,
            moments=self._archived,
            jobs=len(cluster.jobs),
            tasks=len(cluster.tasks),
            parents=len(cluster.children),
            live=pieces[0],
            open=pieces[1],
            ended=pieces[2],
            outputs=pieces[3],
            pages=tuple(
                form.Page(JobId(first), piece) for (first, _), piece in zip(pages, pieces[4:], strict=True)
            ),
        )

    def write(self, disk: Disk, path: Path) -> form.Archived | None:
        """Durably replace `path` by the snapshot. Return None if another process is writing it."""
        first = seal(encode(self._header)[:-1])
        draft = path.with_name(path.name + ".tmp")
        with opened(draft, os.O_WRONLY | os.O_CREAT) as fd:
            if not (try_lock(fd) and is_in_place(fd, draft)):  # another process writes it, or has renamed it
                return None
            try:
                disk.truncate(fd, 0)
                write_all(disk, fd, first + b"".join(line + b"\n" for line in self._lines))
                disk.fsync(fd)
                disk.rename(draft, path)
            except BaseException:
                with suppress(OSError):
                    draft.unlink()  # the draft may have filled the disk
                raise
        sync_directory(disk, path.parent)
        position = self._header.position
        return form.Archived(position.seq, first[-11:-3].decode("ascii"), position.earliest or 0.0)

    def trimmed(self, directory: Path, archived: form.Archived, replay: Callable[[], Cluster]) -> Cluster:
        """Return the cluster with open jobs, and jobs that still have files on workers, in memory."""
        outputs = values_in_memory(self._cluster.outputs)
        unreaped = {attempt.task.job for each in outputs for attempt in each.attempts}
        known = self._past.kept if self._past is not None else {}
        known = known | {full_job.job.id: full_job for full_job in self._changed}
        kept = {job: full_job for job, full_job in known.items() if job in unreaped}
        files = SnapshotFiles(directory, None, (*self._archived, archived))
        if (newest_by_job := self._past.files.newest_by_job if self._past is not None else {}) is not None:
            files.newest_by_job = newest_by_job | dict.fromkeys(self._ended, archived.seq)
        past = Snapshot(files, self._open, self._last_ended_ids, replay, kept)
        header = self._header
        sizes = header.jobs, header.tasks, header.parents
        return cluster_of(copy(self._cluster), past, sizes, self._cluster.outputs)


SnapshotParts = tuple[list[form.FullJob], list[form.FullJob], tuple[JobId, ...], "Snapshot | None"]
"""Open jobs, ended jobs, the ids of the jobs that ended last, and the earlier snapshots to keep."""


def _parts_of(cluster: Cluster) -> SnapshotParts:
    """Return the parts of a snapshot, with all ended jobs if there are no earlier snapshots to keep."""
    past = cluster.past
    if not isinstance(past, Snapshot) or past.log is not None:
        past = None  # the next snapshot can't refer to earlier ones, so it must have all jobs
    opened, ended = _open_and_ended(cluster, complete=past is None)
    open_ids = {full_job.job.id for full_job in opened}
    last_ended_ids = tuple(job.id for job in cluster.last_ended(LAST) if job.id not in open_ids)
    if past is not None and past.log is not None:
        # `last_ended` found a damaged file and used the log, so begin again without earlier snapshots.
        return _parts_of(cluster)
    return opened, ended, last_ended_ids, past


def _open_and_ended(cluster: Cluster, *, complete: bool) -> tuple[list[form.FullJob], list[form.FullJob]]:
    """Return the open jobs and the ended jobs in memory; `complete`: all jobs."""
    tasks: dict[JobId, list[Task]] = {}
    for task in cluster.tasks.values() if complete else values_in_memory(cluster.tasks):
        tasks.setdefault(task.id.job, []).append(task)
    job_ids = tasks | {job.id: None for job in values_in_memory(cluster.jobs)}
    full_jobs = [form.job_in(cluster, job_id, tasks.get(job_id, ())) for job_id in job_ids]
    open_ids = {job.id for job in cluster.open_jobs()}  # after `job_in`, which reads jobs into memory
    opened: list[form.FullJob] = []
    ended: list[form.FullJob] = []
    for full_job in full_jobs:
        is_open = full_job.job.id in open_ids or not all(task.state.terminal for task in full_job.tasks)
        (opened if is_open else ended).append(full_job)
    opened.sort(key=lambda full_job: full_job.job.order)
    return opened, ended


def _entries(past: Snapshot | None, ended: Sequence[form.FullJob]) -> dict[str, bytes | Raw]:
    """Return the jobs for the pages: the jobs in `snapshot.json`, and jobs that have ended or changed since then."""
    entries: dict[str, bytes | Raw] = {}
    if past is not None and past.files.current is not None:
        entries.update(past.files.current.entries())
    for full_job in ended:
        if past is None or past.kept.get(full_job.job.id) != full_job:
            entries[full_job.job.id] = encode(form.stored_job(full_job))
    return entries


def _outputs(cluster: Cluster) -> dict[WorkerId, bytes | Raw]:
    """Return the encoded outputs of all workers. Outputs that are not in memory are copied from the last snapshot."""
    table, stored = cluster.outputs, dict[WorkerId, bytes | Raw]()
    if isinstance(table, Table) and isinstance(table.kept, OutputTexts):
        stored.update((worker, raw) for worker, raw in table.kept.raws.items() if worker not in table.dropped)
    return stored | {worker: encode(outputs) for worker, outputs in dict.items(table)}


def _object(entries: Mapping[WorkerId, bytes | Raw] | Mapping[str, bytes | Raw]) -> bytes:
    """Return a JSON object of encoded values. Its keys are ids, which need no escapes."""
    return b"{%s}" % b",".join(
        b'"%s":%s' % (key.encode("ascii"), bytes(value)) for key, value in entries.items()
    )


def _pages(entries: Mapping[str, bytes | Raw]) -> Iterator[tuple[str, bytes]]:
    """Yield pages: the id of the first job, and the text of all jobs in the page."""
    jobs = iter(sorted(entries))
    while page := list(islice(jobs, _PAGE)):
        yield page[0], _object({job: entries[job] for job in page})


def _pieces(lines: Iterable[bytes]) -> Iterator[form.Piece]:
    start = 0
    for line in lines:
        yield form.Piece(start, len(line), crc32(line))
        start += len(line) + 1
