"""Writing a snapshot. Of one that is there, the lines of jobs that nothing has happened to are copied as they are."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from msgspec.structs import replace

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import WorkerId
from iris_cli.core.job import Job
from iris_cli.core.past import in_memory
from iris_cli.journal.codec import encode
from iris_cli.journal.durable import Disk, opened, sync_directory, write_all
from iris_cli.journal.position import Position
from iris_cli.journal.snapshot.entries import Now, Texts, entry_of, id_of, job_line, texts_of
from iris_cli.journal.snapshot.form import END, HEADER_SIZE, PARTS, Header, encode_header
from iris_cli.journal.snapshot.reading import FromFile
from iris_cli.journal.snapshot.thawing import Snapshot

LAST = 100
"""How many of the jobs that ended last are known without looking at the others."""

_BUFFER = 1 << 20
_Lines = dict[bytes, bytes]


def write_snapshot(disk: Disk, path: Path, cluster: Cluster, position: Position, program: str) -> None:
    """Put the cluster as of that position in the place of `path`, durably; nothing if another process is at it.

    Raises OSError; DamagedSnapshotError if what was to be copied is damaged.
    """
    draft = path.with_name(path.name + ".tmp")
    with opened(draft, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK) as fd:  # a pipe there must not hold us up
        if not _is_ours_alone(fd, draft):
            return
        try:
            disk.truncate(fd, 0)
            _write(_Out(disk, fd), cluster, position, program)
            disk.fsync(fd)
            disk.rename(draft, path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()  # it may be what filled the disk
            raise
    sync_directory(disk, path.parent)


def _is_ours_alone(fd: int, draft: Path) -> bool:
    """Whether nobody else writes it, and nobody has put it in place since we opened it."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.stat(draft, follow_symlinks=False))
    except (BlockingIOError, FileNotFoundError):
        return False


class _Out:
    """What goes into the file, in large pieces."""

    def __init__(self, disk: Disk, fd: int) -> None:
        self._disk, self._fd = disk, fd
        self._waiting: list[bytes] = []
        self._size = 0

    def put(self, data: bytes) -> None:
        self._waiting.append(data)
        self._size += len(data)
        if self._size >= _BUFFER:
            self.flush()

    def flush(self) -> None:
        write_all(self._disk, self._fd, b"".join(self._waiting))
        self._waiting, self._size = [], 0

    def go_back(self) -> None:
        self.flush()
        os.lseek(self._fd, 0, os.SEEK_SET)


def _write(out: _Out, cluster: Cluster, position: Position, program: str) -> None:
    assert position.header is not None, "there is no snapshot of an empty log"
    out.put(b" " * HEADER_SIZE)
    old = _old(cluster)
    opened, over = _divided(cluster, old)
    outputs = _outputs(cluster, old)
    now = encode(_now(cluster, position, opened, outputs=len(outputs)))
    texts = encode(outputs)
    header = replace(
        _counted(cluster, opened),
        program=program,
        cluster_id=position.header.cluster_id,
        line=position.line,
        offset=position.offset,
        seq=position.seq,
        log_crc=position.crc,
        at=position.at,
        now_size=len(now),
        now_crc=crc32(now),
        outputs_size=len(texts),
        outputs_crc=crc32(texts),
    )
    for part in (PARTS[0], now, PARTS[1], texts, PARTS[2]):
        out.put(part)
    size, crc = 0, 0
    for piece in _merged(old, {job.id.encode(): job_line(cluster, job) for job in over}):
        size, crc = size + len(piece), crc32(piece, crc)
        out.put(piece)
    out.put(END)
    out.go_back()  # BEFORE: there is no header, so it is no snapshot.
    out.put(encode_header(replace(header, over_size=size, over_crc=crc)))
    out.flush()


def _old(cluster: Cluster) -> FromFile | None:
    """The snapshot whose lines can be copied; else everything is taken into memory."""
    return cluster.past.file if isinstance(cluster.past, Snapshot) else None


def _divided(cluster: Cluster, old: FromFile | None) -> tuple[list[Job], list[Job]]:
    """The jobs in memory that are open, and those that are over and not in the old snapshot as they are now."""
    for job_id in {task.job for task in in_memory(cluster.tasks)}:
        cluster.jobs[job_id]
    held = {job.id for job in cluster.open_jobs()}
    opened, over = [], []
    jobs = cluster.jobs.values() if old is None else in_memory(cluster.jobs)
    for job in sorted(jobs, key=lambda job: job.order):
        if job.id in held or not all(task.state.terminal for task in cluster.tasks_of(job.id)):
            opened.append(job)
        elif old is None or not _is_kept(cluster, old, job):
            over.append(job)
    return opened, over


def _is_kept(cluster: Cluster, old: FromFile, job: Job) -> bool:
    """Whether it was over then already, and nothing has happened to it: its line is right."""
    try:
        then = old.over(job.id)
    except KeyError:
        return False
    return then.job == job and then.tasks == tuple(cluster.tasks_of(job.id))


def _counted(cluster: Cluster, opened: list[Job]) -> Header:
    """How much is over: all that isn't open."""
    return Header(
        program="",
        cluster_id="",
        line=0,
        offset=0,
        seq=0,
        log_crc="",
        at=0.0,
        jobs=len(cluster.jobs) - len(opened),
        tasks=len(cluster.tasks) - sum(job.replicas for job in opened),
        parents=len(cluster.children) - sum(job.id in cluster.children for job in opened),
    )


def _now(cluster: Cluster, position: Position, opened: list[Job], *, outputs: int) -> Now:
    assert position.header is not None
    is_open = {job.id for job in opened}
    last = [job.id for job in cluster.last_ended(LAST + len(opened)) if job.id not in is_open]
    return Now(
        name=cluster.name,
        workers=tuple(cluster.workers.values()),
        ghosts=cluster.ghosts,
        endpoints=cluster.endpoints,
        slices=tuple(cluster.slices.values()),
        scale_groups=tuple(cluster.scale_groups.values()),
        keeper=cluster.keeper,
        program=position.program,
        log=position.header,
        outputs=outputs,
        last=tuple(last[:LAST]),
        jobs=tuple(entry_of(cluster, job) for job in opened),
    )


def _outputs(cluster: Cluster, old: FromFile | None) -> dict[WorkerId, Texts]:
    """Those in memory, and the others as they stand in the old snapshot."""
    if old is None:
        return {worker: texts_of(outputs) for worker, outputs in cluster.outputs.items()}
    kept = old.outputs()
    held = dict(dict.items(cluster.outputs))
    return {worker: texts_of(held[worker]) if worker in held else kept[worker] for worker in cluster.outputs}


def _merged(old: FromFile | None, lines: _Lines) -> Iterator[bytes]:
    """The lines of the old snapshot with these among them and in their stead, by id; many at a time."""
    coming = sorted(lines)
    for block in old.file.blocks() if old is not None else ():
        count = bisect_right(coming, id_of(block[block.rfind(b"\n", 0, -1) + 1 :]))
        among, coming = coming[:count], coming[count:]
        yield _mixed(block, {job: lines[job] for job in among}) if among else block
    yield from (lines[job] for job in coming)


def _mixed(block: bytes, lines: _Lines) -> bytes:
    there = {id_of(line): line for line in block.splitlines(keepends=True)}
    there |= lines
    return b"".join(there[job] for job in sorted(there))
