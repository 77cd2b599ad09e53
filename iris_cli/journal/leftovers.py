"""Files in the state directory that nobody reads any more: what was set aside, and pulled task logs."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from iris_cli.core.dataclass import dataclass, replace
from iris_cli.journal.layout import ARCHIVE, DAMAGED_PREFIX, OLD_SUFFIX, TASK_LOGS, TORN_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One file, or the pulled logs of one job. `what` says what it was; `problem` why it could not be removed."""

    path: Path
    what: str
    bytes: int
    removed: bool = False
    problem: str = ""


def leftovers(directory: Path, before: float) -> tuple[Leftover, ...]:
    """What is left in a state directory and was last written before that time, in the order of names."""
    return tuple(
        Leftover(path=path, what=what, bytes=size)
        for path, what in _candidates(directory)
        for size, written in [_size(path)]
        if written <= before
    )


def remove_leftover(leftover: Leftover) -> Leftover:
    """Remove it, but nothing that a link in it points to."""
    try:
        if leftover.path.is_dir() and not leftover.path.is_symlink():
            shutil.rmtree(leftover.path)
        else:
            leftover.path.unlink(missing_ok=True)
    except OSError as error:
        return replace(leftover, problem=error.strerror or str(error))
    return replace(leftover, removed=True)


def _candidates(directory: Path) -> Iterator[tuple[Path, str]]:
    for path in _entries(directory):
        if path.name.startswith(TORN_PREFIX):
            yield path, "the unfinished end of a log"
        elif path.name.startswith(DAMAGED_PREFIX):
            yield path, "a log as it was before it was salvaged"
    for path in _entries(directory / ARCHIVE):
        if OLD_SUFFIX in path.name:
            yield path, "a segment that is no longer part of the archive"
    for path in _entries(directory / TASK_LOGS, files=False):
        yield path, "pulled task logs"


def _entries(directory: Path, *, files: bool = True) -> list[Path]:
    """The regular files in a directory, or else all that is in it; none if it isn't there, or is a link."""
    try:
        if directory.is_symlink():
            return []
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    paths = [directory / name for name in names]
    return [path for path in paths if path.is_file() and not path.is_symlink()] if files else paths


def _size(path: Path) -> tuple[int, float]:
    """Bytes on the disk, and when anything of it was last written: never yet, if somebody else has removed it."""
    statuses = list(_statuses(path))
    written = max((each.st_mtime for each in statuses), default=math.inf)
    return sum(each.st_blocks * 512 for each in statuses), written


def _statuses(path: Path) -> Iterator[os.stat_result]:
    paths = [str(path)]
    for top, directories, names in () if path.is_symlink() else os.walk(path):
        paths += [os.path.join(top, name) for name in (*directories, *names)]
    for each in paths:
        with suppress(FileNotFoundError):
            yield os.lstat(each)
