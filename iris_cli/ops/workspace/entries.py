"""What a tar file of the chosen files holds: plain files and links that stay inside, or a word why not."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.core.ids import clip
from iris_cli.core.units import count, format_memory
from iris_cli.errors import UsageError
from iris_cli.ops.workspace.archive import END_SIZE, ODDITIES, Entry, entry_of, padded
from iris_cli.ops.workspace.ignore import IGNORE_FILE
from iris_cli.ops.workspace.selection import Selection

_MOST_SHOWN = 5


class Listing(Struct, frozen=True, kw_only=True):
    """What would be shipped of `directory`. `size`: bytes of the tar file; `by` and `words` as of a Selection."""

    directory: Path
    entries: tuple[Entry, ...]
    size: int
    by: str
    words: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What people call it."""
        return os.fsencode(self.directory.name or "root").decode("utf-8", "replace")

    @property
    def biggest(self) -> list[Entry]:
        return _biggest(self.entries)


def list_entries(directory: Path, chosen: Selection, limit: int) -> Listing:
    """Look at each of the chosen files.

    Raises UsageError if one can't be shipped, if there is none, or if all together are more than `limit` bytes.
    """
    words, entries = list(chosen.words), []
    parents: dict[str, bool] = {"": True}
    for name in chosen.names:
        if _in_real_directories(directory, name, parents):
            entry = _entry(directory, name, words)
            entries += [] if entry is None else [entry]
    if not entries:
        raise UsageError(
            f"there is nothing to ship in {directory} (chosen: {chosen.by})",
            hint="leave out --workdir, or name another directory",
        )
    _refuse_odd(directory, entries)
    size = sum(len(each.header) + padded(each.size) for each in entries) + END_SIZE
    if size > limit:
        raise _too_big(directory, entries, size, limit)
    return Listing(directory=directory, entries=tuple(entries), size=size, by=chosen.by, words=tuple(words))


def _in_real_directories(top: Path, name: str, known: dict[str, bool]) -> bool:
    """Whether all that it lies in are directories: git also names files behind a link that took their place."""
    parent = name.rpartition("/")[0]
    if parent not in known:
        known[parent] = _in_real_directories(top, parent, known) and _is_directory(top / parent)
    return known[parent]


def _is_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _entry(top: Path, name: str, words: list[str]) -> Entry | None:
    """None for what isn't there (git tracks deleted files, too), or is neither file nor link."""
    try:
        found = entry_of(os.fspath(top), name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(name, error) from error
    if found is None:
        words.append(f"{clip(name)} is not shipped: it is neither file nor link")
    return found


def unreadable(name: str, error: OSError) -> UsageError:
    return UsageError(
        f"{clip(name)} can't be read: {error.strerror or error}",
        hint=f"mend its permissions, or name it in {IGNORE_FILE}",
    )


# What is refused


def _refuse_odd(directory: Path, entries: Sequence[Entry]) -> None:
    for what, is_odd in ODDITIES:
        if odd := [each for each in entries if is_odd(each)]:
            shown = ", ".join(_shown(each) for each in odd[:_MOST_SHOWN])
            more = f" and {len(odd) - _MOST_SHOWN} more" if len(odd) > _MOST_SHOWN else ""
            raise UsageError(
                f"{directory} holds {what}: {shown}{more}",
                hint=f"mend them, or name them in {directory / IGNORE_FILE}",
            )


def _shown(entry: Entry) -> str:
    return clip(entry.name if entry.target is None else f"{entry.name} -> {entry.target}")


def _too_big(directory: Path, entries: Sequence[Entry], size: int, limit: int) -> UsageError:
    shown = ", ".join(f"{clip(each.name)} ({format_memory(each.size)})" for each in _biggest(entries))
    return UsageError(
        f"{directory} is {format_memory(size)} in {count(len(entries), 'file')}, more than "
        f"{format_memory(limit)} (limits.workspace_size); the biggest: {shown}",
        hint=f"name what is to stay here in {directory / IGNORE_FILE}",
    )


def _biggest(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda each: (-each.size, each.name))[:_MOST_SHOWN]
