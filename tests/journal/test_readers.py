"""Readers take no lock: what they see while others write is always a whole beginning of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.errors import LogReplacedError
from iris_cli.files import DISK
from iris_cli.journal.log import file_store
from iris_cli.journal.log.head import Head, read_head, write_head
from iris_cli.journal.log.record import encode_line, end_of_line
from iris_cli.journal.log.verify import verify
from iris_cli.journal.state_dir import StateDir
from tests.journal.samples import STORY, filled, state_in
from tests.journal.writer_process import start


def test_half_an_append_is_not_seen_and_not_touched(tmp_path: Path) -> None:
    state = filled(tmp_path / "state", 5)
    log, whole = state.path / "events.jsonl", state.read()
    line = encode_line(verify(state.path).sound_until, STORY[9], at=0.0, actor="me")
    before = log.read_bytes()
    for size in range(1, len(line)):
        log.write_bytes(before + line[:size])
        assert state.read() == whole
        assert log.read_bytes() == before + line[:size]
    log.write_bytes(before + line)
    assert state.read().seq == 6
    assert sorted(path.name for path in state.path.iterdir()) == ["HEAD", "events.jsonl", "lock", "lock.json"]


def test_a_reader_follows_a_writer_and_never_sees_damage(tmp_path: Path) -> None:
    state = state_in(tmp_path / "state")
    state.create("lab")
    seen = list(state.read().transactions)
    with start(state.path, "append", "w") as writer:
        try:
            while len(seen) < 100:
                view = state.read(after_seq=len(seen))
                assert view.damage is None
                seen += view.transactions
                assert view.seq == len(seen)
        finally:
            writer.kill()
    assert [each.seq for each in seen] == list(range(1, len(seen) + 1))
    assert seen == list(state_in(state.path).read().transactions)[: len(seen)]


def test_a_reader_between_whose_looks_the_log_was_replaced_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = filled(tmp_path / "state", 20)
    shorter = filled(tmp_path / "shorter", 10)

    def read_head_then_lose_the_log(directory: Path) -> Head | None:
        monkeypatch.undo()
        head = read_head(directory)
        for name in ("events.jsonl", "HEAD"):
            (shorter.path / name).rename(directory / name)
        return head

    monkeypatch.setattr(file_store, "read_head", read_head_then_lose_the_log)
    view = state.read()
    assert (view.seq, view.damage) == (10, None)


def test_a_reader_during_recoveries_sees_no_damage(tmp_path: Path) -> None:
    """Each recovery puts another file in the place of the log."""
    state = filled(tmp_path / "state", 20)
    reader = StateDir(state.path, now=lambda: 0.0, actor="me@laptop")
    for _ in range(10):
        seq = reader.read().seq
        (state.path / "HEAD").unlink()
        with (state.path / "events.jsonl").open("ab") as log:
            log.write(b'{"seq"')
        assert reader.read(after_seq=seq).damage is None
        with state.locked("iris drain"):
            assert reader.read(after_seq=seq).transactions == ()
        assert reader.read(after_seq=seq).seq == 20


@pytest.mark.parametrize("behind", ["nothing", "a line", "half a line"])
def test_a_reader_of_a_reverted_line_is_told(tmp_path: Path, behind: str) -> None:
    state = filled(tmp_path / "state", 5)
    path, five = state.path / "events.jsonl", verify(state.path).sound_until
    committed = path.read_bytes()
    path.write_bytes(committed + encode_line(five, STORY[9], at=0.0, actor="whose disk is full"))
    reader = state_in(state.path)
    assert (reader.read().seq, reader.read(5).committed) == (6, False)

    line = encode_line(five, STORY[8], at=0.0, actor="another")
    six = end_of_line(five, line, 0.0)
    next_one = encode_line(six, STORY[9], at=0.0, actor="a third")
    more = {"nothing": b"", "a line": next_one, "half a line": next_one[: len(next_one) // 2]}[behind]
    path.write_bytes(committed + line + more)
    write_head(DISK, state.path, six)
    for _ in range(2):
        with pytest.raises(LogReplacedError):
            reader.read(after_seq=6)
    with pytest.raises(LogReplacedError), reader.locked("iris schedule", after_seq=6):
        pass


def test_a_reader_of_a_removed_log_is_told(tmp_path: Path) -> None:
    state = filled(tmp_path / "state", 5)
    assert state.read().seq == 5
    (state.path / "events.jsonl").unlink()
    with pytest.raises(LogReplacedError):
        state.read(after_seq=5)


@pytest.mark.parametrize("damaged", [3, 6])
def test_who_saw_damage_learns_that_other_lines_stand_there_since(tmp_path: Path, damaged: int) -> None:
    state = filled(tmp_path / "state", 6)
    path = state.path / "events.jsonl"
    lines, reader = path.read_bytes().splitlines(keepends=True), state_in(state.path)
    assert reader.read().seq == 6
    sound = b"".join(lines[: damaged - 1])
    path.write_bytes(sound.ljust(path.stat().st_size, b"\0"))
    assert reader.read(after_seq=6).damage is not None

    path.write_bytes(sound)
    write_head(DISK, state.path, verify(state.path).sound_until)
    for _ in range(5):
        with state_in(state.path).locked("iris drain") as writer:
            writer.append(STORY[9], at=0.0)
    for _ in range(2):
        with pytest.raises(LogReplacedError):
            reader.read(after_seq=6)
