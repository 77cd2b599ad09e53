"""Only a complete, well-formed frame with the right nonce is an answer; a damaged one is rejected."""

from __future__ import annotations

import base64
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages.observations import AttemptReport, RemoteState, SilenceKind
from iris_cli.remote.answers import probe_report, worker_report
from iris_cli.remote.frames import Frame, parse_frame
from iris_cli.remote.output_calls import LogPiece, log_chunks
from iris_cli.remote.transport import NoAnswer

NONCE = "0123456789abcdef0123456789abcdef"
INCARNATION = "f" * 32
WORKER = WorkerId("w0")
ONE, TWO = Token("1" * 32), Token("2" * 32)
TAIL = b"line one\nline \xff two\n" * 20


def data_lines(data: bytes) -> list[str]:
    encoded = base64.encodebytes(data).decode()
    return [f"T {line}" for line in encoded.splitlines()]


LINES = [
    "H 1795245824 415936",
    f"A {ONE} EXITED 3 timeout 6000 52 360 -",
    *data_lines(TAIL),
    f"A {TWO} RUNNING - - 100 - 0 700",
]


def framed(lines: list[str], *, count: int | None = None, nonce: str = NONCE) -> bytes:
    body = "".join(f"{line}\n" for line in lines)
    end = len(lines) if count is None else count
    return f"IRIS1 {nonce} BEGIN boot-1 {INCARNATION}\n{body}IRIS1 {nonce} END {end}\n".encode()


FRAME = framed(LINES)


def read(output: bytes) -> tuple[AttemptReport, ...]:
    return worker_report(parse_frame(output, NONCE), WORKER, [ONE, TWO]).attempts


def is_no_answer(output: bytes) -> bool:
    try:
        read(output)
    except NoAnswer as error:
        return error.kind is SilenceKind.PROTOCOL
    return False


def without_tails(output: bytes) -> list[AttemptReport]:
    return [replace(report, log_tail="") for report in read(output)]


def test_a_whole_frame_is_read() -> None:
    assert read(FRAME) == (
        AttemptReport(
            token=ONE,
            state=RemoteState.EXITED,
            exit_code=3,
            cause="timeout",
            started_ago=60.0,
            ended_ago=0.52,
            output_bytes=360,
            log_tail=TAIL.decode("utf-8", "replace"),
        ),
        AttemptReport(token=TWO, state=RemoteState.RUNNING, started_ago=1.0, last_output_ago=1.0),
    )


def test_output_of_login_shells_around_the_frame_is_ignored() -> None:
    noise = b"Welcome!\n\x1b[31mIRIS1 " + b"e" * 32 + b" BEGIN x y\nIRIS1 END 4\n" + b"#" * 2000 + b"\n"
    assert read(noise + FRAME + noise) == read(FRAME)


def test_a_frame_cut_at_any_byte_is_not_an_answer() -> None:
    assert all(is_no_answer(FRAME[:cut]) for cut in range(len(FRAME)))


def test_a_frame_without_its_beginning_is_not_an_answer() -> None:
    assert all(is_no_answer(FRAME[cut:]) for cut in range(1, len(FRAME)))


@given(st.data())
def test_a_frame_with_lost_doubled_or_moved_lines_is_not_an_answer_or_means_the_same(
    data: st.DataObject,
) -> None:
    lines = FRAME.splitlines(keepends=True)
    first, second = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    kind = data.draw(st.sampled_from(["lose", "double", "swap"]))
    if kind == "lose":
        del lines[first]
    elif kind == "double":
        lines.insert(second, lines[first])
    else:
        lines[first], lines[second] = lines[second], lines[first]
    output = b"".join(lines)
    if not is_no_answer(output):  # the order of attempts and of lines of output is not protected
        assert set(without_tails(output)) == set(without_tails(FRAME))


@given(st.binary(min_size=1, max_size=60), st.integers(0, len(FRAME)))
def test_bytes_put_in_anywhere_never_add_an_attempt_or_change_whose_it_is(junk: bytes, at: int) -> None:
    output = FRAME[:at] + junk + FRAME[at:]
    if not is_no_answer(output):
        assert [report.token for report in read(output)] == [ONE, TWO]
        assert all(len(report.log_tail) <= 8 << 10 for report in read(output))


@given(st.binary(max_size=600))
def test_garbage_is_not_an_answer(output: bytes) -> None:
    assert is_no_answer(output)


@given(
    st.lists(
        st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=100), max_size=8
    )
)
def test_lines_off_the_grammar_are_no_answer_despite_a_right_count(lines: list[str]) -> None:
    assert is_no_answer(framed(lines))
    assert is_no_answer(framed([*LINES, *lines])) or not lines


@pytest.mark.parametrize(
    "output",
    [
        FRAME.replace(NONCE.encode(), b"0" * 32),
        FRAME.replace(b"BEGIN boot-1", b"BEGIN boot 1"),
        FRAME.replace(b"boot-1", b"b" * 65),
        FRAME.replace(INCARNATION.encode(), b"F" * 32),
        FRAME.replace(INCARNATION.encode(), b"f" * 31),
        FRAME.replace(b"IRIS1", b"IRIS2"),
        FRAME.replace(b"\n", b"\r\n"),
        FRAME + FRAME,
        framed(LINES, count=len(LINES) + 1),
        framed(LINES, count=len(LINES) - 1),
        framed(LINES).replace(b" END ", b" END 0"),
        framed([]),
        framed(LINES[1:]),
        framed([*LINES, ""]),
        framed([*LINES, "x" * 513]),
        framed([*LINES, LINES[-1]]),
        framed(LINES[:-1]),
        framed([*LINES[:-1], LINES[-1].replace(TWO, "3" * 32)]),
        framed([LINES[0], *data_lines(b"x"), *LINES[1:]]),
        framed([*LINES, *data_lines(b"x" * 9000)]),
        framed([*LINES, "T ===="]),
        framed([*LINES, "T YQ"]),
        framed([*LINES, f"IRIS1 {NONCE} BEGIN boot-1 {INCARNATION}"]),
    ],
)
def test_an_almost_correct_frame_is_not_an_answer(output: bytes) -> None:
    assert is_no_answer(output)


@pytest.mark.parametrize(
    "words",
    [
        "EXITED - - - - 0",
        "EXITED 256 - - - 0",
        "EXITED 03 - - - 0",
        "EXITED 1 setup - - 0",
        "RUNNING 0 - - - 0",
        "RUNNING - timeout - - 0",
        "NOSTART - - - - 0",
        "NOSTART - mood - - 0",
        "NOSTART 256 setup - - 0",
        "SUCCEEDED 0 - - - 0",
        "running - - - - 0",
        "RUNNING - - -1 - 0",
        "RUNNING - - 1.5 - 0",
        "RUNNING - - 1e3 - 0",
        "RUNNING - - 9999999999999999 - 0",
        "RUNNING - - - - -",
        "RUNNING - - - - 0 0",
        "RUNNING  - - - - 0",
        "RUNNING - - - - 0 -1",
    ],
)
def test_a_contradictory_line_is_not_an_answer(words: str) -> None:
    assert is_no_answer(framed([*LINES[:-1], f"A {TWO} {words} -"]))


def test_a_different_host_reports_no_attempts() -> None:
    other = Frame("boot-2", INCARNATION, "H 1 2")
    report = worker_report(other, WORKER, [ONE], ("boot-1", INCARNATION))
    assert (report.boot_id, report.attempts) == ("boot-2", ())
    same = Frame("boot-1", INCARNATION, "H 1 2")
    with pytest.raises(NoAnswer):
        worker_report(same, WORKER, [ONE], ("boot-1", INCARNATION))
    talkative = Frame("boot-2", INCARNATION, f"H 1 2\nA {ONE} RUNNING - - - - 0 -")
    with pytest.raises(NoAnswer):
        worker_report(talkative, WORKER, [ONE], ("boot-1", INCARNATION))


def test_a_host_without_an_incarnation_reports_that() -> None:
    frame = parse_frame(f"IRIS1 {NONCE} BEGIN - -\nH 1 2\nIRIS1 {NONCE} END 1\n".encode(), NONCE)
    assert (frame.boot_id, frame.incarnation) == ("", "")


def pieces(*wanted: tuple[int, int]) -> list[LogPiece]:
    return [LogPiece(token=ONE, stream="out", offset=offset, limit=limit) for offset, limit in wanted]


def test_a_piece_of_a_log_has_at_most_the_requested_size() -> None:
    lines = ("H 1 2", "L 5 100 77", *data_lines(b"0123456789"))
    (chunk,) = log_chunks(Frame("b", INCARNATION, "\n".join(lines)), pieces((5, 10)))
    assert (chunk.data, chunk.offset, chunk.size, chunk.inode) == (b"0123456789", 5, 100, 77)
    for bad in [
        lines[:1],
        ("H 1 2", "L 5 100"),
        (*lines, "L 5 100 77"),
        ("H 1 2", "L -5 100 77"),
        ("H 1 2", "L 5 100 77 zip"),
    ]:
        with pytest.raises(NoAnswer):
            log_chunks(Frame("b", INCARNATION, "\n".join(bad)), pieces((5, 10)))
    for wanted in [(5, 9), (4, 10), (-5, 10), (500, 10)]:
        with pytest.raises(NoAnswer):
            log_chunks(Frame("b", INCARNATION, "\n".join(lines)), pieces(wanted))


@pytest.mark.parametrize(
    ("wanted", "begins", "size"), [(5, 5, 100), (500, 100, 100), (-30, 70, 100), (-300, 0, 100), (0, 0, 0)]
)
def test_a_piece_begins_where_the_size_of_the_file_lets_it(wanted: int, begins: int, size: int) -> None:
    frame = Frame("b", INCARNATION, f"H 1 2\nL {begins} {size} 7")
    assert log_chunks(frame, pieces((wanted, 10)))[0].offset == begins


def test_several_pieces_are_returned_in_the_requested_order() -> None:
    lines = ("H 1 2", "L 0 2 7", *data_lines(b"ab"), "L 0 0 0", "L 1 4 8", *data_lines(b"cde"))
    wanted = pieces((0, 10), (0, 10), (1, 3))
    found = log_chunks(Frame("b", INCARNATION, "\n".join(lines)), wanted)
    assert [(chunk.data, chunk.inode) for chunk in found] == [(b"ab", 7), (b"", 0), (b"cde", 8)]
    for fewer in (wanted[:2], wanted[1:], [*wanted, wanted[0]]):
        with pytest.raises(NoAnswer):
            log_chunks(Frame("b", INCARNATION, "\n".join(lines)), fewer)


def test_a_compressed_piece_must_be_complete() -> None:
    data = b"the same again and again\n" * 1000
    packed = gzip.compress(data)

    def read_piece(sent: bytes, limit: int = len(data)) -> bytes:
        lines = ("H 1 2", "L 0 90000 7 gzip", *data_lines(sent))
        return log_chunks(Frame("b", INCARNATION, "\n".join(lines)), pieces((0, limit)))[0].data

    assert read_piece(packed) == data
    assert read_piece(gzip.compress(b"")) == b""
    for bad in (packed[:-1], packed[:20], packed + b"x", packed + packed, data[:100], b""):
        with pytest.raises(NoAnswer):
            read_piece(bad)
    with pytest.raises(NoAnswer):
        read_piece(packed, len(data) - 1)
    bomb = gzip.compress(bytes(10 << 20))
    with pytest.raises(NoAnswer):
        read_piece(bomb, 200 << 10)


def test_metadata_keeps_the_servers_keys_and_omits_blank_values() -> None:
    said = {
        "accelerator-type": b"v5litepod-16",
        "agent-worker-number": b" ",
        "instance-id": b"v5e-a",
        "zone": b"projects/1/zones/us-west4-a",
        "preemptible": b"TRUE",
        "tpu-env": b"ACCELERATOR_TYPE: 'other'\nNODE_ID: 'v5e-a'\nWORKER_ID: ''\nZONE: 'us-east1-d'\n",
    }
    lines = ["H 1 2", "P cpus 8", "P chips 4", f"K {ONE}"]
    for key, text in said.items():
        lines += [f"V {key}", *data_lines(text)]
    lines += ["V warning", *data_lines(b"one\xff"), "V warning", *data_lines(b"two")]
    report = probe_report(Frame("b", INCARNATION, "\n".join(lines)), WORKER)
    assert dict(report.metadata) == {
        "accelerator-type": "v5litepod-16",
        "instance-id": "v5e-a",
        "tpu-name": "v5e-a",
        "zone": "us-west4-a",
        "preemptible": "true",
    }
    assert (report.cpus, report.chips, report.tokens) == (8, 4, (ONE,))
    assert report.warnings == ("one\ufffd", "two")


@pytest.mark.parametrize(
    "line", ["P cpus -1", "P colour 1", "V colour", "K 1", "A x", "P cpus 1 1", "P gpus 10000"]
)
def test_an_odd_line_makes_a_probe_no_answer(line: str) -> None:
    with pytest.raises(NoAnswer):
        probe_report(Frame("b", INCARNATION, f"H 1 2\n{line}"), WORKER)
