"""What is found in a log, and what follows from it: go on, repair, or refuse."""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from iris_cli.core.events.events import Transaction, WorkerDrained
from iris_cli.core.ids import WorkerId
from iris_cli.core.units import count
from iris_cli.errors import ExitCode, LogDamagedError
from iris_cli.journal.log.position import FaultKind
from iris_cli.journal.log.scan import Scan
from iris_cli.journal.log.verify import verify
from iris_cli.journal.state_dir import StateDir
from tests.journal.samples import NOON, filled, state_in

COUNT = 60
DRAINED = [WorkerDrained(worker=WorkerId("v4a-0"))]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> StateDir:
    return filled(tmp_path_factory.mktemp("sound") / "state", COUNT)


@pytest.fixture
def state(sound: StateDir, tmp_path: Path) -> StateDir:
    """A copy of a log of 60 transactions, to be spoilt."""
    shutil.copytree(sound.path, tmp_path / "state")
    return state_in(tmp_path / "state")


def content(state: StateDir) -> bytes:
    return (state.path / "events.jsonl").read_bytes()


def spoil(state: StateDir, content: bytes) -> None:
    (state.path / "events.jsonl").write_bytes(content)


def lines(state: StateDir) -> list[bytes]:
    return content(state).splitlines(keepends=True)


def set_head(state: StateDir, seq: int | None) -> None:
    """Make HEAD name an earlier line, or be missing."""
    path = state.path / "HEAD"
    if seq is None:
        path.unlink()
        return
    head = json.loads(path.read_text())
    crc = json.loads(lines(state)[seq - 1])["crc"]
    path.write_text(json.dumps(head | {"seq": seq, "crc": crc}))


def commit(state: StateDir, *, accept_loss: bool = False) -> tuple[Transaction, tuple[str, ...]]:
    with state.locked("iris drain", accept_loss=accept_loss) as writer:
        return writer.append(DRAINED, at=NOON), writer.messages


def refusal(state: StateDir) -> LogDamagedError:
    """The writer's refusal, which must not have changed the log, nor left anything beside it."""
    before, names = content(state), sorted(path.name for path in state.path.iterdir())
    with pytest.raises(LogDamagedError) as caught:
        commit(state)
    assert content(state) == before
    assert sorted(path.name for path in state.path.iterdir()) == names
    assert caught.value.exit_code == ExitCode.LOG_DAMAGED
    return caught.value


def torn_files(state: StateDir) -> list[bytes]:
    return [path.read_bytes() for path in sorted(state.path.glob("torn-*"))]


# Torn


def test_cut_at_any_byte_the_whole_lines_are_read_and_the_rest_is_torn(sound: StateDir) -> None:
    raw = content(sound)
    ends = [0]
    for line in lines(sound):
        ends.append(ends[-1] + len(line))
    near = {end + step for end in ends for step in (-2, -1, 0, 1, 2)}
    for size in sorted({*near, *range(0, len(raw), 19)} & {*range(len(raw) + 1)}):
        scan = Scan(io.BytesIO(raw), size)
        whole = sum(end <= size for end in ends) - 1
        assert sum(1 for _ in scan) == scan.position.seq == whole
        assert scan.position.offset == ends[whole]
        assert (scan.fault is None) == (size == ends[whole])
        assert scan.fault is None or scan.fault.kind is FaultKind.TORN


def test_cut_anywhere_in_the_last_line_the_next_writer_goes_on_before_it(state: StateDir) -> None:
    raw, last = content(state), lines(state)[-1]
    for size in [*range(len(raw) - len(last) + 1, len(raw) - 1, 5), len(raw) - 1]:
        spoil(state, raw[:size])
        set_head(state, COUNT - 1)
        assert state.read().damage is None
        transaction, messages = commit(state)
        assert transaction.seq == COUNT
        assert len(messages) == 1
        assert "unfinished" in messages[0]
        assert content(state)[: len(raw) - len(last)] == raw[: -len(last)]
        kept = state.path.glob("torn-*")
        assert [path.read_bytes() for path in kept] == [raw[len(raw) - len(last) : size]]
        for path in state.path.glob("torn-*"):
            path.unlink()


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 4096, b"\0" * 100 + b"\n", b"{", b"\n", b"\n\n\n", b"garbage\nmore garbage\n", b'{"seq":61'],
    ids=lambda garbage: repr(garbage[:40]),
)
def test_garbage_at_the_end_never_happened(state: StateDir, tail: bytes) -> None:
    whole = content(state)
    spoil(state, whole + tail)
    assert state.read().damage is None
    assert state.read().seq == COUNT
    transaction, messages = commit(state)
    assert (transaction.seq, len(messages)) == (COUNT + 1, 1)
    assert torn_files(state) == [tail]
    assert content(state).startswith(whole + b'{"seq":61,')
    assert commit(state)[1] == ()


def test_a_second_torn_tail_of_the_same_moment_is_kept_too(state: StateDir) -> None:
    whole = content(state)
    for tail in (b"one", b"two"):
        spoil(state, whole + tail)
        set_head(state, COUNT)
        commit(state)
    assert torn_files(state) == [b"one", b"two"]


def test_a_log_that_ends_in_its_unfinished_first_line_begins_anew(tmp_path: Path) -> None:
    state = state_in(tmp_path / "state")
    state.path.mkdir(mode=0o700)
    spoil(state, b'{"seq":1,"prev"')
    (state.path / "events.jsonl").chmod(0o600)
    assert state.read().header is None
    assert any("unfinished" in message for message in state.create("lab"))
    assert state.read().seq == 1
    assert torn_files(state) == [b'{"seq":1,"prev"']


# HEAD


@pytest.mark.parametrize("head", [None, 1, COUNT - 1])
def test_a_log_beyond_head_is_copied_before_it_goes_on(state: StateDir, head: int | None) -> None:
    """The lines beyond may be in memory only: a second fsync of the same file would not tell."""
    set_head(state, head)
    before, inode = content(state), (state.path / "events.jsonl").stat().st_ino
    assert state.read().seq == COUNT
    transaction, messages = commit(state)
    assert (transaction.seq, len(messages)) == (COUNT + 1, 1)
    assert head is None or f"lacked {count(COUNT - head, 'line')} of" in messages[0]
    assert content(state).startswith(before)
    assert (state.path / "events.jsonl").stat().st_ino != inode
    assert commit(state)[1] == ()


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\0\0\0",
        b"[]",
        b"[" * 4000,
        b'{"seq":"1","crc":"","cluster_id":""}',
        b'{"seq":1,"crc":7,"cluster_id":"CLUSTER"}',
        b'{"seq":1,"crc":["x"],"cluster_id":{}}',
    ],
)
def test_an_empty_head_after_a_power_cut_is_rewritten(state: StateDir, head: bytes) -> None:
    header = state.read().header
    assert header is not None
    (state.path / "HEAD").write_bytes(head.replace(b"CLUSTER", header.cluster_id.encode()))
    transaction, messages = commit(state)
    assert transaction.seq == COUNT + 1
    assert messages == ("HEAD was missing or damaged: written again from the log",)
    assert json.loads((state.path / "HEAD").read_text())["seq"] == COUNT + 1


def test_a_partly_written_head_is_ignored_and_rewritten(state: StateDir) -> None:
    path = state.path / "HEAD"
    before, inode = path.read_bytes(), path.stat().st_ino
    commit(state)
    after = path.read_bytes()
    assert path.stat().st_ino == inode
    for written in range(len(after)):
        mixed = after[:written] + before[written:]
        path.write_bytes(mixed)
        view = state.read()
        assert (view.seq, view.damage) == (COUNT + 1, None)
        assert view.committed == (mixed == after)
    assert commit(state)[0].seq == COUNT + 2


def test_a_log_shorter_than_head_is_refused_until_the_loss_is_accepted(state: StateDir) -> None:
    spoil(state, b"".join(lines(state)[:-5]))
    error = refusal(state)
    assert "seq 55" in error.message
    assert "seq 60 was committed" in error.message
    assert "--accept-loss" in error.hint
    view = state.read()
    assert view.seq == COUNT - 5
    assert view.damage is not None
    transaction, messages = commit(state, accept_loss=True)
    assert transaction.seq == COUNT - 4
    assert messages == ("accepted the loss of transactions 56 to 60",)
    assert state.read().damage is None
    assert commit(state)[1] == ()


def test_a_lost_log_is_refused_until_the_loss_is_accepted(state: StateDir) -> None:
    (state.path / "events.jsonl").unlink()
    with pytest.raises(LogDamagedError, match="seq 60 was committed"):
        state.create("lab")
    assert state.read().damage is not None
    state.create("lab", accept_loss=True)
    assert state.read().seq == 1
    assert commit(state)[0].seq == 2


def test_an_acknowledged_last_line_that_is_cut_is_damage_and_not_torn(state: StateDir) -> None:
    spoil(state, content(state)[:-2])
    error = refusal(state)
    offset = len(content(state)) - len(lines(state)[-1])
    assert f"line {COUNT} (byte {offset}, seq {COUNT})" in error.message
    assert "iris log verify" in error.hint
    assert "iris log salvage" in error.hint
    assert state.read().damage is not None
    assert commit(state, accept_loss=True)[0].seq == COUNT


@pytest.mark.parametrize("count", [1, COUNT])
def test_an_acknowledged_last_line_that_lost_but_its_newline_gets_it_back(
    state: StateDir, count: int
) -> None:
    whole = b"".join(lines(state)[:count])
    spoil(state, whole)
    set_head(state, count)
    follower = state_in(state.path)
    assert follower.read().seq == count
    spoil(state, whole[:-1])
    for view in (state.read(), follower.read(count)):
        assert (view.seq, view.damage, view.committed) == (count, None, True)
    past = state.read_history(archive=True)
    assert (len(list(past)), past.damage) == (count, None)
    verdict = verify(state.path)
    assert (verdict.records, verdict.ok, verdict.unfinished) == (count, True, None)
    transaction, messages = commit(state)
    assert (transaction.seq, messages) == (
        count + 1,
        ("restored the newline at the end of the event log",),
    )
    assert content(state).startswith(whole + f'{{"seq":{count + 1},'.encode())
    assert [each.seq for each in follower.read(count).transactions] == [count + 1]
    assert commit(state)[1] == ()


def test_a_last_line_that_lost_its_newline_and_a_bit_is_damage(state: StateDir) -> None:
    raw = content(state)[:-1]
    spoil(state, raw[:-40] + bytes([raw[-40] ^ 1]) + raw[-39:])
    assert f"seq {COUNT} was committed" in refusal(state).message


def test_another_line_than_the_one_head_names_is_refused(state: StateDir) -> None:
    head = json.loads((state.path / "HEAD").read_text())
    (state.path / "HEAD").write_text(json.dumps(head | {"crc": "0" * 8}))
    assert "line seq 60 is not the committed one" in refusal(state).message
    history = state_in(state.path).read_history(archive=True)
    assert list(history)[-1].seq == 60
    assert history.damage is not None
    assert commit(state, accept_loss=True)[0].seq == COUNT + 1


def test_the_log_of_another_cluster_under_our_head_is_refused(state: StateDir, tmp_path: Path) -> None:
    for transactions in (3, COUNT, COUNT + 7):
        other = filled(tmp_path / f"other-{transactions}", transactions)
        spoil(state, content(other))
        assert "another cluster" in refusal(state).message
        with pytest.raises(LogDamagedError):
            commit(state, accept_loss=True)
        with pytest.raises(LogDamagedError, match="another cluster"):
            state.read()


# Damage


def flip(raw: bytes, bit: int) -> bytes:
    spoilt = bytearray(raw)
    spoilt[bit // 8] ^= 1 << bit % 8
    return bytes(spoilt)


def test_one_flipped_bit_anywhere_is_refused_and_readers_see_what_stands_before(state: StateDir) -> None:
    raw, whole = content(state), state.read().transactions
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    for bit in random.Random(seed).sample(range(len(raw) * 8), 100):
        spoil(state, flip(raw, bit))
        bad_line = raw.count(b"\n", 0, bit // 8)
        assert f"line {bad_line + 1} (byte " in refusal(state).message
        view = state.read()
        assert view.damage is not None
        assert view.transactions == whole[:bad_line]


def swapped(raw: list[bytes]) -> list[bytes]:
    return [*raw[:20], raw[21], raw[20], *raw[22:]]


SPOILERS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {
    "a block of zeros": (lambda raw: [*raw[:10], b"\0" * len(b"".join(raw[10:13])), *raw[13:]], 11),
    "a line is missing": (lambda raw: raw[:30] + raw[31:], 31),
    "lines change places": (swapped, 21),
    "the last lines stand there twice": (lambda raw: raw + raw[-3:], 61),
    "the whole log stands there twice": (lambda raw: raw + raw, 61),
    "the first line is missing": (lambda raw: raw[1:], 1),
    "garbage between the lines": (lambda raw: [*raw[:5], b"oops\n", *raw[5:]], 6),
    "an empty line": (lambda raw: [*raw[:5], b"\n", *raw[5:]], 6),
    "a cut line in the middle": (lambda raw: [*raw[:5], raw[5][:40] + b"\n", *raw[6:]], 6),
    "two lines glued": (lambda raw: [*raw[:5], raw[5][:-1], *raw[6:]], 6),
}


@pytest.mark.parametrize("spoiler", SPOILERS)
def test_damage_in_the_middle_is_refused_by_its_place(state: StateDir, spoiler: str) -> None:
    change, line = SPOILERS[spoiler]
    offset = len(b"".join(lines(state)[: line - 1]))
    spoil(state, b"".join(change(lines(state))))
    error = refusal(state)
    assert f"line {line} (byte {offset}, seq {line})" in error.message
    assert "iris log salvage" in error.hint
    with pytest.raises(LogDamagedError):
        commit(state, accept_loss=True)
    view = state.read()
    assert view.seq == line - 1
    assert view.damage is not None
    assert view.damage.what == error.message


def test_a_good_line_of_another_log_is_refused(state: StateDir, tmp_path: Path) -> None:
    other = lines(filled(tmp_path / "other", COUNT))
    spoil(state, b"".join([*lines(state)[:30], other[30], *lines(state)[31:]]))
    assert "line 31 (byte " in refusal(state).message
    assert "prev is" in refusal(state).message


# Newer programs


def test_a_newer_format_is_refused_naming_both_programs(state: StateDir) -> None:
    first = (
        lines(state)[0]
        .replace(b'"format":1', b'"format":2')
        .replace(b'"program":"iris 0', b'"program":"iris 9')
    )
    body = first[: first.index(b',"crc":"')]
    spoil(state, b'%s,"crc":"%08x"}\n' % (body, crc32(body)) + b"".join(lines(state)[1:]))
    for refused in (lambda: state.read(), lambda: commit(state)):
        with pytest.raises(LogDamagedError, match=r"format 2: iris 9\.\S+ wrote it, this is iris 0\."):
            refused()


@pytest.mark.parametrize("ignorable", [False, True])
def test_an_event_of_a_newer_program_is_refused_unless_it_may_be_ignored(
    state: StateDir, ignorable: bool
) -> None:
    prev = json.loads(lines(state)[-1])["crc"]
    strange = {"type": "MoonPhaseChanged"} | ({"ignorable": True} if ignorable else {})
    entry = {
        "seq": 61,
        "prev": prev,
        "at": "2026-11-21T12:00:00.000Z",
        "actor": "me",
        "program": "iris 9.1.0",
    }
    body = json.dumps(entry | {"events": [strange]}, separators=(",", ":"))[:-1].encode()
    spoil(state, content(state) + b'%s,"crc":"%08x"}\n' % (body, crc32(body)))
    if ignorable:
        assert commit(state)[0].seq == 62
        assert state.read().transactions[60].events == ()
        return
    assert "iris 9.1.0 wrote it, this is iris 0." in refusal(state).message
    view = state.read()
    assert (view.seq, view.damage is None) == (60, False)
