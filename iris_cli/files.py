"""Read files of a limited size, and write files so that after a crash they have either the old or the new content."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path

from iris_cli.core.ids import clip
from iris_cli.core.units import format_memory
from iris_cli.errors import NotWritableError, UsageError
from iris_cli.randomness import SYSTEM_RANDOMNESS

DRAFT_SUFFIX = ".tmp"  # suffix of a small file that is being written, or whose writer was killed
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
    """Open a file without following a symbolic link or waiting for the other end of a pipe. Raises OSError.

    A created file is private.
    """
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_NONBLOCK, PRIVATE_FILE)
    except BlockingIOError:  # a server of network files leases the file: wait until it gives the lease back
        return os.open(path, flags, PRIVATE_FILE)


class opened:  # noqa: N801  # reads like the context managers of the standard library
    """Context manager around `open_safely`. Ignores errors of close, because callers that write call fsync before."""

    __slots__ = ("_fd",)

    def __init__(self, path: str | Path, flags: int) -> None:
        self._fd = open_safely(path, flags)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_raised: object) -> None:
        with suppress(OSError):
            os.close(self._fd)


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Lock a file. Return False if another process has the lock. Raises OSError if the file system has no locks."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def is_in_place(fd: int, path: Path) -> bool:
    """Return whether the open file still exists at `path`, neither deleted nor replaced."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except OSError:
        return False


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write all data in one call. Raises OSError, also for a short write, which happens on full disks."""
    if disk.write(fd, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def check_room(fd: int, size: int) -> None:
    """Raise OSError if the file system has fewer than `size` free bytes.

    On a full disk, the write of a short text can succeed, because the last block of the file has room.
    """
    disk = os.fstatvfs(fd)
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    if disk.f_blocks and free * disk.f_frsize < size:  # some file systems report no size
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def replace_file(disk: Disk, path: Path, data: bytes, *, alone: bool = True, synced: bool = False) -> None:
    """Atomically replace the small file `path`.

    After a power loss the file may have the old content. If not `synced`, it may also be empty. `alone`: the caller's
    lock keeps other processes from replacing the file. Otherwise the temporary file gets a random name.
    """
    draft = path.with_name(f"{path.name}{'' if alone else SYSTEM_RANDOMNESS.hexadecimal(8)}{DRAFT_SUFFIX}")
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


def make_private(path: Path) -> list[Path]:
    """Create a private directory and its missing parents. Return the directories that were missing. Raises OSError."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in (*reversed(missing[1:]), path):  # mkdir(parents=True) ignores the mode for parents
        each.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
    return missing


def make_directory(disk: Disk, path: Path) -> None:
    """Create a private directory and its missing parents, durably. Raises OSError."""
    for each in make_private(path):
        with suppress(PermissionError):  # a parent may be writable but unreadable
            sync_directory(disk, each.parent.resolve())


@contextmanager
def replacing(
    disk: Disk, path: Path, check: Callable[[], None] = lambda: None, *, draft_name: str = ""
) -> Iterator[int]:
    """Yield the descriptor of a draft, which durably replaces `path` at the end of the block. The caller holds a lock.

    `check` is called just before the rename. After an OSError or Ctrl-C the draft is deleted, because it may fill the
    disk. After another exception, such as a lost lock, the draft may belong to another process. It is not deleted, but
    the next draft overwrites it. If `path` is different in each call, pass a constant `draft_name`.
    """
    draft = path.with_name(draft_name or path.name + DRAFT_SUFFIX)
    try:
        with opened(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
            yield fd
            disk.fsync(fd)
        check()
        disk.rename(draft, path)
    except (OSError, KeyboardInterrupt):
        with suppress(OSError):
            draft.unlink()
        raise
    sync_directory(disk, path.parent)


def copy_range(disk: Disk, source: Path, start: int, end: int, target: Path) -> None:
    """Durably create or replace `target` with the bytes of `source` from `start` to `end`."""
    with opened(source, os.O_RDONLY) as read_from, replacing(disk, target) as write_to:
        while start < end and (chunk := os.pread(read_from, min(_CHUNK, end - start), start)):
            write_all(disk, write_to, chunk)
            start += len(chunk)


def unused_path(path: Path) -> Path:
    """Return the first unused path of `path`, `path-2`, `path-3`, ..."""
    names = chain([path], (path.with_name(f"{path.name}-{number}") for number in count(2)))
    return next(name for name in names if not os.path.lexists(name))


def current_directory() -> Path:
    """Return the current directory. Raises UsageError if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current directory was deleted", hint="change to another directory") from None


def signature_of(path: Path) -> tuple[int, ...]:
    """Return a value that changes when the file changes; () if it is missing."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def last_lines(path: Path, lines: int = 5, limit: int = 1 << 16) -> list[str]:
    """Return up to `lines` complete lines from the last `limit` bytes of a file; [] if it can't be read."""
    try:
        with open(path, "rb", opener=open_safely) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit))
            found = file.read(limit).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return found[size > limit :][-lines:]


def read_limited(path: str, limit: int) -> bytes:
    """Read a file of at most `limit` bytes. Raises UsageError. Also a part of the program inside tasks."""
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise UsageError(f"{clip(path)}: {error.strerror or error}") from error
    if len(data) > limit:
        hint = "split it into several jobs"
        raise UsageError(f"{clip(path)} takes more than {format_memory(limit)}", hint=hint)
    return data


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into the NotWritableError for `path`."""
    try:
        yield
    except OSError as error:
        raise not_writable(path, error) from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a NotWritableError that names the file of the OSError (default: `path`)."""
    try:
        yield
    except OSError as error:
        raise _error(f"{error.filename or path} can't be read", error) from error


def not_writable(path: Path, error: OSError) -> NotWritableError:
    return _error(f"{path} can't be written", error)


def _error(what: str, error: OSError) -> NotWritableError:
    return NotWritableError(f"{what}: {error.strerror or error}", hint=_HINTS.get(error.errno or 0, ""))


_HINTS = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some of your disk quota",
    errno.EROFS: "mount that file system read-write; dmesg shows if an error made it read-only",
    errno.EACCES: "check its permissions",
    errno.EIO: "the disk reports errors: check it (dmesg), then run the command again",
    errno.ELOOP: "it is a symbolic link: replace it with a regular file",
}
