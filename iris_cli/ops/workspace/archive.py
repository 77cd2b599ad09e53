"""A workspace as a tar file: the same bytes for the same files, wherever and whenever they are packed.

The format is ustar, and for names that don't fit into it the long names of GNU: GNU tar, busybox and bsdtar all read
it (busybox skips the headers of pax). There are only files and links, no directories.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from tarfile import GNU_FORMAT, USTAR_FORMAT, TarInfo
from typing import NamedTuple

END = bytes(1024)
END_SIZE = len(END)

BLOCK = 512
_MTIME = 946_684_800  # the year 2000: some programs complain of 1970
FILE, LINK, LONG_NAME, LONG_TARGET = b"0", b"2", b"L", b"K"
_MOST_SIZE = (1 << 33) - 1  # of one file: eleven octal digits, which every tar reads
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_CHUNK = 1 << 20


class ChangedError(Exception):
    """A file has changed since it was listed; the message is its name."""


class Entry(NamedTuple):
    """One file, of `size` bytes, or a link to `target`. `version` changes when the file does."""

    name: str
    size: int = 0
    executable: bool = False
    target: str | None = None
    version: tuple[int, ...] = ()

    @property
    def header(self) -> bytes:
        target = None if self.target is None else os.fsencode(self.target)
        return tar_header(os.fsencode(self.name), size=self.size, executable=self.executable, target=target)


def entry_of(top: str, name: str) -> Entry | None:
    """One name below a directory as an entry; None if it is neither a file nor a link. Raises OSError."""
    path = os.path.join(top, name)
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return Entry(name, target=os.readlink(path))
    if stat.S_ISREG(status.st_mode):
        return Entry(name, status.st_size, bool(status.st_mode & stat.S_IXUSR), None, version_of(status))
    return None


def version_of(status: os.stat_result) -> tuple[int, ...]:
    """Changes when the file does."""
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def contents(top: str, entry: Entry) -> Iterator[bytes]:
    """The bytes of a file and the rest of its last block. Raises ChangedError, OSError."""
    try:
        path = os.path.join(top, entry.name)
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
    """True if every program reads this name alike."""
    try:
        os.fsencode(text).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return _CONTROL.search(text) is None


def _has_arrow(entry: Entry) -> bool:
    """True if a worker, which judges by lists of `tar`, could take it for a link or for another link."""
    return " -> " in entry.name or " -> " in (entry.target or "")


def _stays_inside(entry: Entry) -> bool:
    """True if a link leads to a place in the directory, also through other such links.

    So `..` may only come first: after the name of a link it would begin where that link leads.
    """
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
    ("links that lead out of it", lambda each: not _stays_inside(each)),
    ("names with an arrow, which make lists of it ambiguous", _has_arrow),
    ("files of 8 GiB or more", lambda each: each.size > _MOST_SIZE),
)
"""Entries that are not packed: a name for all of one kind, and its test."""


def oddity(entry: Entry) -> str:
    """The kind of entries that are not packed to which this one belongs; '' if it can be packed."""
    return next((kind for kind, is_odd in ODDITIES if is_odd(entry)), "")


def padded(size: int) -> int:
    """Bytes that so many take in a tar file."""
    return -(-size // BLOCK) * BLOCK


def padding(size: int) -> bytes:
    """What stands behind so many bytes."""
    return bytes(padded(size) - size)


def tar_header(name: bytes, *, size: int = 0, executable: bool = False, target: bytes | None = None) -> bytes:
    """The bytes before the contents of a file of `size` bytes, or a whole link to `target`."""
    info = TarInfo(os.fsdecode(name))
    info.size, info.mtime, info.mode = size, _MTIME, 0o755 if executable else 0o644
    if target is not None:
        info.type, info.linkname, info.mode = LINK, os.fsdecode(target), 0o777
    try:
        return info.tobuf(USTAR_FORMAT)
    except ValueError:  # a long name
        return info.tobuf(GNU_FORMAT)
