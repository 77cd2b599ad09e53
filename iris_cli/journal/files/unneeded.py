"""Files in the state directory that may be deleted: files kept by repairs, files packed for ended jobs, copied logs."""

import math
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.files import DRAFT_SUFFIX
from iris_cli.journal import layout

_DRAFT_AGE = 86_400.0  # seconds after which the writer of a draft counts as killed


class UnneededFile(Struct, frozen=True, kw_only=True):
    """One file that is no longer needed, or the copied logs of one job. `what`: its kind. `bytes`: its size on disk.

    `problem`: the reason why it can't be deleted, otherwise ''.
    """

    OMITTED: ClassVar = ("written", "packed")
    path: Path
    what: str
    bytes: int
    written: float  # last modification, in seconds since the epoch
    # The hash of a packed file. Before deleting such a file, take the lock and check that no new job needs it.
    packed: str = ""
    removed: bool = False
    problem: str = ""


def find_unneeded_files(
    directory: Path, before: float, needed: Collection[str] = ()
) -> tuple[UnneededFile, ...]:
    """Return the files last written before the time `before`. `needed`: hashes of files packed for open jobs."""
    found = [*_drafts(directory, before), *_kept_files(directory), *_packed_files(directory, before, needed)]
    return tuple(each for each in found if each.written <= before)


def delete_unneeded_file(file: UnneededFile) -> UnneededFile:
    """Delete a file or directory, unless it was modified since it was found. Links are not followed."""
    if file.written < _size(file.path)[1] < math.inf:
        return replace(file, problem="it has changed")
    try:
        if file.path.is_dir() and not file.path.is_symlink():
            shutil.rmtree(file.path)
        else:
            file.path.unlink(missing_ok=True)
    except OSError as error:
        return replace(file, problem=error.strerror or str(error))
    return replace(file, removed=True)


def _drafts(directory: Path, before: float) -> Iterator[UnneededFile]:
    """Yield the drafts of small files that killed writers have left."""
    for path in _entries(directory):
        if path.name.startswith((layout.HEARTBEAT, layout.LOOP_ORDER)) and path.name.endswith(DRAFT_SUFFIX):
            draft = _unneeded_file(path, "unfinished temporary files")
            if draft.written <= before - _DRAFT_AGE:
                yield draft


def _kept_files(directory: Path) -> Iterator[UnneededFile]:
    """Yield the files kept by repairs, and the copied logs."""
    for path in _entries(directory):
        if path.name.startswith(layout.TORN_PREFIX):
            yield _unneeded_file(path, "torn log lines")
        elif path.name.startswith(layout.DAMAGED_PREFIX):
            yield _unneeded_file(path, "logs kept by salvage")
    for path in _entries(directory / layout.ARCHIVE):
        if layout.OLD_SUFFIX in path.name:
            yield _unneeded_file(path, "unused archive segments")
    for path in _entries(directory / layout.TASK_LOGS, files=False):
        yield _unneeded_file(path, "pulled task logs")


def _packed_files(directory: Path, before: float, needed: Collection[str]) -> Iterator[UnneededFile]:
    for kind, what in ((layout.WORKSPACES, "packed workspaces"), (layout.LINES, "packed array lines")):
        for path in _entries(directory / kind):
            name = path.name.removesuffix(layout.PACKED_SUFFIX)
            if path.name.endswith(layout.PART_SUFFIX):
                draft = _unneeded_file(path, f"unfinished {what}")
                if draft.written <= before - _DRAFT_AGE:
                    yield draft
            elif name != path.name and name not in needed:
                yield _unneeded_file(path, f"unused {what}", packed=name)


def _unneeded_file(path: Path, what: str, packed: str = "") -> UnneededFile:
    size, written = _size(path)
    return UnneededFile(path=path, what=what, bytes=size, written=written, packed=packed)


def _entries(directory: Path, *, files: bool = True) -> list[Path]:
    """Return the regular files of a directory, or all its content if not `files`; empty if it is missing or a link."""
    try:
        if directory.is_symlink():
            return []
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    paths = [directory / name for name in names]
    return [path for path in paths if path.is_file() and not path.is_symlink()] if files else paths


def _size(path: Path) -> tuple[int, float]:
    """Return the bytes on disk and the time of the last modification (infinity if `path` was deleted)."""
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
