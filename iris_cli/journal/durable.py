"""Writing files so that a crash at any moment leaves either the old or the new state."""

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
    """The system calls that can fail between a decision and the disk: a seam where tests make them fail."""

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
    """A descriptor of a file of ours, made if the flags say so; never through a symbolic link. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)


class opened:  # noqa: N801  # reads like those that the library has for `with`
    """`open_safely`, and closed in the end. Should that fail, it says nothing of what was synced before."""

    __slots__ = ("_fd",)

    def __init__(self, path: str | Path, flags: int) -> None:
        self._fd = open_safely(path, flags)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_raised: object) -> None:
        with suppress(OSError):
            os.close(self._fd)


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write in one call. Raises OSError also for a short write, which is how a full disk may show."""
    if disk.write(fd, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def check_room(fd: int, size: int) -> None:
    """Refuse where a file system hasn't that many bytes left. Raises OSError as a write would.

    A short text may still fit into the last block of its file. But what follows from it will not, such as how the
    tasks are that it says were started.
    """
    disk = os.fstatvfs(fd)
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    if disk.f_blocks and free * disk.f_frsize < size:  # some file systems don't say how large they are
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def replace_file(disk: Disk, path: Path, data: bytes, *, alone: bool = True, synced: bool = False) -> None:
    """Put a small file in the place of `path` at once. After a power cut it may be the old one.

    `synced`: never anything else, such as an empty one. `alone`: there is a lock around it. Else the draft has a name
    that nobody else uses: two containers, or hosts, often have processes of the same number.
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
            draft.unlink()  # else each writer leaves one of its own, on a disk that is full
        raise


def sync_directory(disk: Disk, path: Path) -> None:
    """Make the names in a directory durable. Raises OSError, but not where the file system has no way to do so."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        try:
            disk.fsync(fd)
        except OSError as error:
            if error.errno != errno.EINVAL:  # what a folder of VirtualBox says, and 9p
                raise


def make_directory(disk: Disk, path: Path) -> None:
    """Make a private directory unless it is there, and what is missing above it, all durably. Raises OSError."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    for each in missing:
        with suppress(PermissionError):  # one may be allowed to write there, and not to look
            sync_directory(disk, each.parent.resolve())


def copy_range(disk: Disk, source: Path, start: int, end: int, target: Path) -> None:
    """Copy the bytes from `start` up to `end` into the file `target`, synced; it is gone if that fails."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        with opened(source, os.O_RDONLY) as read_from, opened(target, flags) as write_to:
            while start < end and (chunk := os.pread(read_from, min(_CHUNK, end - start), start)):
                write_all(disk, write_to, chunk)
                start += len(chunk)
            disk.fsync(write_to)
    except (OSError, KeyboardInterrupt):
        with suppress(OSError):
            target.unlink()  # else each command that tries leaves one of its own, on a disk that is full
        raise


def replace_by_copy(disk: Disk, path: Path, size: int) -> None:
    """Put a durable copy of the first `size` bytes of a file in its place."""
    draft = path.with_name(path.name + ".tmp")
    copy_range(disk, path, 0, size, draft)
    disk.rename(draft, path)
    sync_directory(disk, path.parent)


def unused(path: Path) -> Path:
    """The path, or the next free one with a number behind it."""
    names = chain([path], (path.with_name(f"{path.name}-{number}") for number in count(2)))
    return next(name for name in names if not os.path.lexists(name))


class refusing:  # noqa: N801  # as `opened`
    """Turn the system's errors into NotWritableError: nobody may act on a decision that isn't durable."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise not_writable(self._path, error) from error


def not_writable(path: Path, error: OSError) -> NotWritableError:
    """What to tell about an error of the system that kept the state from being written."""
    return NotWritableError(
        f"{path} can't be written: {error.strerror or error}", hint=_HINTS.get(error.errno or 0, "")
    )


def not_readable(path: Path, error: OSError) -> NotWritableError:
    """What to tell if even reading failed, of `path` or of what the error names."""
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
