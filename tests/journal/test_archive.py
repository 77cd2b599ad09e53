"""Damage in the archive: it is found and named, live commands do without it, and salvage makes the best of it."""

from __future__ import annotations

import errno
import gzip
import random
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from iris_cli.errors import LogDamagedError, LogReplacedError, NotWritableError
from iris_cli.journal.log import archive
from iris_cli.journal.log.file_store import FileStore
from iris_cli.journal.log.record import LogRecord
from iris_cli.journal.log.verify import VerifyReport, salvage, verify
from iris_cli.journal.state_dir import StateDir
from tests.journal.samples import NOON, filled, state_in
from tests.journal.test_compact import (
    COUNT,
    archived,
    commit,
    compact,
    compacted_before,
    log,
    name,
    transactions,
)
from tests.journal.test_faults import STEPS, BadDisk, PowerCut, fresh


def found(verdict: VerifyReport) -> list[tuple[str, int, int, str]]:
    return [(fault.file, fault.line, fault.seq, fault.what) for fault in verdict.findings]


def grown(path: Path) -> dict[int, StateDir]:
    """A log with three segments behind it, of 12, 4 and 2 lines; and who read it on the way, by how far it went."""
    state, readers = filled(path, COUNT), {}
    for commits in (3, 1, 1):
        compact(state)
        for step in range(commits + 1):
            if step > 0:
                commit(state)
            reader = state_in(path)
            readers[reader.read().seq] = reader
    assert archived(path) == [name(1, 12), name(13, 16), name(17, 18)]
    return readers


@pytest.fixture
def three(tmp_path: Path) -> Path:
    grown(tmp_path / "state")
    return tmp_path / "state"


def test_a_segment_that_is_missing_is_named_with_what_is_lost(three: Path) -> None:
    (three / "archive" / name(13, 16)).unlink()
    assert found(verify(three)) == [
        (f"archive/{name(17, 18)}", 1, 13, "seq 13 to 16 before this line are missing in the archive")
    ]
    view = state_in(three).read()
    assert view.damage is not None
    assert "seq 13 to 16 before this line are missing" in view.damage.what
    assert view.seq == 12
    with pytest.raises(LogDamagedError, match="seq 13 to 16"):
        commit(state_in(three))


def test_progress_in_the_archive_is_shown(three: Path) -> None:
    reading = state_in(three).read_history(archive=True)
    seen = [(each.seq, reading.progress) for each in reading]
    assert seen[:18] == [(seq, (seq, 18, "transaction")) for seq in range(1, 19)]
    size = (three / "events.jsonl").stat().st_size
    assert seen[-1] == (20, (size, size, "bytes"))
    store = FileStore(three)
    told: list[object] = []

    def keep(records: Iterable[LogRecord]) -> tuple[LogRecord, ...]:
        told.extend((each.seq, store.scan and store.scan.progress) for each in records)
        return ()

    store.load(keep=keep)
    assert told == seen


def test_the_last_segment_missing_is_found_at_the_log(three: Path) -> None:
    (three / "archive" / name(17, 18)).unlink()
    assert found(verify(three)) == [
        ("events.jsonl", 1, 17, "seq 17 to 18 before this line are missing in the archive")
    ]


def test_without_an_archive_the_log_says_what_is_lost(three: Path) -> None:
    (three / "archive").rename(three / "elsewhere")
    assert found(verify(three))[0][2:] == (1, "seq 1 to 18 before this line are missing in the archive")
    assert state_in(three).read().damage is not None


def test_a_reader_of_all_archived_lines_needs_no_archive(three: Path) -> None:
    (three / "archive").rename(three / "elsewhere")
    view = state_in(three).read(18)
    assert view.damage is None
    assert [each.seq for each in view.transactions] == [19, 20]
    assert commit(state_in(three), 18) == 21


def test_a_reader_of_a_part_of_a_segment_reads_only_the_rest(tmp_path: Path) -> None:
    """However long the archive is: who stays while others compact the log reads what came, and no more."""
    path = tmp_path / "state"
    readers, whole = grown(path), transactions(path)
    (path / "archive" / name(1, 12)).write_bytes(b"spoilt")
    assert state_in(path).read().seq == 0
    for known in (13, 15, 16, 17, 18):
        view = readers[known].read(known)
        assert view.damage is None
        assert view.header is not None
        assert view.transactions == whole[known:]
    assert commit(readers[14], 14) == len(whole) + 1


def test_a_line_that_differs_from_the_segment_is_reported(tmp_path: Path) -> None:
    readers = grown(tmp_path / "state")
    (tmp_path / "state").rename(tmp_path / "gone")
    grown(tmp_path / "state")
    with pytest.raises(LogReplacedError):
        readers[15].read(15)


def test_damage_in_the_segment_that_one_has_read_into_is_found(tmp_path: Path) -> None:
    reader = grown(tmp_path / "state")[14]
    segment = tmp_path / "state/archive" / name(13, 16)
    lines = gzip.decompress(segment.read_bytes())
    for spoilt, what in (
        (gzip.compress(lines.replace(b'"seq":15', b'"seq":16')), r"line 3 .*seq 15\): the checksum is wrong"),
        (gzip.compress(lines[1:]), r"line 1 \(byte 0, seq 13\): the checksum is wrong"),
        (b"spoilt", r"line 1 \(byte 0, seq 13\): the segment can't be read"),
    ):
        segment.write_bytes(spoilt)
        damage = reader.read(14).damage
        assert damage is not None
        assert re.search(rf"{name(13, 16)} is damaged at {what}", damage.what)


TRAILER = 8  # bytes of a gzip file behind the packed ones


def test_a_segment_cut_off_at_any_byte_is_found_and_read_up_to_there(three: Path) -> None:
    path = three / "archive" / name(13, 16)
    whole = path.read_bytes()
    for size in {*range(0, len(whole) - TRAILER - 1, 7), 1, len(whole) - TRAILER - 2}:
        path.write_bytes(whole[:size])
        (fault,) = verify(three).findings
        assert fault.file == f"archive/{path.name}"
        assert fault.what.startswith("the segment can't be read")
        view = state_in(three).read()
        assert view.damage is not None
        assert 12 <= view.seq <= 16
        assert [each.seq for each in view.transactions] == list(range(1, view.seq + 1))


@pytest.mark.parametrize("segment", [name(1, 12), name(13, 16), name(17, 18)])
@pytest.mark.parametrize("spoilt", ["cut", "changed"])
def test_a_segment_with_a_bad_trailer_has_all_its_lines_for_readers_and_writers(
    three: Path, segment: str, spoilt: str
) -> None:
    before, path = transactions(three), three / "archive" / segment
    whole = path.read_bytes()
    trailer = b"" if spoilt == "cut" else bytes([whole[-TRAILER] ^ 1]) + whole[-TRAILER + 1 :]
    path.write_bytes(whole[:-TRAILER] + trailer)
    view, reading = state_in(three).read(), state_in(three).read_history(archive=True)
    assert view.transactions == tuple(reading) == before
    assert (view.damage, reading.damage) == (None, None)
    assert verify(three).ok
    with state_in(three).locked("iris drain") as writer:
        assert writer.transactions == before


def test_a_flipped_bit_anywhere_in_a_segment_is_found_or_harmless(three: Path) -> None:
    path = three / "archive" / name(13, 16)
    whole = path.read_bytes()
    before = transactions(three)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(40):
        place, bit = chance.randrange(len(whole)), chance.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        view = state_in(three).read()
        if verify(three).ok:
            assert view.transactions == before
        else:
            assert view.damage is not None or view.transactions == before
        assert view.transactions == before[: view.seq]


def test_what_stands_before_damage_in_the_packed_bytes_is_read(three: Path) -> None:
    path = three / "archive" / name(1, 12)
    whole = path.read_bytes()
    half = len(whole) // 2
    path.write_bytes(whole[:half] + b"\xff" * 20 + whole[half + 20 :])
    assert 0 < state_in(three).read().seq < 12


def test_a_segment_that_may_not_be_read_is_not_said_to_be_damaged(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, flags: int) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(archive, "open_safely", refuse)
    for look in (
        lambda: verify(three),
        lambda: state_in(three).read(),
        lambda: list(state_in(three).read_history(archive=True)),
        lambda: salvage(three, now=NOON, actor="me@laptop"),
    ):
        with pytest.raises(NotWritableError, match=f"{name(1, 12)}.*: Permission denied"):
            look()


@pytest.mark.parametrize("what", ["archive.open_safely", "archive.os.listdir"])
def test_an_unreadable_segment_without_a_log_is_no_internal_error(
    three: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def refuse(path: Path, *_flags: int) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    (three / "events.jsonl").unlink()
    monkeypatch.setattr(f"iris_cli.journal.log.{what}", refuse)
    for look in (lambda: verify(three), lambda: salvage(three, now=NOON, actor="me@laptop")):
        with pytest.raises(NotWritableError, match=r"archive.*: Permission denied"):
            look()


def test_salvage_is_not_deceived_by_the_names_of_segments(three: Path) -> None:
    before = transactions(three)
    copy = three / "archive" / name(18, 19)
    copy.write_bytes((three / "archive" / name(17, 18)).read_bytes())
    copy.chmod(0o600)
    assert not verify(three).ok
    assert salvage(three, now=NOON, actor="me@laptop").kept == 18
    assert transactions(three) == before[:18]
    assert commit(state_in(three)) == 19


def test_a_segment_under_a_wrong_name_is_found_by_whoever_reads_it(three: Path) -> None:
    (three / "archive" / name(13, 16)).rename(three / "archive" / name(11, 16))
    assert state_in(three).read().damage is not None
    assert not verify(three).ok


def test_a_segment_of_another_log_is_found(three: Path, tmp_path: Path) -> None:
    other = filled(tmp_path / "other", COUNT)
    compact(other)
    (three / "archive" / name(1, 12)).write_bytes((other.path / "archive" / name(1, 12)).read_bytes())
    first = verify(three).findings[0]
    assert first.file == f"archive/{name(13, 16)}"
    assert first.what.startswith("prev is")
    assert not verify(three).ok


def test_what_was_damaged_before_it_was_packed_is_found_by_line(three: Path) -> None:
    path = three / "archive" / name(13, 16)
    lines = gzip.decompress(path.read_bytes()).replace(b"afterwards", b"before", 1)
    path.write_bytes(gzip.compress(lines))
    assert found(verify(three)) == [(f"archive/{path.name}", 2, 14, "the checksum is wrong")]


# Salvage


def spoil(path: Path, segment: str, line: int) -> None:
    """Damage one line of a segment, counted from 1."""
    lines = gzip.decompress((path / "archive" / segment).read_bytes()).splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b'"seq"', b'"sEq"')
    (path / "archive" / segment).write_bytes(gzip.compress(b"".join(lines)))


@pytest.mark.parametrize(
    ("segment", "line", "kept"),
    [
        (name(1, 12), 1, 0),
        (name(1, 12), 5, 4),
        (name(13, 16), 1, 12),
        (name(13, 16), 3, 14),
        (name(17, 18), 2, 17),
    ],
)
def test_what_stands_before_the_damage_in_a_segment_becomes_the_log(
    three: Path, segment: str, line: int, kept: int
) -> None:
    before, old_log = transactions(three), (three / "events.jsonl").read_bytes()
    spoil(three, segment, line)
    report = salvage(three, now=NOON, actor="me@laptop")
    assert (report.kept, report.lost) == (kept, 20 - kept)
    assert report.old_log is not None
    assert report.old_log.read_bytes() == old_log
    if kept == 0:
        state_in(three).create("lab")
    assert transactions(three)[:kept] == before[:kept]
    assert verify(three).ok
    assert commit(state_in(three)) == max(kept, 1) + 1
    compact(state_in(three))
    assert transactions(three)[:kept] == before[:kept]
    assert verify(three).ok
    old = [each.name for each in (three / "archive").iterdir() if ".old-" in each.name]
    assert len(old) == len(report.old_segments)


def test_a_log_without_its_first_line_is_made_of_the_last_segment(three: Path) -> None:
    before = transactions(three)
    (three / "events.jsonl").write_bytes(b"oops\n" + log(three)[1] + b"\n")
    assert found(verify(three))[0] == ("events.jsonl", 1, 19, "the checksum is wrong")
    report = salvage(three, now=NOON, actor="me@laptop")
    assert (report.kept, report.lost) == (18, 2)
    assert transactions(three) == before[:18]
    assert commit(state_in(three)) == 19


def test_damage_in_the_log_itself_leaves_the_archive_alone(three: Path) -> None:
    before, names = transactions(three), archived(three)
    path = three / "events.jsonl"
    path.write_bytes(path.read_bytes().replace(b"afterwards", b"before"))
    (three / "HEAD").unlink()
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[0])
    report = salvage(three, now=NOON, actor="me@laptop")
    assert report.kept == 19
    assert transactions(three) == before[:19]
    assert archived(three) == names


@pytest.mark.parametrize("fault", [PowerCut, errno.ENOSPC])
def test_a_salvage_of_the_archive_that_fails_at_any_step_can_be_repeated(
    tmp_path: Path, fault: int | type[PowerCut]
) -> None:
    for step in STEPS:
        path = fresh(tmp_path, compacted_before)
        compact(state_in(path))
        before = transactions(path)
        spoil(path, name(9, 12), 3)
        try:
            salvage(path, now=NOON, actor="me@laptop", disk=BadDisk(step, fault))
        except (PowerCut, NotWritableError):
            salvage(path, now=NOON, actor="me@laptop")
            assert transactions(path) == before[:10]
            assert commit(state_in(path)) == 11
            compact(state_in(path))
            assert transactions(path)[:10] == before[:10]
            assert verify(path).ok
        else:
            break
    assert step > 5


def test_a_log_that_is_missing_beside_its_archive_is_no_new_cluster(three: Path) -> None:
    before = transactions(three)
    (three / "events.jsonl").unlink()
    for refused in (lambda: state_in(three).create("lab"), lambda: commit(state_in(three))):
        with pytest.raises(LogDamagedError, match="the log is missing"):
            refused()
    assert found(verify(three))[0] == (
        "events.jsonl",
        1,
        19,
        "the log is missing, its archive is not",
    )
    report = salvage(three, now=NOON, actor="me@laptop")
    assert (report.kept, report.lost, report.old_log) == (18, 2, None)
    assert transactions(three) == before[:18]
    assert commit(state_in(three)) == 19


@pytest.mark.parametrize("head", ["with HEAD", "without"])
@pytest.mark.parametrize("left", [b"", b'{"seq":20,"prev":"', b"\0" * 300])
def test_a_log_of_which_nothing_is_left_beside_its_archive_is_no_new_cluster(
    three: Path, left: bytes, head: str
) -> None:
    before = transactions(three)
    (three / "events.jsonl").write_bytes(left)
    if head == "without":
        (three / "HEAD").unlink()
    for accept in (False, True):
        with pytest.raises(LogDamagedError, match="the log is missing"):
            state_in(three).create("lab", accept_loss=accept)
    verdict = verify(three)
    assert ("events.jsonl", 19) in [(fault.file, fault.seq) for fault in verdict.findings]
    assert verdict.unfinished is None
    reading = state_in(three).read_history(archive=True)
    assert tuple(reading) == before[:18]
    assert reading.damage is not None
    assert salvage(three, now=NOON, actor="me@laptop").kept == 18
    assert transactions(three) == before[:18]
    assert commit(state_in(three)) == 19
