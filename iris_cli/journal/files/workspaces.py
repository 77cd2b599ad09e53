"""Packed workspaces: compressed tar files, named after the SHA-256 of the uncompressed tar.

Each attempt of a job gets the same files, even if the directory has changed since the submission.
"""

import hashlib
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from iris_cli import files
from iris_cli.errors import NotWritableError, WorkspaceGoneError
from iris_cli.journal.layout import PACKED_SUFFIX, PART_SUFFIX
from iris_cli.randomness import SYSTEM_RANDOMNESS

_HASH = re.compile("[0-9a-f]{64}")
_GZIP = 31  # zlib's gzip format with the largest window; its header has no name or time
_LEVEL = 1  # takes a third of the default level's time; the result is a few per cent larger
_CHUNK = 1 << 20


class Workspaces:
    """A directory of packed workspaces. Each workspace is complete or absent. Safe for threads and processes."""

    def __init__(self, path: Path, disk: files.Disk = files.DISK) -> None:
        self.path = path
        self._disk = disk
        self._verified: dict[str, tuple[int, ...]] = {}  # by hash: inode, size and time of the verified file
        self._lock = Lock()

    def put(self, chunks: Iterable[bytes]) -> tuple[str, int]:
        """Durably store the tar file in `chunks`, and return its hash and size.

        An existing file is replaced, because it may be damaged. Raises NotWritableError and the exceptions of `chunks`.
        """
        digest, size = hashlib.sha256(), 0
        with self._draft() as (fd, draft):
            packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                self._write(fd, packer.compress(chunk))
            self._write(fd, packer.flush())
            with files.writing(self.path):
                self._disk.fsync(fd)
                self._disk.rename(draft, self._file(digest.hexdigest()))
                files.sync_directory(self._disk, self.path)
        return digest.hexdigest(), size

    def open(self, workspace: str) -> BinaryIO:
        """Open the compressed tar file with this hash for reading. The caller closes the file.

        A process verifies each file once. Raises WorkspaceGoneError if the file is missing or damaged.
        """
        try:
            file = os.fdopen(files.open_safely(self._file(workspace), os.O_RDONLY), "rb")
        except OSError as error:
            raise _gone_error(workspace, error.strerror or str(error)) from error
        try:
            self._check(workspace, file)
        except BaseException:
            file.close()
            raise
        return file

    def has(self, workspace: str) -> bool:
        """Return True if the file exists, even if it can't be read."""
        return os.path.lexists(self._file(workspace))

    def names(self) -> tuple[str, ...]:
        """Return the hashes of all stored workspaces in order."""
        try:
            found = sorted(os.listdir(self.path))
        except OSError:
            return ()
        names = [name.removesuffix(PACKED_SUFFIX) for name in found if name.endswith(PACKED_SUFFIX)]
        return tuple(name for name in names if _HASH.fullmatch(name))

    def remove(self, workspace: str) -> None:
        """Delete a workspace if it exists. Raises NotWritableError."""
        with files.writing(self._file(workspace)):
            self._file(workspace).unlink(missing_ok=True)

    def _file(self, workspace: str) -> Path:
        if _HASH.fullmatch(workspace) is None:
            raise ValueError(f"{workspace[:80]!r} is not the hash of a workspace")
        return self.path / f"{workspace}{PACKED_SUFFIX}"

    @contextmanager
    def _draft(self) -> Iterator[tuple[int, Path]]:
        """Yield a new file. It is deleted at the end of the block unless it was renamed."""
        with files.writing(self.path):
            files.make_directory(self._disk, self.path)
            if not stat.S_ISDIR(self.path.lstat().st_mode):
                raise NotWritableError(f"{self.path} is not a real directory", hint="move it away")
            draft = self.path / f"{SYSTEM_RANDOMNESS.hexadecimal(8)}{PART_SUFFIX}"
            fd = files.open_safely(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            yield fd, draft
        finally:
            os.close(fd)
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def _write(self, fd: int, data: bytes) -> None:
        if data:
            with files.writing(self.path):
                files.write_all(self._disk, fd, data)

    def _check(self, workspace: str, file: BinaryIO) -> None:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _gone_error(workspace, "not a regular file")
        version = (status.st_ino, status.st_size, status.st_mtime_ns)
        with self._lock:  # if several threads need the same workspace, one thread verifies it
            if self._verified.get(workspace) == version:
                return
            try:
                found = _hash_of(file)
                file.seek(0)
            except OSError as error:
                raise _gone_error(workspace, error.strerror or str(error)) from error
            except (EOFError, zlib.error) as error:
                self._set_aside(workspace)
                raise _gone_error(workspace, f"it is damaged ({error})") from error
            if found != workspace:
                self._set_aside(workspace)
                raise _gone_error(workspace, "it is damaged (its hash is wrong)")
            self._verified[workspace] = version

    def _set_aside(self, workspace: str) -> None:
        """Rename a damaged workspace, so that it counts as missing. It is deleted later, like a draft."""
        with suppress(OSError):
            self._disk.rename(self._file(workspace), self.path / f"{workspace}.damaged{PART_SUFFIX}")


def _hash_of(file: BinaryIO) -> str:
    """Return the SHA-256 of the uncompressed data. Raises zlib.error, EOFError and OSError."""
    digest, unpacker = hashlib.sha256(), zlib.decompressobj(wbits=_GZIP)
    while not unpacker.eof:
        data = unpacker.unconsumed_tail or file.read(_CHUNK)
        if not data:
            raise EOFError("it is truncated")
        digest.update(unpacker.decompress(data, _CHUNK))
    if unpacker.unused_data or file.read(1):
        raise zlib.error("data after its end")
    return digest.hexdigest()


def _gone_error(workspace: str, why: str) -> WorkspaceGoneError:
    return WorkspaceGoneError(
        f"the packed workspace {workspace[:12]} can't be read: {why}",
        hint="cancel the job and launch it again from its directory",
    )
