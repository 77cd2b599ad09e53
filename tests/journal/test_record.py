"""One line of the log: its bytes, and what is refused."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import ValidationError

from iris_cli.clock import file_stamp, iso_time
from iris_cli.core.events.events import ClusterCreated, WorkerDrained
from iris_cli.core.ids import WorkerId
from iris_cli.journal.log import record
from iris_cli.journal.log.position import PROGRAM, START, Position, is_intact
from iris_cli.journal.log.record import (
    BadLineError,
    NewerLogError,
    decode_line,
    encode_line,
    end_of_line,
    parse_time,
)

AT = 1_795_183_389.12
ACTOR = "me@laptop iris drain"
DRAIN = WorkerDrained(worker=WorkerId("v4a-0"), reason="ü")
AFTER = Position(line=40, offset=9000, seq=40, crc="5f1c0a9e", program=PROGRAM)
LINE = (
    b'{"seq":41,"prev":"5f1c0a9e","at":"2026-11-20T14:03:09.120Z","actor":"me@laptop iris drain",'
    b'"events":[{"type":"WorkerDrained","worker":"v4a-0","reason":"\\u00fc"}],"crc":"%s"}\n'
)
CRC = b"%08x" % crc32(LINE[: LINE.index(b',"crc":"')])


def seal(body: str) -> bytes:
    """The line, without its newline, of a JSON object whose last brace is cut off; its checksum is right."""
    raw = body.encode("utf-8")
    return b'%s,"crc":"%08x"}' % (raw, crc32(raw))


def line_of(**changes: Any) -> bytes:
    entry = {
        "seq": 41,
        "prev": "5f1c0a9e",
        "at": "2026-11-20T14:03:09.120Z",
        "actor": ACTOR,
        "events": [{"type": "WorkerDrained", "worker": "v4a-0"}],
    }
    entry |= changes
    return seal(json.dumps({name: value for name, value in entry.items() if value is not ...})[:-1])


def test_a_line_is_these_bytes() -> None:
    assert encode_line(AFTER, [DRAIN], at=AT, actor=ACTOR) == LINE % CRC


def test_a_line_says_everything_again_when_read() -> None:
    record = decode_line((LINE % CRC)[:-1])
    assert (record.seq, record.prev, record.at, record.actor) == (41, "5f1c0a9e", AT, ACTOR)
    assert record.events == (DRAIN,)
    assert record.crc == CRC.decode()
    assert (record.program, record.header) == ("", None)


def test_the_first_line_names_format_cluster_and_program() -> None:
    line = encode_line(START, [ClusterCreated(name="lab")], at=AT, actor=ACTOR)
    entry = json.loads(line)
    assert (entry["seq"], entry["prev"], entry["format"], entry["program"]) == (1, "00000000", 1, PROGRAM)
    header = decode_line(line[:-1]).header
    assert header is not None
    assert (header.cluster_name, header.cluster_id, header.format) == ("lab", entry["cluster_id"], 1)
    again = encode_line(START, [ClusterCreated(name="lab")], at=AT, actor=ACTOR)
    assert json.loads(again)["cluster_id"] != entry["cluster_id"]


def test_another_program_that_goes_on_writing_names_itself_once() -> None:
    older = Position(line=40, offset=9000, seq=40, crc="5f1c0a9e", program="iris 0.0.9")
    line = encode_line(older, [DRAIN], at=AT, actor=ACTOR)
    assert decode_line(line[:-1]).program == PROGRAM
    behind = end_of_line(older, line, AT)
    assert decode_line(encode_line(behind, [DRAIN], at=AT, actor=ACTOR)[:-1]).program == ""


def test_one_flipped_bit_in_any_byte_is_seen() -> None:
    sound = (LINE % CRC)[:-1]
    for place in range(len(sound)):
        line = bytearray(sound)
        line[place] ^= 1
        assert not is_intact(bytes(line)), place
        with pytest.raises(BadLineError):
            decode_line(bytes(line))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\0" * 400,
        b"{}",
        b'","crc":"00000000"}',
        seal("[1"),
        seal("{"),
        seal('{"seq":41'),
        line_of(seq="41"),
        line_of(seq=True),
        line_of(seq=41.0),
        line_of(prev=None),
        line_of(prev="5F1C0A9E"),
        line_of(at=AT),
        line_of(at="2026-11-20"),
        line_of(at="2026-11-20T14:03:09.120+00:00"),
        line_of(at="2026-13-20T14:03:09.120Z"),
        line_of(actor=None),
        line_of(events=[]),
        line_of(events={}),
        line_of(events=["ClusterCreated"]),
        line_of(events=[{"type": "WorkerDrained", "worker": "v4a-0", "reason": float("nan")}]),
        line_of(at=...),
        line_of(events=...),
        line_of(colour="red"),
        line_of(program=3),
        line_of(format=1, program=PROGRAM),
        line_of(format=1, cluster_id="me", program=PROGRAM),
        line_of(format=1, cluster_id="0" * 32, program=PROGRAM),
        line_of(
            format="1", cluster_id="0" * 32, program=PROGRAM, events=[{"type": "ClusterCreated", "name": "x"}]
        ),
        line_of(format=1, cluster_id="0" * 32, events=[{"type": "ClusterCreated", "name": "x"}]),
    ],
)
def test_an_invalid_record_is_rejected_despite_a_valid_checksum(line: bytes) -> None:
    with pytest.raises(BadLineError):
        decode_line(line)


HEAD = '{"seq":41,"prev":"5f1c0a9e","at":"2026-11-20T14:03:09.120Z","actor":"me"'


@pytest.mark.parametrize(
    "rest",
    [
        ',"events":[{"type":"TaskRunning","task":"a/task-0","attempt":0,"started_at":NaN}]',
        ',"events":[{"type":"TaskRunning","task":"a/task-0","attempt":0,"started_at":-Infinity}]',
        ',"events":[{"type":"MoonPhaseChanged","ignorable":true,"phase":NaN}]',
        ',"events":[{"type":"TaskRunning","task":"a/task-0","attempt":0,"started_at":1e999}]',
        ',"events":[{"type":"TaskRunning","task":"a/task-0","attempt":' + "9" * 5000 + ',"started_at":1}]',
        ',"events":[{"type":"WorkerDrained","worker":"a","reason":"ü"}]',
        ',"events":[{"type":"WorkerDrained","worker":"a","reason":"\t"}]',
        ',"events":' + "[" * 100_000,
        ',"events":[{"type":"WorkerDrained","worker":"a"}]} {"seq":42',
    ],
)
def test_odd_json_is_refused(rest: str) -> None:
    with pytest.raises(BadLineError):
        decode_line(seal(HEAD + rest))


@pytest.mark.parametrize(
    "rest",
    [
        ',"events":[{"type":"WorkerDrained","worker":"a","worker":"b"}]',
        ',"events":[{"type":"WorkerDrained","type":"WorkerDrained","worker":"a"}]',
        ',"actor":"you","events":[{"type":"WorkerDrained","worker":"a"}]',
    ],
)
def test_a_key_that_stands_twice_is_found_by_whoever_verifies_the_log(rest: str) -> None:
    """The checksum vouches for the bytes meanwhile, and no writer of ours repeats a key."""
    line = seal(HEAD + rest)
    assert decode_line(line).seq == 41
    with pytest.raises(BadLineError, match="twice"):
        decode_line(line, strict=True)


def test_the_plain_line_that_the_odd_ones_are_made_from_is_read() -> None:
    line = seal(HEAD + ',"events":[{"type":"WorkerDrained","worker":"a","reason":"\\u00fc"}]')
    assert decode_line(line).events == (WorkerDrained(worker=WorkerId("a"), reason="ü"),)


def outcome(line: bytes) -> object:
    try:
        return decode_line(line)
    except (BadLineError, NewerLogError) as error:
        return type(error)


def test_a_line_in_its_usual_form_is_read_as_all_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands in the place of any character, or between two: the library reads what the standard one does."""
    whole = HEAD + ',"events":[{"type":"WorkerDrained","worker":"a"},{"type":"WorkerDrained","worker":"b"}]'
    lines = [
        seal(whole[:place] + other + whole[place + length :])
        for place in range(len(whole) + 1)
        for other in ("", "0", "-1", "f", " ", '"', "\\", "\0", ",", ":", "[", "]", "{", "}", "}]", '\\"')
        for length in (0, 1)
    ]
    found = [outcome(line) for line in lines]

    class Refusing:
        def decode(self, line: bytes) -> Any:
            raise ValidationError

    monkeypatch.setattr(record, "_LINES", Refusing())  # so that each is taken apart by the standard library
    assert found == [outcome(line) for line in lines]
    assert len({each for each in found if isinstance(each, record.LogRecord)}) > 30


def test_a_newer_format_is_refused_naming_who_wrote_it() -> None:
    line = line_of(format=2, cluster_id="0" * 32, program="iris 7.1.0", events=[{"type": "Anything"}])
    with pytest.raises(NewerLogError, match="format 2") as caught:
        decode_line(line)
    assert caught.value.program == "iris 7.1.0"


def test_an_event_type_of_a_newer_program_is_refused_unless_it_may_be_ignored() -> None:
    strange = {"type": "MoonPhaseChanged", "phase": [1, {"a": None}]}
    with pytest.raises(NewerLogError, match="MoonPhaseChanged"):
        decode_line(line_of(events=[strange]))
    drained = {"type": "WorkerDrained", "worker": "v4a-0"}
    record = decode_line(line_of(events=[strange | {"ignorable": True}, drained]))
    assert record.events == (WorkerDrained(worker=WorkerId("v4a-0")),)


@given(st.integers(0, 253_402_300_799_999))
def test_a_time_comes_back_to_the_millisecond(milliseconds: int) -> None:
    at = round(milliseconds / 1000, 3)
    assert parse_time(iso_time(at)) == at


def test_times_as_they_are_written() -> None:
    assert iso_time(0.0) == "1970-01-01T00:00:00.000Z"
    assert iso_time(AT) == "2026-11-20T14:03:09.120Z"
    assert iso_time(AT + 0.0004) == "2026-11-20T14:03:09.120Z"
    assert file_stamp(AT) == "20261120T140309.120Z"


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20 14:03:09.120Z",
        "2026-11-20x14:03:09.120Z",
        "2026-W47-5T14:03:09.120Z",
        "2026-11-20T14:03:09,120Z",
        "2026-11-20T14:03:09.12Z",
        "2026-11-20T14:03:09.120z",
        "2026-11-20T14:03:09.120+",
        "2026-11-31T14:03:09.120Z",
    ],
)
def test_another_way_to_write_a_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a time|out of range|month"):
        parse_time(text)
    with pytest.raises(BadLineError):
        decode_line(line_of(at=text))
