"""Reading a snapshot: what is open at once, what is over when somebody asks for it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from zlib import crc32

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import JobId, Token, WorkerId
from iris_cli.core.outputs import Outputs
from iris_cli.journal.codec import decode
from iris_cli.journal.durable import open_safely
from iris_cli.journal.position import is_intact, unsealed
from iris_cli.journal.snapshot.entries import LISTED, JobEntry, Now, Texts, Whole, id_of, outputs_in
from iris_cli.journal.snapshot.form import (
    HEADER_SIZE,
    DamagedSnapshotError,
    as_written,
    decode_header,
)

_WINDOW = 1 << 12  # bytes around a place where a line is looked for
_BLOCK = 1 << 20
_LAST_OF_LINE = b",\n"


class SnapshotFile:
    """An open snapshot; it may be replaced meanwhile. Raises OSError and DamagedSnapshotError, as do all methods."""

    _fd = -1

    def __init__(self, path: Path) -> None:
        # Not waiting: something else than a file may stand there.
        self._fd = open_safely(path, os.O_RDONLY | os.O_NONBLOCK)
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise DamagedSnapshotError("not ours alone")
        self.header = decode_header(self._read(0, HEADER_SIZE))
        if status.st_size != self.header.size:
            raise DamagedSnapshotError("size")

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def now(self) -> Now:
        """What is needed at once."""
        raw = self._part(self.header.now_start, self.header.now_size, self.header.now_crc)
        with as_written():
            return decode(Now, raw)

    def outputs(self) -> dict[WorkerId, Texts]:
        """The outputs of all workers."""
        raw = self._part(self.header.outputs_start, self.header.outputs_size, self.header.outputs_crc)
        with as_written():
            return decode(dict[WorkerId, Texts], raw)

    def line(self, job: JobId) -> bytes:
        """The line of a job that is over. Raises KeyError: then the lines on both sides prove that there is none."""
        wanted = job.encode("utf-8", "surrogatepass")
        low = self.header.over_start
        high = low + self.header.over_size
        while low < high:
            start, line = self._line_around((low + high) // 2, low, high)
            found = id_of(line)
            if found == wanted:
                return line
            low, high = (start + len(line) + len(_LAST_OF_LINE), high) if found < wanted else (low, start)
        raise KeyError(job)

    def blocks(self) -> Iterator[bytes]:
        """All lines of jobs that are over, many at a time; when the last ones have come they are known to be right."""
        start, crc, rest = self.header.over_start, 0, b""
        end = start + self.header.over_size
        while start < end:
            read = self._read(start, min(_BLOCK, end - start))
            crc = crc32(read, crc)
            whole, newline, tail = (rest + read).rpartition(b"\n")
            if newline:
                yield whole + newline
            rest, start = tail, start + len(read)
        if crc != self.header.over_crc or rest:
            raise DamagedSnapshotError("jobs")

    def _line_around(self, middle: int, low: int, high: int) -> tuple[int, bytes]:
        """Where the line stands that this byte is in, and the line without its comma."""
        window = _WINDOW
        while True:
            start, end = max(low, middle - window), min(high, middle + window)
            read = self._read(start, end - start)
            before = read.rfind(b"\n", 0, middle - start)
            after = read.find(b"\n", middle - start)
            if (before >= 0 or start == low) and (after >= 0 or end == high):
                break
            window *= 2
        line = read[before + 1 : after - 1] if after >= 0 else b""
        if read[after - 1 : after] != b"," or not is_intact(line):
            raise DamagedSnapshotError("a job")
        return start + before + 1, line

    def _part(self, start: int, size: int, crc: int) -> bytes:
        raw = self._read(start, size)
        if crc32(raw) != crc:
            raise DamagedSnapshotError("a part")
        return raw

    def _read(self, start: int, size: int) -> bytes:
        read = bytearray()
        while len(read) < size:
            more = os.pread(self._fd, size - len(read), start + len(read))
            if not more:
                raise DamagedSnapshotError("too short")
            read += more
        return bytes(read)


class FromFile:
    """What was over, from the lines of the file. `open_jobs`: where those stand that weren't, and their tasks."""

    def __init__(self, file: SnapshotFile, open_jobs: Mapping[JobId, Whole]) -> None:
        self.file = file
        self._open = open_jobs
        self._found: dict[JobId, Whole] = {}
        self._has_all = False
        self._outputs: dict[WorkerId, Texts] | None = None

    def over(self, job: JobId) -> Whole:
        """Raises KeyError."""
        if job not in self._found:
            if self._has_all:
                raise KeyError(job)
            self._found[job] = _decoded(self.file.line(job))
        return self._found[job]

    def find_all(self) -> None:
        if self._has_all:
            return
        found = {}
        for block in self.file.blocks():
            for line in block.splitlines():
                whole = _decoded(line.removesuffix(b","))
                found[whole.job.id] = whole
        self._found = {**found, **self._found}
        self._has_all = True

    def listed(self) -> list[tuple[JobId, int, bool]]:
        """All jobs in order, with the number of their tasks and whether they have children."""
        found = [
            (each.job.order, job, each.job.replicas, bool(each.children)) for job, each in self._open.items()
        ]
        with as_written():  # what is wrong in a name may show before the checksum does
            for block in self.file.blocks():
                for job, order, replicas, children in LISTED.findall(block):
                    found.append((int(order), JobId(job.decode()), int(replicas), bool(children)))
        return [entry[1:] for entry in sorted(found)]

    def all_over(self) -> list[JobId]:
        return [job for job, _, _ in self.listed() if job not in self._open]

    def outputs(self) -> dict[WorkerId, Texts]:
        if self._outputs is None:
            self._outputs = self.file.outputs()
        return self._outputs

    def output(self, worker: WorkerId) -> Outputs:
        """Raises KeyError."""
        texts = self.outputs()[worker]
        with as_written():
            return outputs_in(texts)

    def foreign(self, tokens: Iterable[Token]) -> tuple[Token, ...]:
        missing = dict.fromkeys(tokens)
        for block in self.file.blocks():
            for token in [token for token in missing if token.encode() in block]:
                del missing[token]
        return tuple(missing)


def _decoded(line: bytes) -> Whole:
    if not is_intact(line):
        raise DamagedSnapshotError("a job")
    with as_written():
        return decode(JobEntry, unsealed(line)).whole()


class FromLog:
    """The same from the log itself, where the file turned out to be damaged after it was begun with."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def over(self, job: JobId) -> Whole:
        """Raises KeyError."""
        tables = self._cluster
        return Whole(tables.jobs[job], tuple(tables.tasks_of(job)), tables.children.get(job, ()))

    def find_all(self) -> None:
        """It is all there."""

    def listed(self) -> list[tuple[JobId, int, bool]]:
        """As of a file."""
        jobs = self._cluster.jobs.values()
        return [(job.id, job.replicas, job.id in self._cluster.children) for job in jobs]

    def all_over(self) -> list[JobId]:
        return [job.id for job in self._cluster.jobs.values() if job.end is not None]

    def output(self, worker: WorkerId) -> Outputs:
        """Raises KeyError."""
        return self._cluster.outputs[worker]

    def outputs(self) -> Iterable[WorkerId]:
        return self._cluster.outputs

    def foreign(self, tokens: Iterable[Token]) -> tuple[Token, ...]:
        return self._cluster.foreign(tokens)
