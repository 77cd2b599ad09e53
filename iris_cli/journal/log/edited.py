"""A log that another program rewrote as a text file of Windows: what it added, and the lines without that.

The checksum of a line vouches for the bytes that were committed, so nothing is lost by such an edit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from iris_cli.journal.log.fault import Fault, FaultKind
from iris_cli.journal.log.position import is_intact
from iris_cli.journal.log.record import BadLineError, NewerLogError, decode_line

_BOM = b"\xef\xbb\xbf"
_CR_LF = b"\r\n"
_REWROTE = "another program rewrote the file"


def as_committed(line: bytes) -> bytes:
    """The line without what an edit added to it; the line as it is if that does not make its checksum right."""
    if not line.endswith(_CR_LF) and not line.startswith(_BOM):
        return line
    original = line.removeprefix(_BOM)
    original = original.removesuffix(_CR_LF) + b"\n" if original.endswith(_CR_LF) else original
    return original if is_intact(original.removesuffix(b"\n")) else line


def what_was_added(line: bytes) -> str:
    """What an edit added to the line, in words; "" if its checksum stays wrong without that."""
    if as_committed(line) == line:
        return ""
    if line.endswith(_CR_LF):
        return f"it ends in CR LF: {_REWROTE}"
    return f"a byte order mark stands before it: {_REWROTE}"


def find_edit(stream: BinaryIO) -> Fault | None:
    """The first edited line of a file; None if there is none."""
    stream.seek(0)
    offset = 0
    for number, line in enumerate(stream, start=1):
        if what := what_was_added(line):
            return Fault(
                kind=FaultKind.EDITED, line=number, offset=offset, seq=_seq_of(line, number), what=what
            )
        offset += len(line)
    return None


@contextmanager
def restored(stream: BinaryIO) -> Iterator[BinaryIO]:
    """A temporary file with the lines of another one as they were committed."""
    from tempfile import TemporaryFile  # slow to import, and rare

    with TemporaryFile() as made:
        made.writelines(committed_lines(stream))
        made.flush()
        yield cast("BinaryIO", made)


def committed_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, from its beginning, as they were committed."""
    stream.seek(0)
    return map(as_committed, stream)


def _seq_of(line: bytes, number: int) -> int:
    try:
        return decode_line(as_committed(line).removesuffix(b"\n")).seq
    except (BadLineError, NewerLogError):
        return number
