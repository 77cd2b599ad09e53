"""False and damaged answers: each is read as the true one, as a possible one to the call, or rejected."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from msgspec import Struct

from iris_cli.clock import iso_time
from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages.observations import (
    AttemptReport,
    ProbeReport,
    RemoteState,
    Silence,
    SilenceKind,
    UnwedgeReport,
    WorkerReport,
)
from iris_cli.remote.answers import probe_report, unwedge_report, worker_report
from iris_cli.remote.frames import Frame, parse_frame
from iris_cli.remote.output_calls import LogChunk, LogPiece, log_chunks
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult, Target
from tests.support.devices import Devices
from tests.support.local_transport import tools_of
from tests.support.worker_host import WorkerHost

PAYLOADS = int(os.environ.get("IRIS_HOSTILE_PAYLOADS", "2000"))
WORKER = WorkerId("w0")
LONGEST_REASON = 300
NOW = 1_800_000_000.0


@dataclass(frozen=True)
class Case:
    """A call: a real answer, and the function that reads it."""

    name: str
    nonce: str
    output: bytes
    read: Callable[[Frame], object]
    tokens: frozenset[Token]  # in the answer: required, or allowed for `probe` and `unwedge`

    def parse(self, output: bytes) -> object:
        return self.read(parse_frame(output, self.nonce))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Case]]:
    """Return real frames of every call, from the shell library."""
    tmp_path = tmp_path_factory.mktemp("truth")
    devices = Devices(tmp_path)
    host = WorkerHost(tmp_path / "host", tools_of("dash", tmp_path / "tools"), paths=devices.paths)
    answers: list[tuple[str, bytes]] = []
    run = host.transport.run

    def recorded(target: Target, script: Script) -> ScriptResult:
        output = run(target, script)
        nonce = re.search(rb"^nonce=([0-9a-f]{32})$", script.text, re.MULTILINE)
        assert nonce is not None
        answers.append((nonce[1].decode(), output.stdout))
        return output

    host.transport.run = recorded  # type: ignore[method-assign]  # listens in
    try:
        yield _cases(host, devices, answers)
    finally:
        devices.release()
        host.clean_up()


def _cases(host: WorkerHost, devices: Devices, answers: list[tuple[str, bytes]]) -> list[Case]:
    host.probe()
    ended = host.launch("sh", "-c", "echo one; printf '\\033[31mtwo' >&2; exit 3")
    host.wait(ended)
    running, absent = host.running("sleep", "1000"), host.request("true").token
    devices.hold()
    devices.lock.touch()
    asked = [ended, running, absent]
    identity = (host.boot_id, host.incarnation)
    pieces = [LogPiece(token=ended, stream=stream, offset=0, limit=1 << 16) for stream in ("out", "err")]
    calls: dict[str, tuple[Callable[[], object], Callable[[Frame], object], list[Token]]] = {
        "poll": (lambda: host.poll(*asked), lambda frame: worker_report(frame, WORKER, asked), asked),
        "go": (lambda: host.go(*asked), lambda frame: worker_report(frame, WORKER, asked, identity), asked),
        "probe": (host.probe, lambda frame: probe_report(frame, WORKER), []),
        "logs": (
            lambda: host.runner.pieces(host.target, pieces),
            lambda frame: log_chunks(frame, pieces)[0],
            [],
        ),
        "unwedge": (
            lambda: host.runner.unwedge(host.target, keep=[running], clear=[ended]),
            lambda frame: unwedge_report(frame, WORKER, [running], [ended]),
            [ended],
        ),
    }
    cases = []
    for name, (call, read, tokens) in calls.items():
        call()
        cases.append(Case(name, *answers[-1], read, frozenset(tokens)))
        cases[-1].parse(answers[-1][1])
    return cases


Mutation = Callable[[random.Random, bytes, str], bytes]


def cut(chance: random.Random, output: bytes, nonce: str) -> bytes:
    at = chance.randrange(len(output))
    return chance.choice([output[:at], output[at + 1 :], output[:at] + b"\n"])


def lose_a_line(chance: random.Random, output: bytes, nonce: str) -> bytes:
    lines = output.split(b"\n")
    del lines[chance.randrange(len(lines) - 1)]
    return b"\n".join(lines)


def double_a_line(chance: random.Random, output: bytes, nonce: str) -> bytes:
    lines = output.split(b"\n")
    at = chance.randrange(len(lines) - 1)
    return b"\n".join([*lines[:at], lines[at], *lines[at:]])


def double_all(chance: random.Random, output: bytes, nonce: str) -> bytes:
    return output * chance.choice([2, 3])


def count_wrong(chance: random.Random, output: bytes, nonce: str) -> bytes:
    count = chance.choice(
        ["0", "-1", "1e3", "9" * 7, "9" * 5000, "01", "", "٣", str(chance.randrange(100, 999))]
    )
    return re.sub(rb"END [0-9]+", b"END " + count.encode(), output)


def another_nonce(chance: random.Random, output: bytes, nonce: str) -> bytes:
    other = chance.choice([f"{chance.getrandbits(128):032x}", "0" * 32, nonce.upper(), nonce[:-1]])
    places = [match.start() for match in re.finditer(nonce.encode(), output)]
    at = chance.choice(places)
    return output[:at] + other.encode() + output[at + 32 :]


def talk_around_it(chance: random.Random, output: bytes, nonce: str) -> bytes:
    noise = chance.choice([b"Welcome!\n", b"\x1b]0;title\x07\n", b"\n" * 50, chance.randbytes(300) + b"\n"])
    return chance.choice([noise + output, output + noise, noise + output + noise])


DAMAGE: tuple[Mutation, ...] = (
    cut,
    lose_a_line,
    double_a_line,
    double_all,
    count_wrong,
    another_nonce,
    talk_around_it,
)
"""Damage of an answer: it is read as the same answer, or rejected."""


def flip_bytes(chance: random.Random, output: bytes, nonce: str) -> bytes:
    damaged = bytearray(output)
    for _ in range(chance.choice([1, 1, 1, 5])):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    return bytes(damaged)


def insert_bytes(chance: random.Random, output: bytes, nonce: str) -> bytes:
    at = chance.randrange(len(output))
    return output[:at] + chance.choice(JUNK) + output[at:]


def take_bytes_out(chance: random.Random, output: bytes, nonce: str) -> bytes:
    at = chance.randrange(len(output))
    return output[:at] + output[at + chance.randrange(1, 20) :]


def move_a_line(chance: random.Random, output: bytes, nonce: str) -> bytes:
    lines = output.split(b"\n")
    line = lines.pop(chance.randrange(len(lines)))
    lines.insert(chance.randrange(len(lines)), line)
    return b"\n".join(lines)


def forge_a_word(chance: random.Random, output: bytes, nonce: str) -> bytes:
    lines = output.split(b"\n")
    at = chance.randrange(len(lines))
    words = lines[at].split(b" ")
    word = chance.randrange(len(words))
    words[word] = chance.choice(NUMBERS if words[word].isdigit() and chance.random() < 0.5 else WORDS)
    lines[at] = b" ".join(words)
    return b"\n".join(lines)


def add_a_line(chance: random.Random, output: bytes, nonce: str) -> bytes:
    """Add a line, with the right number of lines."""
    lines = output.split(b"\n")
    lines.insert(chance.randrange(1, len(lines) - 1), chance.choice(LINES))
    return recounted(b"\n".join(lines), nonce)


def leave_a_line_out(chance: random.Random, output: bytes, nonce: str) -> bytes:
    lines = output.split(b"\n")
    del lines[chance.randrange(1, len(lines) - 2)]
    return recounted(b"\n".join(lines), nonce)


def repeat_a_line(chance: random.Random, output: bytes, nonce: str) -> bytes:
    lines = output.split(b"\n")
    inside = range(1, len(lines) - 2)
    line = lines[chance.choice(inside)]
    at, times = chance.choice(inside), chance.choice([1, 2, 300])
    return recounted(b"\n".join([*lines[:at], *[line] * times, *lines[at:]]), nonce)


def recounted(output: bytes, nonce: str) -> bytes:
    inside = output.count(b"\n") - 2
    return re.sub(rb"END [0-9]+", b"END %d" % inside, output)


LIES: tuple[Mutation, ...] = (
    flip_bytes,
    insert_bytes,
    take_bytes_out,
    move_a_line,
    forge_a_word,
    forge_a_word,
    forge_a_word,
    add_a_line,
    leave_a_line_out,
    repeat_a_line,
)
"""False answers: possible ones are accepted, as nothing shows that they are false; others are rejected."""

JUNK = (b"\0", b"\x1b[2J", b"\xff\xfe", b"\r", b"\n", b" ", b"-", b"9", "٣".encode(), b"A" * 5000, b"=" * 3)
NUMBERS = (b"0", b"1", b"255", b"256", b"9" * 12, b"9" * 15, b"-1", b"01")
WORDS = (
    *(b"0", b"-", b"-1", b"1.5", b"1e9", b"nan", b"inf", b"0x10", b"00", b"", "٣".encode()),
    *(b"9" * 12, b"9" * 15, b"9" * 16, b"9" * 4000, b"256", b"255", b"4102444800"),
    *(b"RUNNING", b"EXITED", b"NOSTART", b"SUCCEEDED", b"STOPPED", b"UNKILLABLE", b"cgroup", b"stale"),
    *(b"timeout", b"oom", b"chips", b"lease", b"A", b"H", b"T", b"K", b"C", b"F", b"L", b"P", b"V", b"IRIS1"),
    *(b"f" * 32, b"F" * 32, b"\x1b[31m", b"\xff\xff", b"====", b"QUJD", b"A" * 500, b"warning", b"tpu-env"),
)
LINES = (
    *(b"A " + b"f" * 32 + b" RUNNING - - 0 - 0 -", b"A " + b"f" * 32 + b" EXITED 0 - 0 0 0 -"),
    *(b"K " + b"f" * 32, b"C 1 1 -", b"C 1 1 " + b"f" * 32, b"P chips 999999999999999", b"P chips 0"),
    *(b"H 4102444800 1", b"H 1 1", b"F held 0", b"L 0 0 0", b"V warning", b"V tpu-env", b"T QUJD", b"T ="),
    *(b"T " + b"QUJD" * 120, b"", b"x" * 511, b"x" * 513, b"\x1b[2J", b"IRIS1 " + b"0" * 32 + b" END 3"),
)


def test_a_damaged_answer_keeps_its_meaning_or_is_rejected(cases: list[Case]) -> None:
    chance = random.Random(1)
    heard = 0
    for _ in range(PAYLOADS // 2):
        case, damage = chance.choice(cases), chance.choice(DAMAGE)
        output = damage(chance, case.output, case.nonce)
        report = judge(case, output, damage.__name__)
        assert report in (None, case.parse(case.output)), (case.name, damage.__name__, output[:2000])
        heard += report is not None
    assert 0 < heard < PAYLOADS // 4


def test_a_forged_answer_is_plausible_and_on_topic_or_no_answer(cases: list[Case]) -> None:
    chance = random.Random(2)
    believed = 0
    for _ in range(PAYLOADS - PAYLOADS // 2):
        case, output, told = chance.choice(cases), b"", []
        output = case.output
        for _ in range(chance.choice([1, 1, 1, 2, 4])):
            lie = chance.choice(LIES)
            output = lie(chance, output, case.nonce) or case.output
            told.append(lie.__name__)
        report = judge(case, output, told)
        if report is not None:
            believed += 1
            assert_possible(case, report)
    assert 0 < believed < PAYLOADS // 4


def judge(case: Case, output: bytes, what: object) -> object:
    """Return the report; None if it is rejected, with a printable reason."""
    try:
        return case.parse(output)
    except NoAnswer as error:
        assert_showable(error.silence(WORKER))
        return None
    except Exception as error:
        raise AssertionError(f"{case.name}, {what}: {output[:2000]!r}") from error


def assert_showable(silence: Silence) -> None:
    assert silence.kind is SilenceKind.PROTOCOL
    for text in (silence.step, silence.detail, silence.hint):
        assert text.isascii(), text
        assert text == "" or text.isprintable(), text
        assert len(text) <= LONGEST_REASON, text


def assert_possible(case: Case, report: object) -> None:
    """Check that the report is harmless: valid times, short texts, only about attempts of the call."""
    assert isinstance(report, WorkerReport | ProbeReport | LogChunk | UnwedgeReport)
    assert size_of(report) < 100_000
    if isinstance(report, LogChunk):
        return
    assert re.fullmatch("[A-Za-z0-9._-]{0,64}", report.boot_id)
    assert re.fullmatch("([0-9a-f]{32})?", report.incarnation)
    if isinstance(report, WorkerReport):
        assert iso_time(report.clock)
        # Another host may report its identity, and nothing else.
        refused = case.name == "go" and not report.attempts
        assert refused or sorted(each.token for each in report.attempts) == sorted(case.tokens)
    elif isinstance(report, UnwedgeReport):
        assert case.tokens <= {each.token for each in report.attempts}
        assert len({each.pid for each in report.holders}) == len(report.holders)
    else:
        assert iso_time(report.clock)
        assert len(set(report.tokens)) == len(report.tokens)
    for attempt in getattr(report, "attempts", ()):
        assert_possible_attempt(attempt)


def assert_possible_attempt(attempt: AttemptReport) -> None:
    assert attempt.exit_code is None or 0 <= attempt.exit_code <= 255
    assert (attempt.exit_code is not None) or attempt.state is not RemoteState.EXITED
    for ago in (attempt.started_ago, attempt.ended_ago):
        assert ago is None or (ago >= 0 and iso_time(NOW - ago))
    assert len(attempt.log_tail) <= 8 << 10


def size_of(value: object) -> int:
    """Return its approximate size in memory."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, tuple):
        return sum(map(size_of, value))
    if isinstance(value, Struct):
        return sum(size_of(getattr(value, name)) for name in value.__struct_fields__)
    return 8


@pytest.mark.parametrize(
    "payload",
    [
        b"A" * (1 << 18),
        b"\n" * (1 << 18),
        bytes(1 << 18),
        b"T QUJD\n" * (1 << 15),
        b"IRIS1 {nonce} BEGIN b -\n" + b"H 1 1\n" * (1 << 15) + b"IRIS1 {nonce} END 32768\n",
        b"IRIS1 {nonce} BEGIN b -\nH 1 1\n" + b"T QUJD\n" * (1 << 15) + b"IRIS1 {nonce} END 32769\n",
        b"{nonce}" * (1 << 13),
        b"{nonce}\n" * (1 << 13),
        b"IRIS1 {nonce} BEGIN b -\nH 1 1\n" + b"P cpus 1\nT \n" * (1 << 14) + b"IRIS1 {nonce} END 32769\n",
    ],
    ids=lambda payload: repr(payload[:40]),
)
def test_a_huge_answer_is_not_an_answer(cases: list[Case], payload: bytes) -> None:
    for case in cases:
        assert judge(case, payload.replace(b"{nonce}", case.nonce.encode()), "huge") is None
