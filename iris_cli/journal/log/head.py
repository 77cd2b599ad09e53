"""The file `HEAD`, which names the last committed line. It may be behind the log, but is never ahead.

Without HEAD, a damaged last line would look like an incomplete line that was never committed. A commit overwrites HEAD
in one call and within one disk sector. HEAD is ignored if its checksum is wrong, as after an incomplete write or read.
"""

import json
import os
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from iris_cli.files import Disk, opened, replace_file, sync_directory, write_all
from iris_cli.journal.layout import HEAD
from iris_cli.journal.log.position import Position

_LIMIT = 4096  # bytes
_SIZE = 128  # bytes; constant, so that no write changes the size or reaches a second sector
_MARK = b', "check": "'


class Head(Struct, frozen=True, kw_only=True):
    """The content of HEAD: `seq` and `crc` of the line, and the cluster id of its log."""

    seq: int
    crc: str
    cluster_id: str


def read_head(directory: Path) -> Head | None:
    """Return the content of HEAD; None if it is missing or damaged. Raises OSError."""
    try:
        with opened(f"{directory}/{HEAD}", os.O_RDONLY) as fd:
            text = os.read(fd, _LIMIT)
        entry = json.loads(text)
        check = entry.pop("check", None)
        # A HEAD of another size has no checksum, because an older program replaced it atomically.
        if len(text) == _SIZE and check != _check(text.partition(_MARK)[0]):
            return None
        head = Head(**entry)
    except (FileNotFoundError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return head if (type(head.seq), type(head.crc), type(head.cluster_id)) == (int, str, str) else None


def head_at(position: Position) -> Head | None:
    """Return the HEAD of a log committed up to `position`; None for an empty log."""
    if position.header is None:
        return None
    return Head(seq=position.seq, crc=position.crc, cluster_id=position.header.cluster_id)


def is_head(directory: Path, position: Position) -> bool:
    """Return whether HEAD has exactly the content for `position`. Raises OSError."""
    with opened(f"{directory}/{HEAD}", os.O_RDONLY) as fd:
        return os.read(fd, _LIMIT) == _text(position)


def advance_head(disk: Disk, directory: Path, position: Position) -> None:
    """Record that the log is committed up to `position`, which is after the current HEAD. Raises OSError."""
    text = _text(position)
    try:
        with opened(f"{directory}/{HEAD}", os.O_RDWR) as fd:
            if os.fstat(fd).st_size == len(text) == _SIZE:
                write_all(disk, fd, text)
                return
    except (FileNotFoundError, PermissionError):
        pass
    replace_file(disk, directory / HEAD, text)


def write_head(disk: Disk, directory: Path, position: Position) -> None:
    """Durably record that the log is committed up to `position`, even if the current HEAD is ahead. Raises OSError."""
    if position.header is None:
        (directory / HEAD).unlink(missing_ok=True)
    else:
        replace_file(disk, directory / HEAD, _text(position), synced=True)
    sync_directory(disk, directory)


def _text(position: Position) -> bytes:
    assert position.header is not None, "nothing was committed yet"
    ours = f'{{"seq": {position.seq}, "crc": "{position.crc}", "cluster_id": "{position.header.cluster_id}"'
    body = ours.encode("ascii")  # all values are hexadecimal digits, which need no escapes in JSON
    return (body + _MARK + _check(body).encode("ascii") + b'"}').ljust(_SIZE - 1) + b"\n"


def _check(body: bytes) -> str:
    return f"{crc32(body):08x}"
