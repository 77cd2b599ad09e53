"""The process that a background loop ends with: that of a demo, which may be killed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path

OWNER = "IRIS_LOOP_OWNER"
"""The variable with the path of a file. A loop that has it ends as soon as no process holds the lock of that file."""


@contextmanager
def owned(file: Path, environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Let each loop that is started inside the block end with this process, also if it is killed. Raises OSError."""
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        environ[OWNER] = str(file)
        try:
            yield
        finally:
            del environ[OWNER]


def owner_is_gone(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process belongs to one that has ended; a file that is missing has no owner."""
    if not (file := environ.get(OWNER, "")):
        return False
    try:
        with open(file, encoding="utf-8") as looked_at:
            fcntl.flock(looked_at, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
