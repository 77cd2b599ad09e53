"""Well-formed but impossible answers: too long, with impossible times, about other attempts."""

from __future__ import annotations

import base64
from functools import partial

import pytest

from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages.observations import ChipHolder, LockFile, Silence
from iris_cli.core.model.worker import Connection
from iris_cli.remote.answers import probe_report, unwedge_report, worker_report
from iris_cli.remote.frames import Frame, parse_frame
from iris_cli.remote.output_calls import LogPiece
from iris_cli.remote.task_runner import TaskRunner
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult, Target

WORKER = WorkerId("w0")
LONGEST_REASON = 300


def test_a_long_text_of_a_metadata_server_is_read_in_one_pass() -> None:
    """A search that restarts at each blank would take hours."""
    text = ("A: " + " " * 24_000 + "x\n").encode()
    lines = ["H 1 1", "V tpu-env", *(f"T {line}" for line in base64.encodebytes(text).decode().split())]
    frame = parse_frame(framed(lines, "0" * 32), "0" * 32)
    assert probe_report(frame, WORKER).metadata == ()


def framed(lines: list[str], nonce: str) -> bytes:
    body = "".join(f"{line}\n" for line in lines)
    return f"IRIS1 {nonce} BEGIN b -\n{body}IRIS1 {nonce} END {len(lines)}\n".encode()


@pytest.mark.parametrize(
    "line",
    [
        "A {token} RUNNING - - 999999999999999 - 0 -",
        "A {token} EXITED 0 - 1 2 0 -",
        "A {token} EXITED 0 - 20000 20000 0 -",
    ],
)
def test_a_begin_before_the_boot_or_after_the_end_is_not_an_answer(line: str) -> None:
    token = Token("1" * 32)
    frame = Frame("b", "f" * 32, f"H 1800000000 10000\n{line.format(token=token)}")
    with pytest.raises(NoAnswer):
        worker_report(frame, WORKER, [token])


@pytest.mark.parametrize("time", ["253402300800 1", "1 316224000001", "1 -1", "-1 1"])
def test_a_clock_beyond_the_calendar_is_not_an_answer(time: str) -> None:
    with pytest.raises(NoAnswer):
        worker_report(Frame("b", "f" * 32, f"H {time}"), WORKER, [])


class Liar:
    """A transport that gives the same answer to all calls."""

    def __init__(self, stdout: bytes, stderr: bytes, status: int) -> None:
        self.output = ScriptResult(stdout=stdout, stderr=stderr, status=status)

    def run(self, target: Target, script: Script) -> ScriptResult:
        return self.output

    def close(self) -> None:
        """Do nothing: no connection is kept."""


@pytest.mark.parametrize("status", [1, 127, 255, -1])
@pytest.mark.parametrize(
    "stderr", [b"", b"\x1b[2J" * 1000, b"\xff" * 3000, "\u202e\u009b31m".encode(), b"a\rb\x07", b"\0" * 99]
)
def test_the_last_words_of_a_call_that_failed_can_be_shown(status: int, stderr: bytes) -> None:
    runner = TaskRunner(Liar(b"", stderr, status), "c1")
    target = Target(worker=WORKER, connection=Connection(host="here"))
    token = Token("1" * 32)
    for call in (
        partial(runner.poll, target, [token]),
        partial(runner.probe, target),
        partial(runner.stop, target, [(token, 1.0)]),
        partial(runner.unwedge, target, keep=[]),
        partial(runner.pieces, target, [LogPiece(token=token, stream="out", offset=0, limit=10)]),
    ):
        silence = call()
        assert isinstance(silence, Silence)
        for text in (silence.step, silence.detail, silence.hint):
            assert text == "" or text.isprintable()
            assert len(text) <= LONGEST_REASON


OWN, OTHER = Token("1" * 32), Token("2" * 32)
STRANGER = f"A {OTHER} RUNNING - - 1 - 0 -"


def test_the_holders_in_an_answer_are_read() -> None:
    data = base64.b64encode(b"/dev/accel0 /dev/vfio/3\ntrain --now \x1b[2J\n").decode()
    lines = ("H 1 100", "F held 7", f"C 12 345 {OTHER}", f"T {data}", "C 13 1 -", "T Cg==", STRANGER)
    report = unwedge_report(Frame("b", "f" * 32, "\n".join(lines)), WORKER, [OWN], [])
    assert report.holders == (
        ChipHolder(
            boot_id="b",
            pid=12,
            start=345,
            devices=("/dev/accel0", "/dev/vfio/3"),
            command="train --now \x1b[2J\n",
            token=OTHER,
        ),
        ChipHolder(boot_id="b", pid=13, start=1),
    )
    assert ([each.token for each in report.attempts], report.lock, report.unseen) == (
        [OTHER],
        LockFile.HELD,
        7,
    )


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (STRANGER,),
        ("F stale",),
        ("F broken 0",),
        ("F held 0", "F held 0"),
        ("F held 0", "T QUJD"),
        ("F held 0", STRANGER, STRANGER),
        ("F held 0", STRANGER.replace(OTHER, OWN)),
        ("F held 0", "C 1 1 -", "C 1 2 -"),
        ("F held 0", "C 1 1 x"),
        ("F held 0", "C -1 1 -"),
        ("F held 0", "C 1 1 -", "T " + "QUJD" * 120, *["T " + "QUJD" * 120] * 8),
        ("F held 0", "K " + OTHER),
    ],
)
def test_an_answer_about_attempts_to_keep_or_with_doubled_holders_is_rejected(lines: tuple[str, ...]) -> None:
    with pytest.raises(NoAnswer):
        unwedge_report(Frame("b", "f" * 32, "\n".join(("H 1 100", *lines))), WORKER, [OWN], [])


def test_an_answer_without_an_attempt_to_end_is_rejected() -> None:
    frame = Frame("b", "f" * 32, "H 1 100\nF none 0")
    assert unwedge_report(frame, WORKER, [OWN], []).attempts == ()
    with pytest.raises(NoAnswer):
        unwedge_report(frame, WORKER, [OWN], [OTHER])


@pytest.mark.parametrize("lines", [["P cpus 1"] * 2, ["V zone"] * 2, [f"K {OWN}"] * 2])
def test_a_probe_with_a_doubled_value_is_not_an_answer(lines: list[str]) -> None:
    probe_report(Frame("b", "f" * 32, "\n".join(("H 1 100", *lines[:1]))), WORKER)
    with pytest.raises(NoAnswer):
        probe_report(Frame("b", "f" * 32, "\n".join(("H 1 100", *lines))), WORKER)


def test_a_request_deleted_while_it_was_read_is_not_reported() -> None:
    """Another process has answered it; the incomplete text would be rejected as invalid JSON."""
    token = Token("1" * 32)
    whole = base64.b64encode(b'{"v":1,"op":"status"}').decode()
    lines = (f"Q {token} gone 21", f"Q {token} here 21", f"T {whole}", f"A {token} RUNNING - - 1 - 0 -")
    report = worker_report(
        Frame("b", "f" * 32, "\n".join(("H 1800000000 10000", *lines))),
        WORKER,
        [token],
        with_requests=[token],
    )
    assert [(each.id, each.size) for each in report.requests] == [("here", 21)]
