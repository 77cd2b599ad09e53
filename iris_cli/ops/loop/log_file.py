"""`loop.log`: the only place to which the background loop writes what it has to say."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from iris_cli.journal.durable import open_safely
from iris_cli.journal.layout import LOOP_LOG
from iris_cli.journal.log.timestamps import iso_time

LARGEST = 256 << 10
"""Bytes of a log; a larger one becomes the old one, and the one before that is gone."""

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK


def log_of(directory: Path) -> Path:
    """The log of a state directory."""
    return directory / LOOP_LOG


def open_log(directory: Path) -> int:
    """A descriptor that appends to the log; to nowhere, if the log can't be opened (a full disk, a link there)."""
    with suppress(OSError):
        return open_safely(directory / LOOP_LOG, _APPEND)
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def rotate(directory: Path, largest: int = LARGEST) -> None:
    """Begin a new log if standard output is one that is too large. Never raises OSError."""
    path = directory / LOOP_LOG
    with suppress(OSError):
        ours, named = os.fstat(1), os.lstat(path)
        if (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino) or ours.st_size <= largest:
            return
        sys.stdout.flush()
        os.replace(path, path.with_name(f"{LOOP_LOG}.1"))
        fd = open_log(directory)
        for stream in (1, 2):
            os.dup2(fd, stream)
        os.close(fd)


def take_streams(directory: Path) -> None:
    """Have nothing but the log for output, and no input: whoever runs a loop by hand has a terminal."""
    sys.stdout.flush()
    for fd, streams in ((os.open(os.devnull, os.O_RDONLY), (0,)), (open_log(directory), (1, 2))):
        for stream in streams:
            os.dup2(fd, stream)
        os.close(fd)


def write(lines: Iterable[str], now: float) -> None:
    """Append lines, each with its time. They must be clean. A disk that is full loses them, and nothing else."""
    text = "".join(f"{iso_time(now)} {line}\n" for line in lines)
    with suppress(OSError):
        os.write(1, text.encode("utf-8", "backslashreplace"))
