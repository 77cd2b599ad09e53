"""A disk that remembers what a power cut may leave of it, by the rules of POSIX and no kinder ones.

What was written to a file is safe when that file was synced, and until then it may be there, in part, as zeros, or
not at all. A name (a new file, a rename) is safe when its directory was synced, and until then any of the changes
since may be there without the others: the order in which they were made says nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from pathlib import Path

from iris_cli.files import Disk

Names = dict[str, int]
State = Mapping[str, bytes]
"""Every file that is left, by its name."""

_NO_MATTER = frozenset({"lock", "lock.json"})
_SLICE = 24  # bytes of a file that was written over, of which some may be there and the rest not yet
_ALL_SUBSETS = 6  # changes of names of which each may be there or not; of more, one is there or is missing


@dataclass
class _File:
    """What a file may hold: `safe` for sure, or what it held later, as written or in part."""

    safe: bytes
    later: list[bytes] = field(default_factory=list)

    @property
    def now(self) -> bytes:
        return self.later[-1] if self.later else self.safe

    def possible(self) -> list[bytes]:
        found = [self.safe]
        for before, after in zip([self.safe, *self.later], self.later, strict=False):
            new = len(after) - len(before)
            if new > 0 and after.startswith(before):
                found += [before + after[len(before) :][: new // 2], before + bytes(new)]
                found += [after[:-1]] if new > 1 else []
            elif new == 0:
                found += [after[:at] + before[at:] for at in range(0, len(after), _SLICE)]
            found.append(after)
        return list(dict.fromkeys(found))


@dataclass(frozen=True)
class _Change:
    """Of the names in the directory, at once: some go, some come."""

    gone: tuple[str, ...]
    come: tuple[tuple[str, int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.gone, *(name for name, _ in self.come))

    def apply(self, names: Names) -> None:
        for name in self.gone:
            names.pop(name, None)
        names.update(self.come)


class PowerCuts(Disk):
    """Works as ever, and knows at each moment what would be left. What is there at first is safe.

    `moments` counts the calls so far; `left_at(moment)` are the states that a cut just then may leave.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[int, _File] = {}
        self._ids: dict[int, int] = {}  # what we call a file, by its inode, as long as it has a name
        self._names: Names = {}
        self._safe_names: Names = {}
        self._changes: list[_Change] = []
        self.left: list[list[State]] = []
        self._look()
        for file in self._files.values():
            file.safe, file.later = file.now, []
        self._safe_names, self._changes = dict(self._names), []

    @property
    def moments(self) -> int:
        return len(self.left)

    def write(self, fd: int, data: bytes) -> int:
        self._moment()
        written = super().write(fd, data)
        self._moment()
        return written

    def fsync(self, fd: int) -> None:
        self._moment()
        super().fsync(fd)
        self._look()
        inode = os.fstat(fd).st_ino
        for directory in self._directories():
            if inode == directory.stat().st_ino:
                self._synced(directory)
        if inode in self._ids:
            file = self._files[self._ids[inode]]
            file.safe, file.later = file.now, []
        self._moment()

    def truncate(self, fd: int, size: int) -> None:
        self._moment()
        super().truncate(fd, size)
        self._moment()

    def rename(self, source: Path, target: Path) -> None:
        self._moment()
        super().rename(source, target)
        self._moment()

    def _moment(self) -> None:
        self._look()
        self.left.append(list(self._possible()))

    def _directories(self) -> Iterator[Path]:
        yield self._directory
        for entry in os.scandir(self._directory):
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)

    def _synced(self, directory: Path) -> None:
        """The names in this one are safe, and those of the others are what they were."""
        within = f"{directory.relative_to(self._directory)}/" if directory != self._directory else ""
        ours = {name for name in {*self._names, *self._safe_names} if _is_in(name, within)}
        self._safe_names = {name: number for name, number in self._safe_names.items() if name not in ours}
        self._safe_names |= {name: number for name, number in self._names.items() if name in ours}
        self._changes = [
            change for change in self._changes if not all(_is_in(name, within) for name in change.names)
        ]

    def _look(self) -> None:
        """Note what has changed in the directory since the last look, whoever did it."""
        found: dict[str, tuple[int, bytes]] = {}
        for directory in self._directories():
            for entry in os.scandir(directory):
                if entry.is_file(follow_symlinks=False) and entry.name not in _NO_MATTER:
                    name = str(Path(entry.path).relative_to(self._directory))
                    found[name] = (entry.inode(), Path(entry.path).read_bytes())
        inodes = {inode for inode, _ in found.values()}
        self._ids = {inode: number for inode, number in self._ids.items() if inode in inodes}
        for inode, data in found.values():
            if inode not in self._ids:
                self._ids[inode] = len(self._files)
                self._files[self._ids[inode]] = _File(safe=b"")
            file = self._files[self._ids[inode]]
            if file.now != data:
                file.later.append(data)
        names = {name: self._ids[inode] for name, (inode, _) in found.items()}
        gone = tuple(name for name in self._names if name not in names)
        come = tuple((name, number) for name, number in names.items() if self._names.get(name) != number)
        if gone or come:
            self._changes.append(_Change(gone, come))
        self._names = names

    def _possible(self) -> Iterator[State]:
        for subset in _subsets(self._changes):
            names = dict(self._safe_names)
            for change in subset:
                change.apply(names)
            contents = [self._files[number].possible() for number in names.values()]
            for choice in product(*contents):
                yield dict(zip(names, choice, strict=True))


def _is_in(name: str, within: str) -> bool:
    """Whether a file is in the directory with that prefix, itself and not further down."""
    return name.startswith(within) and "/" not in name.removeprefix(within)


def _subsets(changes: list[_Change]) -> Iterator[tuple[_Change, ...]]:
    many = len(changes)
    sizes = range(many + 1) if many <= _ALL_SUBSETS else (0, 1, many - 1, many)
    return chain.from_iterable(combinations(changes, size) for size in sizes)
