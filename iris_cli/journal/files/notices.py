"""What was told to whom, beside the log: a small file, and a lock that one invocation at a time tells under."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from iris_cli.core.messages.notices import Books
from iris_cli.journal import layout
from iris_cli.journal.codec import decode, encode
from iris_cli.journal.durable import Disk, open_safely, opened, replace_file
from iris_cli.journal.log.position import is_intact, sealed, unsealed

_MOST_BYTES = 1 << 26


class NoticeFile:
    """The books of notices of one state directory. Nothing here raises OSError: to tell is the least of our work."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._path = directory / layout.NOTICES
        self._disk = disk

    @property
    def exists(self) -> bool:
        """Whether there are books, be they of use or not."""
        return os.path.lexists(self._path)

    def read(self) -> Books | None:
        """The books; None if there are none, or if they can't be trusted."""
        try:
            with (
                opened(self._path, os.O_RDONLY | os.O_NONBLOCK) as fd,
                os.fdopen(fd, "rb", closefd=False) as file,
            ):
                line = file.read(_MOST_BYTES)
            if not is_intact(line[:-1]):
                return None
            return decode(Books, unsealed(line))
        except (OSError, ValueError):
            return None

    def write(self, books: Books) -> bool:
        """Put these in the place of the old ones, at once; whether it could be done.

        After a power cut the old ones may be there: then somebody is told again.
        """
        with suppress(OSError):
            replace_file(self._disk, self._path, sealed(encode(books)[:-1]), synced=True)
            return True
        return False

    def forget(self) -> None:
        """Nobody is to be told any more. Should that change, what happened meanwhile is not news."""
        with suppress(OSError):
            self._path.unlink()

    def lock(self) -> int | None:
        """A descriptor that keeps all others from telling until it is closed; None if somebody else has it."""
        try:
            fd = open_safely(self._directory / layout.NOTICES_LOCK, os.O_RDWR | os.O_CREAT)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd
