"""Calls for files on a worker: output of attempts, caches, and workspaces that tasks packed.

The results are untrusted. File names are raw bytes. This module writes no files.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct

from iris_cli.core.ids import Token, WorkerId, parse_token
from iris_cli.core.messages.observations import CacheReport, Silence
from iris_cli.remote.answers import Record, parse_records
from iris_cli.remote.frames import NUMBER, Frame, malformed_answer
from iris_cli.remote.transport import Target
from iris_cli.remote.worker_calls import WorkerCalls
from iris_cli.remote.worker_script import quote

R = TypeVar("R")

BLOCK = 64 << 10
"""Bytes of a block, the unit in which a worker reads a file."""
PIECE = 1 << 20
"""Maximum number of bytes that one call fetches, of one file or of many small ones together."""
MAX_NAMES = 256
MAX_NAME_BYTES = 32 << 10
"""Limits of one call for many small files: number of files, total bytes of their names."""
MAX_LIST_BYTES = 16 << 20
"""Bytes of the lists of files in one answer. Longer lists are truncated."""

_PULL_TIME = 60.0  # seconds: for a slow disk with many files, or a slow connection
_OUTPUT = re.compile(r"O ([0-9a-f]{32}) (here|partial|link|gone)")
_FILE = re.compile(rf"({NUMBER}) ({NUMBER}) ({NUMBER}) ([^\n\0]+)".encode(), re.DOTALL)
_VERSION = re.compile(rf"({NUMBER}) ({NUMBER}) ({NUMBER})".encode())
_PIECE = re.compile(rf"F ({NUMBER}) ({NUMBER}) ({NUMBER}) ({NUMBER})")
_PLAIN = re.compile(rb"[\x20-\x7e]*")


class Version(Struct, frozen=True):
    """Properties that change with a file: size in bytes, mtime (seconds since the epoch, worker's clock), inode."""

    size: int
    mtime: int
    inode: int


class FileList(Struct, frozen=True, kw_only=True):
    """The files of one attempt: `out`, `err` and those in `output/`. Names with newlines have the version None.

    `gone`: no file is left. `partial`: some directories could not be read. `link`: `output` is a symbolic link. `cut`:
    the list is incomplete, because each attempt gets only an equal share of the answer.
    """

    token: Token
    files: tuple[tuple[bytes, Version | None], ...] = ()
    gone: bool = False
    partial: bool = False
    link: bool = False
    cut: bool = False


class FileLists(Struct, frozen=True, kw_only=True):
    """The files of some attempts; `clock` is the worker's time in seconds since the epoch."""

    clock: float
    lists: tuple[FileList, ...]


class FilePiece(Struct, frozen=True, kw_only=True):
    """Bytes of a file from `offset` on. The inode is 0 if there is no such file."""

    data: bytes
    offset: int
    version: Version


class OutputCalls:
    """Calls that fetch output. They change nothing; an incomplete answer is a Silence."""

    def __init__(self, calls: WorkerCalls) -> None:
        self._calls = calls

    def list_files(self, target: Target, tokens: Sequence[Token]) -> FileLists | Silence:
        """List the files of each of these attempts, in the order of the tokens."""
        words = " ".join(map(parse_token, tokens))
        step = f"list_files {MAX_LIST_BYTES // max(1, len(tokens))} {words}"

        def read(frame: Frame) -> FileLists:
            clock, _, records = parse_records(frame, MAX_LIST_BYTES)
            return FileLists(clock=clock, lists=_file_lists(records, tokens))

        return self._ask(target, step, read, room=3 * MAX_LIST_BYTES)

    def batch(
        self, target: Target, token: Token, names: Sequence[bytes]
    ) -> tuple[tuple[Version, bytes], ...] | Silence | None:
        """Fetch small files, at most PIECE bytes in total. If a file changed or is missing, return None."""
        step = f"send_batch {parse_token(token)} {PIECE} {' '.join(map(_word, names))}"
        return self._ask(target, step, partial(_batch, count=len(names)), room=2 * PIECE)

    def piece(
        self, target: Target, token: Token, name: bytes, offset: int, limit: int = PIECE
    ) -> FilePiece | Silence:
        """Fetch at most `limit` bytes of a file from `offset` on. `data` is empty if the file ends before `offset`."""
        first, last = offset // BLOCK, -(-min(offset + limit, offset + PIECE) // BLOCK)
        step = f"send_piece {parse_token(token)} {first} {last - first} {_word(name)}"
        longest = (last - first) * BLOCK
        read = partial(_piece, longest=longest, start=first * BLOCK, offset=offset, limit=limit)
        return self._ask(target, step, read, room=2 * longest)

    def packed(self, target: Target, token: Token, workspace: str, offset: int) -> FilePiece | Silence:
        """Fetch a piece of a packed `workspace` (a hash) from an attempt's outbox, like `piece`. Raises ValueError."""
        if _HASH.fullmatch(workspace) is None:
            raise ValueError(f"{workspace[:80]!r} is no hash")
        return self.piece(target, token, f"{PACKED}/{workspace}.tar.gz".encode(), offset)

    def _ask(self, target: Target, step: str, read: Callable[[Frame], R], *, room: int) -> R | Silence:
        call = [self._calls.open_line(target), "begin_frame", step, "end_frame"]
        return self._calls.ask(target, "pull", call, read, room=room, seconds=_PULL_TIME)


def _word(name: bytes) -> str:
    """Return a file name with a dot appended (see pull.sh), as a shell word. Raises ValueError for a NUL."""
    if b"\0" in name:
        raise ValueError("a NUL byte can't be in the name of a file")
    if _PLAIN.fullmatch(name):
        return quote(name.decode("ascii") + ".")
    escaped = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"\\%" else f"\\{byte:03o}" for byte in name
    )
    return f'"$(printf {quote(escaped + ".")})"'


def _file_lists(records: list[Record], tokens: Sequence[Token]) -> tuple[FileList, ...]:
    """Parse the lists of files. Raises NoAnswer."""
    found = []
    for number, record in enumerate(records):
        match = _OUTPUT.fullmatch(record.line)
        if match is None:
            if record.line != "N" or not number or not records[number - 1].line.startswith("O "):
                raise malformed_answer("the answer has a line that is about no files")
            continue
        with_newlines = b""
        if match[2] != "gone":
            if number + 1 == len(records) or records[number + 1].line != "N":
                raise malformed_answer("the answer does not list the names with newlines")
            with_newlines = records[number + 1].data
        found.append(_file_list(Token(match[1]), match[2], record.data, with_newlines))
    if [each.token for each in found] != list(tokens):
        raise malformed_answer("the answer is not about the attempts that were asked for")
    return tuple(found)


def _file_list(token: Token, outcome: str, data: bytes, with_newlines: bytes) -> FileList:
    lines, names = data.split(b"\n"), with_newlines.split(b"\0")
    cut = bool(lines.pop() + names.pop())  # an item without a terminator was cut off
    files: dict[bytes, Version | None] = {}
    for line in lines:
        match = _FILE.fullmatch(line)
        if match is None:
            raise malformed_answer("the answer has a line that is about no file")
        files[match[4]] = Version(int(match[1]), int(match[2]), int(match[3]))
    files |= dict.fromkeys(names)
    return FileList(
        token=token,
        files=tuple(files.items()),
        gone=outcome == "gone",
        partial=outcome == "partial",
        link=outcome == "link",
        cut=cut,
    )


def _batch(frame: Frame, count: int) -> tuple[tuple[Version, bytes], ...] | None:
    """Parse the answer to `batch`. Return None if a file has changed or is missing. Raises NoAnswer."""
    _, _, records = parse_records(frame, PIECE)
    lines = [record.line for record in records]
    if lines in (["S changed"], [f"B {count}", "S changed"]):
        return None
    if lines != [f"B {count}", "S same"]:
        raise malformed_answer("the answer is not about the files that were asked for")
    versions = []
    for line in records[1].data.splitlines():
        match = _VERSION.fullmatch(line)
        if match is None:
            raise malformed_answer("the answer has a line that is about no file")
        versions.append(Version(int(match[1]), int(match[2]), int(match[3])))
    data = records[0].data
    if len(versions) != count or sum(each.size for each in versions) != len(data):
        return None  # a file is missing, or the files exceed the limit
    files, start = [], 0
    for version in versions:
        files.append((version, data[start : start + version.size]))
        start += version.size
    return tuple(files)


def _piece(frame: Frame, *, longest: int, start: int, offset: int, limit: int) -> FilePiece:
    """Parse a piece of a file. Raises NoAnswer."""
    _, _, records = parse_records(frame, longest)
    match = _PIECE.fullmatch(records[0].line) if len(records) == 1 else None
    if match is None:
        raise malformed_answer("the answer is no piece of a file")
    version = Version(int(match[2]), int(match[3]), int(match[4]))
    if version.inode and int(match[1]) != start:
        raise malformed_answer("the answer is another piece of the file")
    data = records[0].data[offset - start :][:limit]
    return FilePiece(data=data, offset=offset, version=version)


MIN_UNUSED = 600.0
"""Seconds for which every cache entry is kept after its last use, because an invocation may be about to use it."""

PACKED = "outbox/.packed"
"""Directory for workspaces that a task has packed, relative to the attempt's directory."""

_CACHES_TIME = 30.0  # seconds: for a slow disk with many files
_HASH = re.compile("[0-9a-f]{64}")
_CACHE_SIZE = re.compile(rf"S ([ws]/[0-9a-f]{{64}}) ({NUMBER})")


class CacheCalls:
    """The call for caches of workspaces and set-ups."""

    def __init__(self, calls: WorkerCalls) -> None:
        self._calls = calls

    def unused(
        self,
        target: Target,
        *,
        boot_id: str,
        incarnation: str,
        keep: Sequence[str],
        unused_for: float,
        remove: bool = False,
    ) -> CacheReport | Silence:
        """Return the sizes of cached workspaces and set-ups unused for `unused_for` seconds (at least ten minutes).

        `keep` are the hashes of workspaces and set-ups of live attempts. They are omitted. With `remove` the unused
        caches are deleted first. Deletion may take longer than this call: repeat the call until none is listed. A
        different host, or the same host after a reboot, does nothing. Raises ValueError if `keep` contains something
        other than hashes.
        """
        wrong = [each for each in keep if _HASH.fullmatch(each) is None]
        if wrong:
            raise ValueError(f"{wrong[0][:80]!r} is no hash")
        minutes = int(max(unused_for, MIN_UNUSED) // 60)
        step = f"caches {minutes} {quote(' '.join(keep))} {int(remove)}"
        step = f"if is_intended_host {quote(boot_id)} {quote(incarnation)}; then {step}; fi"
        call = [self._calls.open_line(target), "unused=", step, "begin_frame", "print_unused", "end_frame"]
        read = partial(_cache_report, worker=target.worker)
        return self._calls.ask(target, "caches", call, read, room=1 << 20, seconds=_CACHES_TIME)


def _cache_report(frame: Frame, worker: WorkerId) -> CacheReport:
    _, _, records = parse_records(frame, 0)
    matches = [_CACHE_SIZE.fullmatch(record.line) for record in records]
    sizes: dict[str, int] = {}
    for match in matches:
        if match is None:
            raise malformed_answer("the answer has a line that is about no cache")
        sizes[match[1]] = sizes.get(match[1], 0) + (int(match[2]) << 10)
    return CacheReport(
        worker=worker,
        boot_id=frame.boot_id,
        incarnation=frame.incarnation,
        sizes=tuple(sizes.items()),
    )


# Pieces of logs


MAX_LOG_PIECE = 512 << 10
"""Maximum number of bytes of a log that one call fetches."""
PIECE_ROOM = 2 << 10
"""Bytes of an answer for each piece of a log besides its data."""
_GZIP_OVERHEAD = 1 << 10  # bytes by which compression may enlarge a piece
_STREAMS = frozenset({"out", "err"})
_LOG = re.compile(rf"L ({NUMBER}) ({NUMBER}) ({NUMBER})(?: @({NUMBER}))?( gzip)?")


class LogChunk(Struct, frozen=True, kw_only=True):
    """A piece of the output file `out` or `err`, from `offset` on.

    `size` is the size of the file. `inode` is 0 if there is no file. `idle` is the time in seconds since the file was
    last written; None if not requested or unknown.
    """

    data: bytes
    offset: int
    size: int
    inode: int
    idle: float | None = None


class LogPiece(Struct, frozen=True, kw_only=True):
    """A request for at most `limit` bytes of an attempt's output `stream` (`out` or `err`) from `offset` on.

    A negative offset counts from the end. `dated`: also request the time since the last write (`LogChunk.idle`).
    """

    token: Token
    stream: str
    offset: int
    limit: int
    dated: bool = False


def piece_line(piece: LogPiece) -> str:
    """Return the line of a script that requests a piece. Raises ValueError."""
    if piece.stream not in _STREAMS:
        raise ValueError(f"{piece.stream[:20]!r} is neither out nor err")
    dated = " dated" if piece.dated else ""
    return f"logs {parse_token(piece.token)} {piece.stream} {int(piece.offset)} {piece.limit}{dated}"


def log_chunks(frame: Frame, pieces: Sequence[LogPiece]) -> tuple[LogChunk, ...]:
    """Parse the answer to `logs`, which must contain exactly these pieces. Raises NoAnswer."""
    longest = max((piece.limit for piece in pieces), default=0)
    clock, _, records = parse_records(frame, longest + _GZIP_OVERHEAD)
    if len(records) != len(pieces):
        raise malformed_answer("the answer is about other pieces")
    return tuple(_log_chunk(record, piece, clock) for record, piece in zip(records, pieces, strict=True))


def _log_chunk(record: Record, piece: LogPiece, clock: float) -> LogChunk:
    match = _LOG.fullmatch(record.line)
    if match is None:
        raise malformed_answer("the answer is not a piece of a log")
    offset, size, inode = (int(number) for number in match.groups()[:3])
    data = _unpacked(record.data, piece.limit) if match[5] else record.data
    idle = max(0.0, clock - int(match[4])) if match[4] else None
    expected = min(piece.offset, size) if piece.offset >= 0 else max(0, size + piece.offset)
    if len(data) > piece.limit or offset != expected:
        raise malformed_answer("the answer is another piece of the log")
    return LogChunk(data=data, offset=offset, size=size, inode=inode, idle=idle)


def _unpacked(packed: bytes, limit: int) -> bytes:
    """Decompress a gzip stream. Data longer than `limit` is cut to `limit` + 1 bytes. Raises NoAnswer."""
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        data = unpacking.decompress(packed, limit + 1)
    except zlib.error as error:
        raise malformed_answer("the answer's data is malformed") from error
    if len(data) <= limit and (not unpacking.eof or unpacking.unused_data):
        raise malformed_answer("the answer's data is truncated or too long")
    return data
