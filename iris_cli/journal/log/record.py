"""One line of the log: a transaction, committed as a whole or not at all.

    {"seq":2,"prev":"5f1c0a9e","at":"2026-11-20T14:03:09.120Z","actor":"me@laptop iris launch",
     "events":[...],"crc":"9a27e113"}

`crc` is the CRC-32 of the raw bytes before `,"crc":"`; `prev` is the `crc` of the previous line. The first line of a
file also has `format`, `cluster_id` and `program`. A later line has `program` if another version wrote the line before.
"""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from json.encoder import encode_basestring_ascii as quote
from typing import Any, get_args

import msgspec

from iris_cli.clock import iso_time
from iris_cli.core.events.events import AnyEvent, ClusterCreated, Event, LogCompacted, Transaction
from iris_cli.core.structs import from_json_value
from iris_cli.core.text import pattern
from iris_cli.decoding import prepare_type
from iris_cli.journal.codec import BadEventError, decode, decode_record, encode, loads
from iris_cli.journal.log.position import PROGRAM, Header, Position, is_intact, seal
from iris_cli.randomness import SYSTEM_RANDOMNESS

Line = dict[str, Any]

UPGRADES: dict[int, Callable[[Line], Line]] = {}
"""Upgrade functions by format number. Each function converts a line (JSON with undecoded events) to the next format. It
must not change `seq`, `prev`, `crc`, `format` and `cluster_id`. It raises ValueError, KeyError or TypeError for a line
that is not in its format."""
FORMAT = 1
_CRC = pattern(r"[0-9a-f]{8}")
_CLUSTER_ID = pattern(r"[0-9a-f]{32}")
_LENGTH = len("2026-11-20T14:03:09.120Z")


def upgrade(line: Line, number: int, current: int) -> Line:
    """Upgrade a line from format `number` to format `current`. Raises ValueError for an unknown format."""
    for each in range(number, current):
        if each not in UPGRADES:
            raise ValueError(f"the log has format {number}, unknown to this version")
        line = UPGRADES[each](line)
    return line


class BadLineError(ValueError):
    """The line is not a valid record. `intact`: its checksum is correct, so iris wrote the line as it is."""

    def __init__(self, what: str, *, intact: bool) -> None:
        super().__init__(what)
        self.intact = intact


class NewerLogError(Exception):
    """The line is valid, but needs a newer iris. `program` is the version that wrote it; "" if unknown."""

    def __init__(self, what: str, program: str) -> None:
        super().__init__(what)
        self.what = what
        self.program = program


class LogRecord(Transaction, frozen=True, kw_only=True):
    """A transaction and its checksums. `program` is "" if the same program wrote the previous line."""

    prev: str
    crc: str
    program: str = ""
    header: Header | None = None


def encode_line(after: Position, events: Sequence[Event], *, at: float, actor: str) -> bytes:
    """Encode `events` as a complete line with its newline. `after` is the position at the end of the previous line.

    Raises BadEventError for events that would decode to other values.
    """
    head = f'{{"seq":{after.seq + 1},"prev":"{after.crc}","at":"{iso_time(at)}","actor":{quote(actor)}'
    has_header = after.seq == 0 or isinstance(events[0], LogCompacted)
    if has_header:
        cluster_id = SYSTEM_RANDOMNESS.hexadecimal(16) if after.header is None else after.header.cluster_id
        head += f',"format":{FORMAT},"cluster_id":{quote(cluster_id)}'
    if has_header or after.program != PROGRAM:
        head += f',"program":{quote(PROGRAM)}'
    return seal(b'%s,"events":%s' % (head.encode("ascii"), encode_events(events)))


def end_of_line(after: Position, line: bytes, at: float) -> Position:
    """Return the position after a line from `encode_line`."""
    return Position(
        line=after.line + 1,
        offset=after.offset + len(line),
        seq=after.seq + 1,
        crc=line[-11:-3].decode("ascii"),
        at=at,
        earliest=at if after.earliest is None else min(at, after.earliest),
        program=PROGRAM,
        header=after.header if after.line else decode_line(line[:-1]).header,
    )


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decoded line. Only a first line has `format` and `cluster_id`."""

    seq: int
    prev: str
    at: str
    actor: str
    program: str = ""
    format: int | None = None
    cluster_id: str = ""
    events: tuple[AnyEvent, ...]
    crc: str


_LINES = msgspec.json.Decoder(prepare_type(_Line), dec_hook=from_json_value)


def decode_line(line: bytes, number: int = FORMAT, *, strict: bool = False) -> LogRecord:
    """Decode a line without its newline. `number` is the format of the file. A first line names its own format instead.

    `strict` also rejects duplicate keys. Raises BadLineError and NewerLogError.
    """
    if not is_intact(line):
        raise BadLineError("the checksum is wrong", intact=False)
    try:
        if not line.isascii():
            raise ValueError("a character is not ASCII")
        if strict:
            loads(line)
        if number == FORMAT:
            try:
                decoded = _LINES.decode(line)
                if decoded.events and decoded.format in (None, FORMAT):
                    return _record(decoded)
            except (msgspec.MsgspecError, RecursionError):
                pass  # the line has an ignorable event or an error, so decode it event by event
        return _record(_decode_by_event(loads(line), number))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise BadLineError(what, intact=True) from error


def _decode_by_event(entry: dict[str, Any], number: int) -> _Line:
    """Decode a line event by event, because events may be ignorable, unknown, or in an older format."""
    if type(entry) is not dict:
        raise TypeError("a line is an object")
    program = entry.get("program", "")
    if "format" in entry:
        number = entry["format"]
        if type(number) is not int or type(entry["program"]) is not str:
            raise ValueError("the header is malformed")
        if number > FORMAT:
            raise NewerLogError(f"the log has format {number}", program)
    entry = upgrade(entry, number, FORMAT)
    if type(entry["events"]) is not list or not entry["events"]:
        raise ValueError("there are no events")
    try:
        events = [event for each in entry["events"] if (event := decode_event(each)) is not None]
    except UnknownTypeError as error:
        raise NewerLogError(f"the event type {error.name!r:.80} is unknown", program) from error
    try:
        return msgspec.convert({**entry, "events": events}, prepare_type(_Line), dec_hook=from_json_value)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


def _record(line: _Line) -> LogRecord:
    """Convert a decoded line to a record. Raises ValueError."""
    if not _CRC.fullmatch(line.prev):
        raise ValueError("prev is not a checksum")
    return LogRecord(
        seq=line.seq,
        at=parse_time(line.at),
        actor=line.actor,
        events=line.events,
        prev=line.prev,
        crc=line.crc,
        program=line.program,
        header=_header(line) if line.format is not None or line.cluster_id else None,
    )


def _header(line: _Line) -> Header:
    if line.format is None:
        raise ValueError("only a first line has a cluster_id")
    if not _CLUSTER_ID.fullmatch(line.cluster_id) or not line.program:
        raise ValueError("the header is malformed")
    first = line.events[0] if line.events else None
    if isinstance(first, LogCompacted):
        if first.through != line.seq - 1:
            raise ValueError(f"seq {line.seq} does not follow the last archived line")
    elif not isinstance(first, ClusterCreated):
        raise ValueError("the first event is neither ClusterCreated nor LogCompacted")
    return Header(
        format=line.format, cluster_id=line.cluster_id, program=line.program, cluster_name=first.name
    )


def parse_time(text: str) -> float:
    """Parse a time written by `iso_time`. Raises ValueError for other text."""
    # fromisoformat accepts only digits between these separators.
    if len(text) != _LENGTH or text[4:20:3] != "--T::." or text[-1] != "Z":
        raise ValueError(f"{text!r:.80} is not a time")
    return datetime.fromisoformat(text).timestamp()


# Events as JSON: `{"type": "TaskAssigned", "task": "train/task-0", "attempt": 0, ...}`.


class UnknownTypeError(Exception):
    """An event type, `name`, that only a newer program knows."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


EVENT_TYPES: dict[str, type[Event]] = {cls.__name__: cls for cls in get_args(AnyEvent)}
"""Event types by their names in the log."""


def encode_events(events: Sequence[Event]) -> bytes:
    """Encode events as a JSON array in ASCII. Raises BadEventError for events that would decode to other values.

    Decodes the result as a check, because msgspec does not reject NaN, or text in place of a number.
    """
    text = encode(events)
    if decode(tuple[AnyEvent, ...], text) != tuple(events):
        raise BadEventError(f"{text[:400].decode('ascii')} would be read with other values")
    return text


def encode_event(event: Event) -> dict[str, Any]:
    """Encode an event as a JSON object. Raises BadEventError as `encode_events`."""
    entry: dict[str, Any] = json.loads(encode_events([event]))[0]
    return entry


def decode_event(entry: Any) -> Event | None:
    """Decode an event; None for an unknown event that may be ignored. Raises BadEventError, UnknownTypeError."""
    if type(entry) is not dict or type(name := entry.get("type")) is not str:
        raise BadEventError("an event is an object with a type")
    ignorable = "ignorable" in entry
    if ignorable and entry["ignorable"] is not True:
        raise BadEventError(f"{name}: ignorable is true or absent")
    if name in EVENT_TYPES:
        return decode_record(EVENT_TYPES[name], {key: entry[key] for key in entry if key != "ignorable"})
    if ignorable:
        return None
    raise UnknownTypeError(name)


class Conflict(msgspec.Struct, frozen=True):
    """Result of an append that wrote nothing, because the log ends at `seq`. The caller must decide again."""

    seq: int


def check_events(expected_seq: int, events: Sequence[Event]) -> None:
    """Check the rules for a transaction, the same for every store. Raises ValueError."""
    if not events:
        raise ValueError("a transaction has at least one event")
    if (expected_seq == 0) != isinstance(events[0], ClusterCreated):
        raise ValueError("a log begins with ClusterCreated, and only there")
    if LogCompacted in map(type, events):
        raise ValueError("LogCompacted belongs to the line that a compaction writes")
