"""Where a demo lives that leaves nothing behind; if it is killed, the next one removes what it has left."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from iris_cli.demo.processes import end_processes, remove_tree

_PREFIX = "iris-demo-"
_LOCK = ".iris-demo-runs"
_LAB = "lab"


@contextmanager
def demo_home() -> Iterator[Path]:
    """A new directory for the time of the block, beside a file that is locked for as long as this process lives.

    Those that others were killed in are removed first.
    """
    _remove_dead()
    root = Path(tempfile.mkdtemp(prefix=_PREFIX))
    draft = root / f"{_LOCK}.draft"
    with draft.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        draft.rename(root / _LOCK)  # AFTER it is locked: without a lock it says that we are dead
        try:
            (root / _LAB).mkdir()
            yield root / _LAB
        finally:
            _remove(root)


def _remove(root: Path) -> None:
    """The file that says whose it is goes last: where anything withstands, the next one tries again."""
    with suppress(OSError):
        if (root / _LAB).exists():
            remove_tree(root / _LAB)
        remove_tree(root)


def _remove_dead() -> None:
    """What surely was made here, by us, by a process that has ended.

    Its hosts ended with it, and their tasks with them; but where the hosts were killed as well, these run still.
    """
    for root in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")):
        with suppress(OSError):
            status = root.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            fd = os.open(root / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    end_processes(root / _LAB)
                    _remove(root)
            finally:
                os.close(fd)
