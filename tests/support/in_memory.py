"""The file system in memory, for the directories of tests."""

import os
from pathlib import Path

IN_MEMORY = Path("/dev/shm")
_ENOUGH = 4 << 30  # bytes; the tests use some hundred megabytes


def room_in_memory() -> bool:
    """Return True if it exists, has room for all tests, and can execute programs."""
    try:
        disk = os.statvfs(IN_MEMORY)
    except OSError:
        return False
    room = disk.f_bavail * disk.f_frsize >= _ENOUGH
    return room and not disk.f_flag & (os.ST_NOEXEC | os.ST_RDONLY) and os.access(IN_MEMORY, os.W_OK)
