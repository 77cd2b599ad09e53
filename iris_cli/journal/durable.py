"""Write files so that after a crash they have either the old or the new content."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from itertools import chain, count
from pathlib import Path

from iris_cli.errors import NotWritableError
from iris_cli.randomness import SYSTEM_RANDOMNESS

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
_CHUNK = 1 << 20


class Disk:
    """The system calls that write to the disk. Tests replace them to inject failures."""

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)


DISK = Disk()


def open_safely(path: str | Path, flags: int) -> int:
    """Open a file without following a symbolic link. A created file is private. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)


class opened:  # noqa: N801  # reads like the context managers of the standard library
    """Context manager around `open_safely`. Ignores errors of close, because callers have synced before."""

    __slots__ = ("_fd",)

    def __init__(self, path: str | Path, flags: int) -> None:
        self._fd = open_safely(path, flags)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_raised: object) -> None:
        with suppress(OSError):
            os.close(self._fd)


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write all data in one call. Raises OSError, also for a short write, which happens on full disks."""
    if disk.write(fd, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def check_room(fd: int, size: int) -> None:
    """Raise OSError if the file system has fewer than `size` bytes left.

    Without this check, a short text could still fit into the file's last block on a full disk.
    """
    disk = os.fstatvfs(fd)
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    if disk.f_blocks and free * disk.f_frsize < size:  # some file systems report no size
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def replace_file(disk: Disk, path: Path, data: bytes, *, alone: bool = True, synced: bool = False) -> None:
    """Atomically replace the small file `path`. After a power loss it may have the old content.

    Without `synced` it may also be empty. `alone`: the caller holds a lock. Otherwise the temporary file gets a random
    name.
    """
    draft = path.with_name(f"{path.name}{'' if alone else SYSTEM_RANDOMNESS.hexadecimal(8)}.tmp")
    try:
        with opened(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
            write_all(disk, fd, data)
            if synced:
                disk.fsync(fd)
        disk.rename(draft, path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()  # otherwise each failed write would leave a file on a full disk
        raise


def sync_directory(disk: Disk, path: Path) -> None:
    """Make the names in a directory durable. Does nothing if the file system can't sync directories. Raises OSError."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        try:
            disk.fsync(fd)
        except OSError as error:
            if error.errno != errno.EINVAL:  # returned by VirtualBox folders and 9p
                raise


def make_directory(disk: Disk, path: Path) -> None:
    """Create a private directory and its missing parents, durably. Raises OSError."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    for each in missing:
        with suppress(PermissionError):  # a parent may be writable but unreadable
            sync_directory(disk, each.parent.resolve())


def copy_range(disk: Disk, source: Path, start: int, end: int, target: Path) -> None:
    """Copy bytes from `start` to `end` into the file `target` and sync it; delete `target` on failure."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        with opened(source, os.O_RDONLY) as read_from, opened(target, flags) as write_to:
            while start < end and (chunk := os.pread(read_from, min(_CHUNK, end - start), start)):
                write_all(disk, write_to, chunk)
                start += len(chunk)
            disk.fsync(write_to)
    except (OSError, KeyboardInterrupt):
        with suppress(OSError):
            target.unlink()  # otherwise each failed copy would leave a file on a full disk
        raise


def replace_by_copy(disk: Disk, path: Path, size: int) -> None:
    """Durably replace a file by a copy of its first `size` bytes."""
    draft = path.with_name(path.name + ".tmp")
    copy_range(disk, path, 0, size, draft)
    disk.rename(draft, path)
    sync_directory(disk, path.parent)


def unused(path: Path) -> Path:
    """Return `path` if it is unused, otherwise `path` with the first number appended that makes it unused."""
    names = chain([path], (path.with_name(f"{path.name}-{number}") for number in count(2)))
    return next(name for name in names if not os.path.lexists(name))


class writing:  # noqa: N801  # like `opened`
    """Context manager for writes to the state: turns OSError into NotWritableError."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise not_writable(self._path, error) from error


def not_writable(path: Path, error: OSError) -> NotWritableError:
    """Return the error for state that can't be written."""
    return NotWritableError(
        f"{path} can't be written: {error.strerror or error}", hint=_HINTS.get(error.errno or 0, "")
    )


def not_readable(path: Path, error: OSError) -> NotWritableError:
    """Return the error for state that can't be read. It names the file in `error` if there is one, otherwise `path`."""
    return NotWritableError(
        f"{error.filename or path} can't be read: {error.strerror or error}",
        hint=_HINTS.get(error.errno or 0, ""),
    )


_HINTS = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some of your disk quota",
    errno.EROFS: "the file system is read-only; use --state-dir to name a directory on another one",
    errno.EACCES: "check the permissions of the state directory",
    errno.EIO: "the disk reports errors: check it (dmesg), then run the command again",
    errno.ELOOP: "it is a symbolic link: replace it with a regular file",
}
