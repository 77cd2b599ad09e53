"""Task output that was fetched from workers, for when these are gone: `logs/<job>/<task>/<attempt>/{out,err}`.

Each file is the beginning of the one on the worker, byte for byte. Of long output that ended before anybody pulled it,
`out@OFFSET` and `err@OFFSET` are its last part, from that byte on. `telling` has the few lines that show a known cause,
where they stood further up than the lines in the event log.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from iris_cli.core.ids import AttemptId, Token, parse_attempt_id, parse_token
from iris_cli.errors import UsageError
from iris_cli.journal.durable import (
    DISK,
    PRIVATE_DIRECTORY,
    Disk,
    not_readable,
    open_safely,
    opened,
    refusing,
    replace_file,
    write_all,
)

MOST_TELLING = 4096
"""Bytes of the lines that tell why an attempt failed."""

_STREAMS = frozenset({"out", "err"})
_TELLING = "telling"
_END = re.compile("(out|err)@(0|[1-9][0-9]{0,14})")
_PARTIAL = "partial"  # lies beside them as long as they are being fetched
_LONGEST_ID = 4096
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

    def put(self, attempt: AttemptId, stream: str, offset: int, data: bytes) -> bool:
        """Keep `data`, which begins at `offset` of the output. From now until `finish` it counts as cut off.

        Two who fetch the same may put it twice. False, and nothing is kept, if bytes before `offset` are missing: then
        somebody else has begun anew. Raises NotWritableError if it can't be written.
        """
        path = self.path(attempt, stream)
        with refusing(path):
            path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            with opened(path.with_name(_PARTIAL), os.O_WRONLY | os.O_CREAT | _NO_PIPE):
                pass
            with opened(path, os.O_WRONLY | os.O_CREAT | _NO_PIPE) as fd:
                if offset > os.fstat(fd).st_size:
                    return False
                os.lseek(fd, offset, os.SEEK_SET)
                write_all(self._disk, fd, data)
        return True

    def put_end(self, attempt: AttemptId, stream: str, offset: int, data: bytes) -> None:
        """Keep `data` as the last part of output that is too long to keep. Raises NotWritableError."""
        path = self.path(attempt, stream)
        with refusing(path):
            path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            replace_file(self._disk, path.with_name(f"{stream}@{offset}"), data, alone=False)

    def end(self, attempt: AttemptId, stream: str) -> tuple[int, bytes] | None:
        """The last part of long output: the offset where it begins, and its bytes. Raises NotWritableError."""
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
        """All is here that there was at that time, in seconds since the epoch. Raises NotWritableError."""
        directory = self.directory / str(attempt)
        with refusing(directory):
            for name in self._ends(attempt):
                (directory / name).unlink(missing_ok=True)
            for stream in sorted(_STREAMS):
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.utime(directory / stream, (at, at), follow_symlinks=False)
            with suppress(NotADirectoryError):
                (directory / _PARTIAL).unlink(missing_ok=True)

    def cut_off(self, attempt: AttemptId) -> bool:
        """Whether more was there than came."""
        return os.path.lexists(self.directory / str(attempt) / _PARTIAL)

    def forget(self, attempt: AttemptId, stream: str) -> None:
        """Begin anew: the file on the worker is another one by now. Raises NotWritableError."""
        path = self.path(attempt, stream)
        with refusing(path):
            path.unlink(missing_ok=True)

    def keep_telling(self, attempt: AttemptId, lines: bytes) -> None:
        """Keep the lines that tell why it failed. Raises NotWritableError if they can't be written."""
        path = self.directory / str(attempt) / _TELLING
        with refusing(path):
            path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            with opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_PIPE) as fd:
                write_all(self._disk, fd, lines)

    def telling(self, attempt: AttemptId) -> bytes:
        """The lines that tell why it failed, b"" if none are kept. Raises NotWritableError if they can't be read."""
        with self._opened(self.directory / str(attempt) / _TELLING) as fd:
            return b"" if fd is None else os.pread(fd, MOST_TELLING, 0)

    def _reading(self, attempt: AttemptId, stream: str) -> AbstractContextManager[int | None]:
        return self._opened(self.path(attempt, stream))

    @contextmanager
    def _opened(self, path: Path) -> Iterator[int | None]:
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


class LogsDue:
    """The ended attempts whose output is still to be copied: one small file each, named by the token."""

    def __init__(self, directory: Path, disk: Disk = DISK) -> None:
        self._directory, self._disk = directory, disk

    def add(self, attempts: Mapping[Token, AttemptId]) -> None:
        """Record that the output of these attempts is to be copied. Raises NotWritableError."""
        with refusing(self._directory):
            self._directory.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
            for token, attempt in attempts.items():
                replace_file(self._disk, self._directory / token, str(attempt).encode(), alone=False)

    def all(self) -> dict[Token, AttemptId]:
        """Every attempt whose output is still to be copied. What is not a file of ours is skipped."""
        due = {}
        try:
            names = sorted(os.listdir(self._directory))
        except OSError:
            return {}
        for name in names:
            with (
                suppress(OSError, UsageError, ValueError),
                opened(self._directory / name, os.O_RDONLY | _NO_PIPE) as fd,
            ):
                due[parse_token(name)] = parse_attempt_id(os.read(fd, _LONGEST_ID).decode())
        return due

    def remove(self, token: Token) -> None:
        """Record that nothing more of it is to be copied. Raises NotWritableError."""
        with refusing(self._directory):
            (self._directory / token).unlink(missing_ok=True)
