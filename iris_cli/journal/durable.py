"""Writing files so that a crash at any moment leaves either the old or the new state."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iris_cli.errors import NotWritableError

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20


class Disk:
    """The system calls that can fail between a decision and the disk; a seam, so that tests can make them fail."""

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)


DISK = Disk()


@contextmanager
def opened(path: Path, flags: int, mode: int = PRIVATE_FILE) -> Iterator[int]:
    """A descriptor of `path`, which must not be a symbolic link. Raises OSError."""
    fd = os.open(path, flags | _SAFE, mode)
    try:
        yield fd
    finally:
        os.close(fd)


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write in one call. Raises OSError also for a short write, which is how a full disk may show."""
    if disk.write(fd, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def replace_file(disk: Disk, path: Path, data: bytes) -> None:
    """Put a small file in the place of `path` at once. Not synced: after a power cut it may be the old one."""
    draft = path.with_name(path.name + ".tmp")
    with opened(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
        write_all(disk, fd, data)
    disk.rename(draft, path)


def sync_directory(disk: Disk, path: Path) -> None:
    """Make the names in a directory durable."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        disk.fsync(fd)


def copy_range(disk: Disk, source: Path, start: int, end: int, target: Path, *, fresh: bool) -> None:
    """Copy the bytes from `start` up to `end` to `target`, synced. `fresh`: the target must not exist yet."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if fresh else os.O_TRUNC)
    with opened(source, os.O_RDONLY) as read_from, opened(target, flags) as write_to:
        while start < end and (chunk := os.pread(read_from, min(_CHUNK, end - start), start)):
            write_all(disk, write_to, chunk)
            start += len(chunk)
        disk.fsync(write_to)


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn the system's errors into NotWritableError: nothing may be done on a decision that isn't durable."""
    try:
        yield
    except OSError as error:
        raise not_writable(path, error) from error


def not_writable(path: Path, error: OSError) -> NotWritableError:
    """What to tell about an error of the system that kept the state from being written."""
    reason = error.strerror or str(error)
    return NotWritableError(
        f"{path} can't be written: {reason}; nothing was dispatched", hint=_HINTS.get(error.errno or 0, "")
    )


_HINTS = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some of your disk quota",
    errno.EROFS: "the file system is read-only; use --state-dir to name a directory on another one",
    errno.EACCES: "check the permissions of the state directory",
    errno.EIO: "the disk reports errors: check it (dmesg), then run the command again",
    errno.ELOOP: "it is a symbolic link: put a regular file in its place",
}
