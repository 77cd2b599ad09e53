"""Task output that was fetched from workers, for when these are gone: `logs/<job>/<task>/<attempt>/{out,err}`.

Each file is the beginning of the one on the worker, byte for byte.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iris_cli.core.ids import AttemptId
from iris_cli.journal.durable import (
    DISK,
    PRIVATE_DIRECTORY,
    Disk,
    not_readable,
    open_safely,
    opened,
    refusing,
    write_all,
)

_STREAMS = frozenset({"out", "err"})
_NO_PIPE = os.O_NONBLOCK  # in the place of a file would hold us up


class PulledLogs:
    """The output that is kept in one directory. Several may write and read at the same time."""

    def __init__(self, directory: Path, disk: Disk = DISK) -> None:
        self.directory = directory
        self._disk = disk

    def path(self, attempt: AttemptId, stream: str) -> Path:
        """Where one stream of an attempt is kept. Raises ValueError for what is no stream."""
        if stream not in _STREAMS:
            raise ValueError(f"{stream[:20]!r} is neither out nor err")
        return self.directory / str(attempt) / stream

    def size(self, attempt: AttemptId, stream: str) -> int:
        """How many bytes are kept: where to go on fetching. Raises NotWritableError if it can't be told."""
        with self._reading(attempt, stream) as fd:
            return 0 if fd is None else os.fstat(fd).st_size

    def written_at(self, attempt: AttemptId, stream: str) -> float | None:
        """When the last of them were written, in seconds since the epoch; None if nothing is kept."""
        with self._reading(attempt, stream) as fd:
            return None if fd is None else os.fstat(fd).st_mtime

    def read(self, attempt: AttemptId, stream: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset` on. Raises NotWritableError if they can't be read."""
        with self._reading(attempt, stream) as fd:
            return b"" if fd is None else os.pread(fd, limit, offset)

    def put(self, attempt: AttemptId, stream: str, offset: int, data: bytes) -> None:
        """Keep `data`, which begins at `offset` of the output.

        Two who fetch the same may put it twice. Raises ValueError if bytes before `offset` are missing,
        NotWritableError if it can't be written.
        """
        path = self.path(attempt, stream)
        with refusing(path):
            path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            with opened(path, os.O_WRONLY | os.O_CREAT | _NO_PIPE) as fd:
                if offset > os.fstat(fd).st_size:
                    raise ValueError(f"the bytes of {path} before {offset} are missing")
                os.lseek(fd, offset, os.SEEK_SET)
                write_all(self._disk, fd, data)

    def forget(self, attempt: AttemptId, stream: str) -> None:
        """Begin anew: the file on the worker is another one by now. Raises NotWritableError."""
        path = self.path(attempt, stream)
        with refusing(path):
            path.unlink(missing_ok=True)

    @contextmanager
    def _reading(self, attempt: AttemptId, stream: str) -> Iterator[int | None]:
        path = self.path(attempt, stream)
        try:
            fd = open_safely(path, os.O_RDONLY | _NO_PIPE)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        except OSError as error:
            raise not_readable(path, error) from error
        try:
            yield fd if stat.S_ISREG(os.fstat(fd).st_mode) else None
        except OSError as error:
            raise not_readable(path, error) from error
        finally:
            os.close(fd)
