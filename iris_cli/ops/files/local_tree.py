"""A local directory for files from workers. Links are not followed. Names that lead out of the directory are rejected.

A file has a temporary name until it is complete, so that no incomplete file has the final name.
"""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from iris_cli.errors import UsageError
from iris_cli.files import try_lock

_TEMPORARY_PREFIX = b".iris-part-"
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_MAX_NAME = 4096  # bytes of a name with its directories
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class BadNameError(Exception):
    """The file name is not allowed. The message says why."""


def split_name(name: bytes) -> tuple[bytes, ...]:
    """Split a file name into its directories and its base name. Raises BadNameError.

    Control characters are replaced by `%` and their hexadecimal number, so that names are printable.
    """
    if len(name) > _MAX_NAME:
        raise BadNameError("its name is too long")
    if name.startswith(b"/"):
        raise BadNameError("its name is absolute")
    parts = tuple(_CONTROL.sub(lambda match: b"%%%02X" % match[0][0], part) for part in name.split(b"/"))
    if any(part in (b"", b".", b"..") for part in parts):
        raise BadNameError("its name leads out of the directory")
    if parts[0].startswith(_TEMPORARY_PREFIX):
        raise BadNameError("its name is reserved by iris")
    return parts


@contextmanager
def open_tree(path: Path) -> "Iterator[LocalTree]":
    """Create the directory at `path` if it is missing, and lock it for this process. Raises OSError, UsageError."""
    path.mkdir(parents=True, exist_ok=True)
    top = os.open(path, _DIRECTORY_FLAGS)
    try:
        if not try_lock(top):
            raise UsageError(f"another iris pull writes to {path}", hint="wait for that pull")
        yield LocalTree(top)
    finally:
        os.close(top)


class LocalTree(Struct):
    """A directory with an open descriptor. All methods raise OSError, for example if a part of the path is a link."""

    _top: int  # descriptor of the directory

    @property
    def free(self) -> int:
        """Free bytes of the directory's file system."""
        status = os.fstatvfs(self._top)
        return status.f_bavail * status.f_frsize

    def has(self, parts: Sequence[bytes], size: int, mtime: int) -> bool:
        """Return True if a regular file with this size and modification time (in seconds) exists."""
        try:
            with self._parent(parts) as parent:
                status = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and (status.st_size, int(status.st_mtime)) == (size, mtime)

    @contextmanager
    def partial_file(self, parts: Sequence[bytes], version: object) -> "Iterator[PartialFile]":
        """Open the incomplete copy of this version of a file. It may contain bytes of an interrupted fetch."""
        key = hashlib.sha256(b"/".join(parts) + b"\0" + repr(version).encode()).hexdigest()[:32]
        name = _TEMPORARY_PREFIX + key.encode()
        fd = os.open(name, _FILE_FLAGS | os.O_CREAT, 0o666, dir_fd=self._top)
        try:
            yield PartialFile(self, fd, name, parts)
        finally:
            os.close(fd)

    def clean(self) -> None:
        """Delete incomplete files, after all files were fetched."""
        for name in map(os.fsencode, os.listdir(self._top)):
            if name.startswith(_TEMPORARY_PREFIX):
                with suppress(OSError):
                    os.unlink(name, dir_fd=self._top)

    def move_to_final_name(self, name: bytes, parts: Sequence[bytes]) -> None:
        with self._parent(parts, create=True) as parent:
            with suppress(FileNotFoundError):
                status = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    raise OSError(errno.ELOOP, "a link of that name exists")
            os.replace(name, parts[-1], src_dir_fd=self._top, dst_dir_fd=parent)

    @contextmanager
    def _parent(self, parts: Sequence[bytes], *, create: bool = False) -> Iterator[int]:
        """Open the directory that contains a file, and yield its descriptor."""
        current = os.dup(self._top)
        try:
            for part in parts[:-1]:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=current)
                child = os.open(part, _DIRECTORY_FLAGS, dir_fd=current)
                os.close(current)
                current = child
            yield current
        finally:
            os.close(current)


class PartialFile(Struct):
    """An incomplete file with a temporary name. `_parts`: its final name."""

    _tree: LocalTree
    _fd: int
    _name: bytes
    _parts: Sequence[bytes]

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def write(self, data: bytes, offset: int) -> None:
        remaining = memoryview(data)
        while remaining:
            written = os.pwrite(self._fd, remaining, offset)
            remaining, offset = remaining[written:], offset + written

    def truncate(self) -> None:
        os.ftruncate(self._fd, 0)

    def finish(self, size: int, mtime: int) -> None:
        """Set the size and modification time of a complete file, then rename it."""
        os.ftruncate(self._fd, size)
        os.utime(self._fd, (mtime, mtime))
        self._tree.move_to_final_name(self._name, self._parts)
