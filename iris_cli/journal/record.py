"""One line of the log: a transaction, committed whole or not at all.

    {"seq":2,"prev":"5f1c0a9e","at":"2026-11-20T14:03:09.120Z","actor":"me@laptop iris launch",
     "events":[...],"crc":"9a27e113"}

`crc` is the CRC-32 of the raw bytes before `,"crc":"`, so that nothing is serialised again to check it, and
`prev` is the `crc` of the line before. The first line of a file also carries `format`, `cluster_id` and `program`;
a later one carries `program` where another program goes on writing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from iris_cli.core.dataclass import dataclass, replace
from iris_cli.core.events import ClusterCreated, Event, LogCompacted, Transaction
from iris_cli.core.making import maker
from iris_cli.core.patterns import pattern
from iris_cli.core.unique_keys import unique_keys
from iris_cli.journal.codec import UnknownTypeError, decode_event, events_text
from iris_cli.journal.position import PROGRAM, TAIL, Header, Position, is_intact, sealed
from iris_cli.journal.timestamps import iso_time
from iris_cli.journal.upgrades import upgraded
from iris_cli.randomness import SYSTEM_RANDOMNESS

FORMAT = 1
_CRC = pattern(r"[0-9a-f]{8}")
_CLUSTER_ID = pattern(r"[0-9a-f]{32}")


class BadLineError(ValueError):
    """The line is not a record. `intact`: its checksum is right, so that it was written like this."""

    def __init__(self, what: str, *, intact: bool) -> None:
        super().__init__(what)
        self.intact = intact


class NewerLogError(Exception):
    """The line is good, but only a newer program can read it. `program` wrote it, or is empty if unknown."""

    def __init__(self, what: str, program: str) -> None:
        super().__init__(what)
        self.what = what
        self.program = program


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Transaction):
    """A transaction as it stands in the log. `program` is empty where the one before goes on writing."""

    prev: str
    crc: str
    program: str = ""
    header: Header | None = None


def encode_line(after: Position, events: Sequence[Event], *, at: float, actor: str) -> bytes:
    """The whole line, with its newline, that carries `events` and comes next after `after`.

    Raises BadEventError for events that could not be read back.
    """
    head = f'{{"seq":{after.seq + 1},"prev":"{after.crc}","at":"{iso_time(at)}","actor":{quote(actor)}'
    heads = after.seq == 0 or isinstance(events[0], LogCompacted)
    if heads:
        cluster_id = SYSTEM_RANDOMNESS.hexadecimal(16) if after.header is None else after.header.cluster_id
        head += f',"format":{FORMAT},"cluster_id":{quote(cluster_id)}'
    if heads or after.program != PROGRAM:
        head += f',"program":{quote(PROGRAM)}'
    text = f'{head},"events":{events_text(events)}'
    body = text.encode("ascii")
    return sealed(body)


def end_of_line(after: Position, line: bytes, at: float) -> Position:
    """The position behind a line that `encode_line` made."""
    return Position(
        line=after.line + 1,
        offset=after.offset + len(line),
        seq=after.seq + 1,
        crc=line[-11:-3].decode("ascii"),
        at=at,
        program=PROGRAM,
        header=after.header if after.line else decode_line(line[:-1]).header,
    )


def decode_line(line: bytes, number: int = FORMAT) -> Record:
    """The record in a line without its newline, of a file with format `number`; a first line has its own.

    Raises BadLineError and NewerLogError.
    """
    if not is_intact(line):
        raise BadLineError("the checksum is wrong", intact=False)
    try:
        text = line.decode("ascii")
        if number == FORMAT and (usual := _USUAL_HEAD.match(text)):
            events, end = _SCAN(text, usual.end())
            if end == len(text) - TAIL:
                seq, prev, at, actor = usual.groups()
                return _made(int(seq), prev, at, actor, events, text[-10:-2])
        entry, end = _SCAN(text, 0)
        if end != len(text):
            raise ValueError("there is more than one object")
        if "format" in entry:
            return _first_record(entry)
        return _record(entry if number == FORMAT else upgraded(entry, number, FORMAT))
    except (ValueError, KeyError, TypeError, RecursionError, StopIteration) as error:
        what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise BadLineError(what, intact=True) from error


def _first_record(entry: dict[str, Any]) -> Record:
    number, program = entry["format"], entry["program"]
    if type(number) is not int or type(program) is not str:
        raise ValueError("the header is malformed")
    if number > FORMAT:
        raise NewerLogError(f"the log has format {number}", program)
    entry = upgraded(entry, number, FORMAT)
    cluster_id = entry.pop("cluster_id")
    if entry.pop("format") != number or not _CLUSTER_ID.fullmatch(cluster_id):
        raise ValueError("the header is malformed")
    record = _record(entry)
    first = record.events[0] if record.events else None
    if isinstance(first, LogCompacted):
        if first.through != record.seq - 1:
            raise ValueError(f"seq {record.seq} does not follow what went to the archive")
    elif not isinstance(first, ClusterCreated):
        raise ValueError("the first event is neither ClusterCreated nor LogCompacted")
    header = Header(format=number, cluster_id=cluster_id, program=program, cluster_name=first.name)
    return replace(record, header=header)


_PLAIN = r'"([^"\\\0-\x1f]*)"'
_USUAL_HEAD = pattern(
    rf'\{{"seq":(0|[1-9][0-9]*),"prev":"([0-9a-f]{{8}})","at":{_PLAIN},"actor":{_PLAIN},"events":(?=\[)'
)
"""How nearly every line begins. Of these nothing but the events is left to the parser; of all others everything is."""
_USUAL = ("seq", "prev", "at", "actor", "events", "crc")
_OWN = (*_USUAL, "program")


def _record(entry: dict[str, Any]) -> Record:
    program = ""
    if tuple(entry) != _USUAL:
        program = entry.pop("program", "")
        entry = {name: entry.pop(name) for name in _USUAL} | entry
        if len(entry) > len(_USUAL):
            raise ValueError(f"unknown field {min(entry.keys() - set(_USUAL))!r:.80}")
    seq, prev, at, actor, events, crc = entry.values()
    if type(seq) is not int or type(actor) is not str or type(program) is not str or type(events) is not list:
        raise TypeError("a field has the wrong type")
    if not _CRC.fullmatch(prev):
        raise ValueError("prev is not a checksum")
    return _made(seq, prev, at, actor, events, crc, program)


def _made(seq: int, prev: str, at: Any, actor: str, events: list[Any], crc: str, program: str = "") -> Record:
    if not events:
        raise ValueError("there are no events")
    try:
        known = tuple([event for each in events if (event := decode_event(each)) is not None])
    except UnknownTypeError as error:
        raise NewerLogError(f"the event type {error.name!r:.80} is unknown", program) from error
    made: Record = _maker()(seq, prev, parse_time(at), actor, known, crc, program)
    return made


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LENGTH = len("2026-11-20T14:03:09.120Z")


def parse_time(text: str) -> float:
    """What `iso_time` wrote. Raises ValueError for anything else."""
    # Between the signs there are but digits, or fromisoformat refuses it.
    if len(text) != _LENGTH or text[4:20:3] != "--T::." or text[-1] != "Z":
        raise ValueError(f"{text!r:.80} is not a time")
    return (datetime.fromisoformat(text) - _EPOCH).total_seconds()


@cache
def _maker() -> Callable[..., Any]:
    return maker(Record, _OWN, {}, {})


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


_SCAN: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(
    object_pairs_hook=unique_keys(lambda: ValueError("a field stands there twice")), parse_constant=_refuse
).scan_once  # type: ignore[attr-defined]  # not told of, and there in every version: `decode` without the blanks around
