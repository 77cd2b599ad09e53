"""Workspace archive: a tar file with the same bytes for the same files, independent of time and machine.

The format is ustar, with GNU long names for names that don't fit. GNU tar, busybox and bsdtar read this format. pax
headers are not used, because busybox ignores them. The archive contains files and links, but no directories.
"""

import errno
import os
import re
from collections.abc import Generator, Iterator, Mapping
from itertools import pairwise
from tarfile import GNU_FORMAT, USTAR_FORMAT, TarInfo
from typing import NamedTuple

from iris_cli.core.ids import clip
from iris_cli.ops.workspace.selection import MAX_FILES

END = bytes(1024)

BLOCK = 512
_MTIME = 946_684_800  # time of all files: the year 2000, because some programs warn about 1970
FILE, LINK, LONG_NAME, LONG_TARGET = b"0", b"2", b"L", b"K"
_MAX_SIZE = (1 << 33) - 1  # bytes of one file; every tar reads sizes of eleven octal digits
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_CHUNK = 1 << 20
_MAX_NAME = 4096  # bytes of a name, or of the target of a link
_MAX_PART = 255  # bytes between two slashes
_MAX_NAMES = 64 << 20  # bytes of all names, which are kept in memory


class ChangedError(Exception):
    """A file has changed since it was listed. The message is the file's name."""


class Entry(NamedTuple):
    """A member of an archive: one file of `size` bytes, or a link to `target`.

    `version` changes when the file changes. `source` is the path of a file that is packed under another name, otherwise
    ''.
    """

    name: str
    size: int = 0
    executable: bool = False
    target: str | None = None
    version: tuple[int, ...] = ()
    source: str = ""

    @property
    def header(self) -> bytes:
        """The header of a file, or the whole entry of a link, which has no content."""
        info = TarInfo(self.name)
        info.size, info.mtime, info.mode = self.size, _MTIME, 0o755 if self.executable else 0o644
        if self.target is not None:
            info.type, info.linkname, info.mode = LINK, self.target, 0o777
        try:
            return info.tobuf(USTAR_FORMAT)
        except ValueError:  # a long name
            return info.tobuf(GNU_FORMAT)


def version_of(status: os.stat_result) -> tuple[int, ...]:
    """Return a value that changes when the file changes."""
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
        remaining = entry.size
        while remaining and (data := os.read(fd, min(remaining, _CHUNK))):
            remaining -= len(data)
            yield data
        if remaining or version_of(os.fstat(fd)) != entry.version:
            raise ChangedError(entry.name)
    finally:
        os.close(fd)
    yield bytes(padded_size(entry.size) - entry.size)


def _is_plain(text: str) -> bool:
    """Return True if the text is valid UTF-8 without control characters."""
    try:
        os.fsencode(text).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return _CONTROL.search(text) is None


def _stays_inside(entry: Entry) -> bool:
    """Return True for a file, and for a link that points into the directory.

    `..` is allowed only at the start of the link's target, because elsewhere it could follow another link.
    """
    if entry.target is None:
        return True
    parts = [part for part in entry.target.split("/") if part not in ("", ".")]
    parents = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    return (
        bool(entry.target)
        and not entry.target.startswith("/")
        and _is_plain(entry.target)
        and parents <= entry.name.count("/")
        and ".." not in parts[parents:]
    )


UNPACKABLE = (
    ("names that are not UTF-8 or hold control characters", lambda each: not _is_plain(each.name)),
    ("links that lead out of the directory", lambda each: not _stays_inside(each)),
    # A worker reads links from the output of `tar -t`, and could mistake an entry with ` -> ` in its name for a link.
    ("names with an arrow", lambda each: " -> " in each.name or " -> " in (each.target or "")),
    ("files of 8 GiB or more", lambda each: each.size > _MAX_SIZE),
)
"""Kinds of entries that can't be packed: a description, and its test."""


def padded_size(size: int) -> int:
    """Return the number of bytes that a file of `size` bytes takes in a tar file, without its header."""
    return -(-size // BLOCK) * BLOCK


class ArchiveError(Exception):
    """The archive is not the expected one, was not packed by iris, or is damaged. The message says why."""


class TarCheck:
    """Validates a workspace archive while it streams in: `feed` each piece, then `end`. Both raise ArchiveError."""

    def __init__(self) -> None:
        self._names: list[bytes] = []
        self._bytes_left = _MAX_NAMES
        self._has_ended = False
        self._parser = self._entries()
        # Number of bytes that the parser wants next. If it is negative, the bytes are skipped.
        self._wanted = next(self._parser)
        self._collected = b""  # the bytes that have arrived, without skipped bytes
        self._received = 0  # number of bytes that have arrived, including skipped bytes

    def feed(self, data: bytes) -> None:
        start = 0
        while start < len(data):
            step = min(abs(self._wanted) - self._received, len(data) - start)
            if self._wanted > 0:
                self._collected += data[start : start + step]
            start, self._received = start + step, self._received + step
            if self._received == abs(self._wanted):
                collected, self._collected, self._received = self._collected, b"", 0
                self._wanted = self._parser.send(collected)

    def end(self) -> None:
        """Check the archive as a whole, after its last piece."""
        if not self._has_ended:
            raise ArchiveError("it is truncated")
        # With NUL for `/`, the names in a directory are sorted directly after the name of the directory.
        names = sorted(name.replace(b"/", b"\0") + b"\0" for name in self._names)
        for first, second in pairwise(names):
            if second.startswith(first):
                name = first[:-1].replace(b"\0", b"/")
                raise ArchiveError(f"it holds {clip(os.fsdecode(name))} twice")

    def _entries(self) -> Generator[int, bytes]:
        # `headers`: the blocks with the `long_names` of the next entry. They precede the entry's own header.
        headers, long_names = b"", dict[bytes, bytes]()
        while any(block := (yield BLOCK)):
            kind = block[156:157]
            if kind in (LONG_NAME, LONG_TARGET):
                size = _size(block)
                if kind in long_names or not 0 < size <= _MAX_NAME + 1:
                    raise ArchiveError("it holds a name that is too long")
                text = yield padded_size(size)
                headers, long_names[kind] = headers + block + text, text[: size - 1]
                continue
            entry = _entry(block, long_names)
            if entry.header != headers + block:
                raise ArchiveError(f"unknown metadata of {clip(entry.name)}")
            self._check_entry(entry)
            headers, long_names = b"", {}
            if entry.size:
                yield -padded_size(entry.size)
        if headers or any((yield len(END) - BLOCK)):
            raise ArchiveError("it is truncated")
        self._has_ended = True
        yield 1
        raise ArchiveError("data after its end")

    def _check_entry(self, entry: Entry) -> None:
        name = os.fsencode(entry.name)
        if kind := next((kind for kind, applies in UNPACKABLE if applies(entry)), ""):
            raise ArchiveError(f"it holds {kind}: {clip(entry.name)}")
        for part in name.split(b"/"):
            if part in (b"", b".", b"..") or len(part) > _MAX_PART:
                raise ArchiveError(f"invalid path: {clip(entry.name)}")
        self._names.append(name)
        self._bytes_left -= len(name)
        if len(self._names) > MAX_FILES or self._bytes_left < 0:
            raise ArchiveError(f"it holds more than {MAX_FILES} files, or too many long names")


def _entry(block: bytes, long_names: Mapping[bytes, bytes]) -> Entry:
    """Return the entry of a header block. `long_names`: the names that are too long for the block."""
    name, prefix = _text(block[:100]), _text(block[345:500])
    name = long_names.get(LONG_NAME, prefix + b"/" + name if prefix else name)
    kind, target = block[156:157], None
    if kind == LINK:
        target = os.fsdecode(long_names.get(LONG_TARGET, _text(block[157:257])))
    elif kind != FILE:
        raise ArchiveError(f"it holds an entry that is neither file nor link: {clip(os.fsdecode(name))}")
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
        raise ArchiveError("it holds an entry without a size")
    return size
