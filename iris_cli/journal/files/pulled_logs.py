"""Copies of task output, readable when the worker is gone: `logs/<job>/<task>/<attempt>/{out,err}`.

`out` and `err` contain the worker's files, or only their beginning. For output that is too long to copy, `out@OFFSET`
and `err@OFFSET` contain its last part, which begins at the byte OFFSET. `telling` contains the lines that
show a known cause, if they are not in the event log.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from iris_cli import files
from iris_cli.core.ids import AttemptId, Token, parse_attempt_id, parse_token
from iris_cli.errors import UsageError

MAX_EXCERPT = 4096
"""Maximum size, in bytes, of the lines that show a failure's cause."""

_STREAMS = frozenset({"out", "err"})
_EXCERPT = "telling"
_END = re.compile("(out|err)@(0|[1-9][0-9]{0,14})")
_PARTIAL = "partial"  # exists while the copy is incomplete
_MAX_ID = 4096  # bytes


class PulledLogs:
    """The copied output in one directory. Safe for concurrent readers and writers."""

    def __init__(self, directory: Path, disk: files.Disk = files.DISK) -> None:
        self.directory = directory
        self._disk = disk

    def path(self, attempt: AttemptId, stream: str) -> Path:
        """Return the path of one stream of an attempt. Raises ValueError for an unknown stream."""
        if stream not in _STREAMS:
            raise ValueError(f"{stream[:20]!r} is neither out nor err")
        return self.directory / str(attempt) / stream

    def size(self, attempt: AttemptId, stream: str) -> int:
        """Return the number of copied bytes, which is the offset of the next fetch. Raises NotWritableError."""
        with self._reading(attempt, stream) as fd:
            return 0 if fd is None else os.fstat(fd).st_size

    def written_at(self, attempt: AttemptId, stream: str) -> float | None:
        """Return the time of the last write in seconds since the epoch; None without a copy."""
        with self._reading(attempt, stream) as fd:
            return None if fd is None else os.fstat(fd).st_mtime

    def read(self, attempt: AttemptId, stream: str, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes from `offset` on. Raises NotWritableError if they can't be read."""
        with self._reading(attempt, stream) as fd:
            return b"" if fd is None else os.pread(fd, limit, offset)

    def put(self, attempt: AttemptId, stream: str, offset: int, data: bytes) -> bool:
        """Store `data`, which begins at `offset` of the output. The copy is incomplete until `finish`.

        Concurrent fetches may write the same bytes twice. Returns False and stores nothing if bytes before `offset` are
        missing, because another process has called `forget`. Raises NotWritableError.
        """
        path = self.path(attempt, stream)
        with files.writing(path):
            files.make_private(path.parent)
            with files.opened(path.with_name(_PARTIAL), os.O_WRONLY | os.O_CREAT):
                pass
            with files.opened(path, os.O_WRONLY | os.O_CREAT) as fd:
                if offset > os.fstat(fd).st_size:
                    return False
                os.lseek(fd, offset, os.SEEK_SET)
                files.write_all(self._disk, fd, data)
        return True

    def put_end(self, attempt: AttemptId, stream: str, offset: int, data: bytes) -> None:
        """Store `data` as the last part of output that is too long to copy. Raises NotWritableError."""
        path = self.path(attempt, stream)
        with files.writing(path):
            files.make_private(path.parent)
            files.replace_file(self._disk, path.with_name(f"{stream}@{offset}"), data, alone=False)

    def end(self, attempt: AttemptId, stream: str) -> tuple[int, bytes] | None:
        """Return offset and bytes of the last part of long output; None if not stored. Raises NotWritableError."""
        for name in self._ends(attempt):
            if name.startswith(f"{stream}@"):
                with self._opened(self.directory / str(attempt) / name) as fd:
                    if fd is not None:
                        return int(name.partition("@")[2]), os.pread(fd, os.fstat(fd).st_size, 0)
        return None

    def _ends(self, attempt: AttemptId) -> list[str]:
        try:
            names = os.listdir(self.directory / str(attempt))
        except OSError:
            return []
        return sorted(filter(_END.fullmatch, names))

    def finish(self, attempt: AttemptId, at: float) -> None:
        """Mark the output as complete at time `at`, in seconds since the epoch. Raises NotWritableError."""
        directory = self.directory / str(attempt)
        with files.writing(directory):
            for name in self._ends(attempt):
                (directory / name).unlink(missing_ok=True)
            for stream in sorted(_STREAMS):
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.utime(directory / stream, (at, at), follow_symlinks=False)
            with suppress(NotADirectoryError):
                (directory / _PARTIAL).unlink(missing_ok=True)

    def is_incomplete(self, attempt: AttemptId) -> bool:
        """Return whether `put` was called without `finish`."""
        return os.path.lexists(self.directory / str(attempt) / _PARTIAL)

    def forget(self, attempt: AttemptId, stream: str) -> None:
        """Delete the copy of a stream, because the worker's file was replaced. Raises NotWritableError."""
        path = self.path(attempt, stream)
        with files.writing(path):
            path.unlink(missing_ok=True)

    def keep_excerpt(self, attempt: AttemptId, lines: bytes) -> None:
        """Store the lines that show why the attempt failed. Raises NotWritableError."""
        path = self.directory / str(attempt) / _EXCERPT
        with files.writing(path):
            files.make_private(path.parent)
            with files.opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
                files.write_all(self._disk, fd, lines)

    def excerpt(self, attempt: AttemptId) -> bytes:
        """Return the lines that show why the attempt failed, b"" if none are stored. Raises NotWritableError."""
        with self._opened(self.directory / str(attempt) / _EXCERPT) as fd:
            return b"" if fd is None else os.pread(fd, MAX_EXCERPT, 0)

    def _reading(self, attempt: AttemptId, stream: str) -> AbstractContextManager[int | None]:
        return self._opened(self.path(attempt, stream))

    @contextmanager
    def _opened(self, path: Path) -> Iterator[int | None]:
        with files.reading(path):
            try:
                fd = files.open_safely(path, os.O_RDONLY)
            except (FileNotFoundError, NotADirectoryError):
                yield None
                return
            try:
                yield fd if stat.S_ISREG(os.fstat(fd).st_mode) else None
            finally:
                os.close(fd)


class LogsDue:
    """The ended attempts whose output must still be copied. Each attempt has a small file, named by its token."""

    def __init__(self, directory: Path, disk: files.Disk = files.DISK) -> None:
        self._directory, self._disk = directory, disk

    def add(self, attempts: Mapping[Token, AttemptId]) -> None:
        """Record that the output of these attempts must be copied. Raises NotWritableError."""
        with files.writing(self._directory):
            self._directory.mkdir(mode=files.PRIVATE_DIRECTORY, exist_ok=True)
            for token, attempt in attempts.items():
                files.replace_file(self._disk, self._directory / token, str(attempt).encode(), alone=False)

    def all(self) -> dict[Token, AttemptId]:
        """Return all attempts whose output must still be copied. Files that do not belong to an attempt are skipped."""
        due = {}
        try:
            names = sorted(os.listdir(self._directory))
        except OSError:
            return {}
        for name in names:
            with (
                suppress(OSError, UsageError, ValueError),
                files.opened(self._directory / name, os.O_RDONLY) as fd,
            ):
                due[parse_token(name)] = parse_attempt_id(os.read(fd, _MAX_ID).decode())
        return due

    def remove(self, token: Token) -> None:
        """Record that the copy is complete. Raises NotWritableError."""
        with files.writing(self._directory):
            (self._directory / token).unlink(missing_ok=True)
