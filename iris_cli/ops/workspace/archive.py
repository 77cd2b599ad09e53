"""Workspace archive: a tar file with the same bytes for the same files, independent of time and machine.

The format is ustar, with GNU long names for names that don't fit: GNU tar, busybox and bsdtar all read it
(busybox skips pax headers). It contains files and links, no directories.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Generator, Iterator, Mapping
from itertools import pairwise
from tarfile import GNU_FORMAT, USTAR_FORMAT, TarInfo
from typing import NamedTuple

from iris_cli.core.ids import clip
from iris_cli.ops.workspace.selection import MOST_FILES

END = bytes(1024)
END_SIZE = len(END)

BLOCK = 512
_MTIME = 946_684_800  # the year 2000: some programs warn about 1970
FILE, LINK, LONG_NAME, LONG_TARGET = b"0", b"2", b"L", b"K"
_MOST_SIZE = (1 << 33) - 1  # of one file: eleven octal digits, which every tar reads
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_CHUNK = 1 << 20


class ChangedError(Exception):
    """A file has changed since it was listed; the message is its name."""


class Entry(NamedTuple):
    """One file, of `size` bytes, or a link to `target`. `version` changes when the file does.

    `source` is the path of a file that is packed under another name.
    """

    name: str
    size: int = 0
    executable: bool = False
    target: str | None = None
    version: tuple[int, ...] = ()
    source: str = ""

    @property
    def header(self) -> bytes:
        target = None if self.target is None else os.fsencode(self.target)
        return tar_header(os.fsencode(self.name), size=self.size, executable=self.executable, target=target)


def entry_of(top: str, name: str) -> Entry | None:
    """Return the entry of a name below a directory; None if it is neither a file nor a link. Raises OSError."""
    path = os.path.join(top, name)
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return Entry(name, target=os.readlink(path))
    if stat.S_ISREG(status.st_mode):
        return Entry(name, status.st_size, bool(status.st_mode & stat.S_IXUSR), None, version_of(status))
    return None


def version_of(status: os.stat_result) -> tuple[int, ...]:
    """Return a value that changes when the file does."""
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def contents(top: str, entry: Entry) -> Iterator[bytes]:
    """Yield the bytes of a file and the padding of its last block. Raises ChangedError, OSError."""
    try:
        path = entry.source or os.path.join(top, entry.name)
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise ChangedError(entry.name) from error
        raise
    try:
        left = entry.size
        while left and (data := os.read(fd, min(left, _CHUNK))):
            left -= len(data)
            yield data
        if left or version_of(os.fstat(fd)) != entry.version:
            raise ChangedError(entry.name)
    finally:
        os.close(fd)
    yield padding(entry.size)


def _is_plain(text: str) -> bool:
    """Return True if every program reads this name alike."""
    try:
        os.fsencode(text).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return _CONTROL.search(text) is None


def _has_arrow(entry: Entry) -> bool:
    """Return True if a worker, which validates `tar` listings, could misread it as a link or another link."""
    return " -> " in entry.name or " -> " in (entry.target or "")


def _stays_inside(entry: Entry) -> bool:
    """Return True if a link stays inside, also through other links: `..` is allowed only at its start."""
    if entry.target is None:
        return True
    parts = [part for part in entry.target.split("/") if part not in ("", ".")]
    ups = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    return (
        bool(entry.target)
        and not entry.target.startswith("/")
        and _is_plain(entry.target)
        and ups <= entry.name.count("/")
        and ".." not in parts[ups:]
    )


ODDITIES = (
    ("names that are not UTF-8 or hold control characters", lambda each: not _is_plain(each.name)),
    ("links that lead out of the directory", lambda each: not _stays_inside(each)),
    ("names with an arrow", _has_arrow),
    ("files of 8 GiB or more", lambda each: each.size > _MOST_SIZE),
)
"""Entries that are not packed: a description of each kind, and its test."""


def oddity(entry: Entry) -> str:
    """Return the kind of unpackable entry that this one belongs to; '' if it can be packed."""
    return next((kind for kind, is_odd in ODDITIES if is_odd(entry)), "")


def padded(size: int) -> int:
    """Return the bytes that `size` bytes take in a tar file."""
    return -(-size // BLOCK) * BLOCK


def padding(size: int) -> bytes:
    """Return the padding after `size` bytes."""
    return bytes(padded(size) - size)


def tar_header(name: bytes, *, size: int = 0, executable: bool = False, target: bytes | None = None) -> bytes:
    """Return the header of a file of `size` bytes, or a complete link to `target`."""
    info = TarInfo(os.fsdecode(name))
    info.size, info.mtime, info.mode = size, _MTIME, 0o755 if executable else 0o644
    if target is not None:
        info.type, info.linkname, info.mode = LINK, os.fsdecode(target), 0o777
    try:
        return info.tobuf(USTAR_FORMAT)
    except ValueError:  # a long name
        return info.tobuf(GNU_FORMAT)


_LONGEST = 4096  # bytes of a name, or of the target of a link
_LONGEST_PART = 255  # bytes between two slashes
_MOST_NAMES = 64 << 20  # bytes of all names, which are kept in memory


class OddTarError(Exception):
    """The archive was not packed like ours; the message says why."""


class TarCheck:
    """Validator of a streamed workspace archive: `feed` all pieces, then `end`. Raises OddTarError."""

    def __init__(self) -> None:
        self._names: list[bytes] = []
        self._room = _MOST_NAMES
        self._is_over = False
        self._reading = self._entries()
        self._wanted = next(self._reading)  # number of next bytes to read; negative: to skip
        self._held, self._come = b"", 0  # the part read so far

    def feed(self, data: bytes) -> None:
        place = 0
        while place < len(data):
            step = min(abs(self._wanted) - self._come, len(data) - place)
            if self._wanted > 0:
                self._held += data[place : place + step]
            place, self._come = place + step, self._come + step
            if self._come == abs(self._wanted):
                held, self._held, self._come = self._held, b"", 0
                self._wanted = self._reading.send(held)

    def end(self) -> None:
        """Check the whole archive, after its last piece."""
        if not self._is_over:
            raise OddTarError("it is truncated")
        # Entries below a directory sort directly after its name, as no name contains NUL.
        names = sorted(name.replace(b"/", b"\0") + b"\0" for name in self._names)
        for first, second in pairwise(names):
            if second.startswith(first):
                name = first[:-1].replace(b"\0", b"/")
                raise OddTarError(f"it holds {clip(os.fsdecode(name))} twice")

    def _entries(self) -> Generator[int, bytes]:
        said, long = b"", dict[bytes, bytes]()  # bytes of an entry before its own block
        while any(block := (yield BLOCK)):
            kind = block[156:157]
            if kind in (LONG_NAME, LONG_TARGET):
                size = _size(block)
                if kind in long or not 0 < size <= _LONGEST + 1:
                    raise OddTarError("it holds a name that is too long")
                text = yield padded(size)
                said, long[kind] = said + block + text, text[: size - 1]
                continue
            entry = _entry(block, long)
            if entry.header != said + block:
                raise OddTarError(f"unknown metadata of {clip(entry.name)}")
            self._take(entry)
            said, long = b"", {}
            if entry.size:
                yield -padded(entry.size)
        if said or any((yield END_SIZE - BLOCK)):
            raise OddTarError("it is truncated")
        self._is_over = True
        yield 1
        raise OddTarError("data after its end")

    def _take(self, entry: Entry) -> None:
        name = os.fsencode(entry.name)
        if what := oddity(entry):
            raise OddTarError(f"it holds {what}: {clip(entry.name)}")
        for part in name.split(b"/"):
            if part in (b"", b".", b"..") or len(part) > _LONGEST_PART:
                raise OddTarError(f"it holds a name that leads out of it: {clip(entry.name)}")
        self._names.append(name)
        self._room -= len(name)
        if len(self._names) > MOST_FILES or self._room < 0:
            raise OddTarError(f"it holds more than {MOST_FILES} files, or too many long names")


def _entry(block: bytes, long: Mapping[bytes, bytes]) -> Entry:
    """Return the entry of a block; `long` holds names too long for the block."""
    name, prefix = _text(block[:100]), _text(block[345:500])
    name = long.get(LONG_NAME, prefix + b"/" + name if prefix else name)
    kind, target = block[156:157], None
    if kind == LINK:
        target = os.fsdecode(long.get(LONG_TARGET, _text(block[157:257])))
    elif kind != FILE:
        raise OddTarError(f"it holds an entry that is neither file nor link: {clip(os.fsdecode(name))}")
    return Entry(
        name=os.fsdecode(name), size=_size(block), executable=block[100:107] == b"0000755", target=target
    )


def _text(field: bytes) -> bytes:
    return field.rstrip(b"\0")


def _size(block: bytes) -> int:
    try:
        size = int(block[124:135], 8)
    except ValueError:
        size = -1
    if size < 0:
        raise OddTarError("it holds an entry without a size")
    return size
