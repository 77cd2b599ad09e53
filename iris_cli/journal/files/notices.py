"""The state of notifications: a small file, and the lock for sending."""

import os
from contextlib import suppress
from pathlib import Path

from iris_cli.core.messages.notices import NoticeState
from iris_cli.files import Disk, open_safely, opened, replace_file, try_lock
from iris_cli.journal import layout
from iris_cli.journal.codec import decode, encode
from iris_cli.journal.log.position import is_intact, seal, unseal

_MAX_BYTES = 1 << 26


class NoticeFile:
    """The file of one state directory. Never raises OSError, because a failed notice must not fail the command."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._path = directory / layout.NOTICES
        self._disk = disk

    @property
    def exists(self) -> bool:
        """True if the file exists, even if it is damaged."""
        return os.path.lexists(self._path)

    def read(self) -> NoticeState | None:
        """Return the state of notifications; None if the file is absent or damaged."""
        try:
            with (
                opened(self._path, os.O_RDONLY) as fd,
                os.fdopen(fd, "rb", closefd=False) as file,
            ):
                line = file.read(_MAX_BYTES)
            if not is_intact(line[:-1]):
                return None
            return decode(NoticeState, unseal(line))
        except (OSError, ValueError):
            return None

    def write(self, state: NoticeState) -> bool:
        """Atomically replace the state. Return False if that failed.

        After a power loss the file may have the old state, and a notice is then sent twice.
        """
        with suppress(OSError):
            replace_file(self._disk, self._path, seal(encode(state)[:-1]), synced=True)
            return True
        return False

    def forget(self) -> None:
        """Delete the file. When the operator configures notifications later, iris does not send earlier events."""
        with suppress(OSError):
            self._path.unlink()

    def lock(self) -> int | None:
        """Return a descriptor that holds the lock until it is closed; None if another process holds the lock."""
        try:
            fd = open_safely(self._directory / layout.NOTICES_LOCK, os.O_RDWR | os.O_CREAT)
        except OSError:
            return None
        with suppress(OSError):
            if try_lock(fd):
                return fd
        os.close(fd)
        return None
