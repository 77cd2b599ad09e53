"""The bytes of a snapshot: one JSON document, in lines, of which few need to be read.

    {"header":{...,"crc":"9a27e113"}   (and blanks, so that it has its length before the rest is known)
    ,"now":{...}                       workers, ghosts, open jobs with their tasks
    ,"outputs":{...}                   attempts that have ended and whose files are still there, by worker
    ,"over":[
    {"id":"train","order":4,"replicas":8,...,"crc":"5f1c0a9e"},      one line for each job that is over, by id
    null]}

The header knows where each part stands, and its checksum; a line of the last part also has its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from iris_cli.errors import IrisError
from iris_cli.journal.codec import decode, encode
from iris_cli.journal.position import is_intact, sealed, unsealed

FORM: Final = 2
HEADER_SIZE: Final = 1024
PARTS: Final = (b',"now":', b'\n,"outputs":', b'\n,"over":[\n')
"""What stands before the parts."""
END: Final = b"null]}\n"

_OPENING = b'{"header":'


class DamagedSnapshotError(Exception):
    """A part of the snapshot isn't what was written."""


@contextmanager
def as_written() -> Iterator[None]:
    """Around what reads a part: whatever else comes up there means that it is damaged."""
    try:
        yield
    except (ValueError, TypeError, KeyError, RecursionError, IrisError) as error:
        raise DamagedSnapshotError(str(error)) from error


class Header(Struct, frozen=True, kw_only=True):
    """Sizes in bytes. `line` to `at` are the position in the log; `jobs`, `tasks` and `parents` are over.

    `program` is the fingerprint of what wrote it: what other rules made of the log is nothing to go on from.
    """

    form: int = FORM
    program: str
    cluster_id: str
    line: int
    offset: int
    seq: int
    log_crc: str
    at: float
    jobs: int = 0
    tasks: int = 0
    parents: int = 0
    now_size: int = 0
    now_crc: int = 0
    outputs_size: int = 0
    outputs_crc: int = 0
    over_size: int = 0
    over_crc: int = 0

    @property
    def now_start(self) -> int:
        return HEADER_SIZE + len(PARTS[0])

    @property
    def outputs_start(self) -> int:
        return self.now_start + self.now_size + len(PARTS[1])

    @property
    def over_start(self) -> int:
        return self.outputs_start + self.outputs_size + len(PARTS[2])

    @property
    def size(self) -> int:
        return self.over_start + self.over_size + len(END)


def encode_header(header: Header) -> bytes:
    line = sealed(encode(header)[:-1])
    return (_OPENING + line[:-1]).ljust(HEADER_SIZE - 1) + b"\n"


def decode_header(raw: bytes) -> Header:
    """Raises DamagedSnapshotError for anything that this program would not have written."""
    body = raw.removeprefix(_OPENING).rstrip()
    if len(raw) != HEADER_SIZE or not raw.startswith(_OPENING) or not is_intact(body):
        raise DamagedSnapshotError("header")
    with as_written():
        header = decode(Header, unsealed(body))
    if header.form != FORM:
        raise DamagedSnapshotError("form")
    return header
