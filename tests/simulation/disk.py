"""The operator's disk: real files, of which only what was synced survives a power cut; and the lock beside them."""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from iris_cli.errors import LockedError
from iris_cli.files import Disk
from iris_cli.journal import layout
from iris_cli.journal.access import LockHolder
from iris_cli.journal.log.head import Head, read_head
from iris_cli.journal.log.writer import HeldLock
from tests.simulation.strands import Scheduler, Strand

_LOCK_POLL = 0.25


class Medium:
    """What the disk holds for sure. `trouble`: ENOSPC or EIO, if it refuses now."""

    def __init__(
        self,
        state: Path,
        rng: Random,
        committed: Callable[[int, str], None],
        snapshot_written: Callable[[], None],
        head_leads: Callable[[int], None],
    ) -> None:
        self.state = state
        self.log = state / layout.LOG
        self._head = state / layout.HEAD
        self._archive = state / layout.ARCHIVE
        self._last_head: Head | None = None
        self.trouble = 0
        self.failures = 0  # calls that were refused
        self._rng = rng
        self._synced: dict[int, int] = {}  # bytes by inode
        self._committed = committed
        self._snapshot_written = snapshot_written
        self._head_leads = head_leads

    def synced(self, fd: int) -> None:
        status = os.fstat(fd)
        self._synced[status.st_ino] = status.st_size

    def truncated(self, fd: int, size: int) -> None:
        inode = os.fstat(fd).st_ino
        self._synced[inode] = min(size, self._synced.get(inode, 0))

    def durable(self) -> bytes:
        """The part of the log that a power cut leaves, with what was moved to the archive."""
        archived = [gzip.decompress(self._left_of(path)) for path in sorted(self._archive.glob("*.gz"))]
        return b"".join((*archived, self._left_of(self.log)))

    def _left_of(self, path: Path) -> bytes:
        with open(path, "rb") as stream:
            return stream.read(self._synced.get(os.fstat(stream.fileno()).st_ino, 0))

    def is_head(self, fd: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(fd), self._head.stat())
        return False

    def renamed(self, target: Path) -> None:
        if target == self._head:
            self.head_moved()
        elif target.name == layout.SNAPSHOT:
            self._snapshot_written()

    def head_moved(self) -> bool:
        """Report the line that HEAD names, if that is another one: from now on a reader acts on it.

        HEAD is padded with blanks, so a write that was cut off can be whole to a reader.
        """
        head = read_head(self.state)
        if head is None or head == self._last_head:
            return False
        self._last_head = head
        with open(self.log, "rb") as stream:
            status = os.fstat(stream.fileno())
        if self._synced.get(status.st_ino, 0) < status.st_size:
            self._head_leads(head.seq)
        self._committed(head.seq, head.crc)
        return True

    def power_cut(self) -> int:
        """Lose a random part of what was not synced; returns how many bytes."""
        if not self.log.exists():
            return 0
        with open(self.log, "r+b") as stream:
            size = os.fstat(stream.fileno()).st_size
            safe = min(size, self._synced.get(os.fstat(stream.fileno()).st_ino, 0))
            left = self._rng.randint(safe, size)
            stream.truncate(left)
        return size - left

    def fails(self, share: float) -> bool:
        return bool(self.trouble) and self._rng.random() < share


class SimDisk(Disk):
    """The disk as one invocation sees it: it waits at every call, may be killed there, and may be refused."""

    def __init__(self, medium: Medium, scheduler: Scheduler) -> None:
        self._medium = medium
        self._scheduler = scheduler

    def write(self, fd: int, data: bytes) -> int:
        strand = self._strand()
        rng = self._scheduler.draws("disk")
        strand.pause(0.0005)
        if strand.process.step():
            os.write(fd, data[: rng.randint(0, len(data))])
            self._noticed(fd)
            strand.die()
        if self._fails(0.8):
            part = rng.choice((0, len(data) // 2))
            os.write(fd, data[:part])
            self._noticed(fd)
            if self._medium.trouble == errno.EIO or not part:
                raise OSError(self._medium.trouble, os.strerror(self._medium.trouble))
            return part
        written = os.write(fd, data)
        if self._noticed(fd):
            strand.pause(0.0005)  # others may act on it before its writer does, who may be killed
        return written

    def _fails(self, share: float) -> bool:
        failed = self._medium.fails(share)
        self._medium.failures += failed
        return failed

    def _noticed(self, fd: int) -> bool:
        """Whether a write to this file has moved HEAD, whatever becomes of its writer."""
        return self._medium.is_head(fd) and self._medium.head_moved()

    def fsync(self, fd: int) -> None:
        strand = self._strand()
        strand.pause(2.0 if self._scheduler.draws("disk").random() < 0.01 else 0.004)
        if self._fails(0.6):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._medium.synced(fd)
        if strand.process.step():
            strand.die()

    def truncate(self, fd: int, size: int) -> None:
        self._strand().pause(0.0005)
        if self._fails(0.5):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.ftruncate(fd, size)
        self._medium.truncated(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        self._strand().pause(0.0005)
        if self._fails(0.3):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.replace(source, target)
        self._medium.renamed(target)

    def _strand(self) -> Strand:
        strand = self._scheduler.current
        assert strand is not None
        return strand


@contextmanager
def hold_lock(
    scheduler: Scheduler, directory: Path, holder: LockHolder, timeout: float
) -> Iterator[HeldLock]:
    """Hold the kernel's lock on the same file as ever, waited for in simulated time."""
    strand, path = scheduler.current, directory / layout.LOCK
    assert strand is not None
    deadline = scheduler.now + timeout
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _locked(fd):
            if scheduler.now >= deadline:
                raise LockedError("the state directory is locked by another command")
            strand.pause(_LOCK_POLL)
        strand.pause(0.0005)
        yield HeldLock(path, fd)
    finally:
        os.close(fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
