"""Compaction: the lines go to the archive, nothing is lost at any step, and nobody who reads on notices."""

from __future__ import annotations

import errno
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.core.events import LogCompacted, Transaction, WorkerDrained
from iris_cli.core.ids import WorkerId
from iris_cli.errors import LogDamagedError, NotWritableError
from iris_cli.journal.salvage import salvage
from iris_cli.journal.state_dir import StateDir
from iris_cli.journal.verify import Verdict, verify
from tests.journal.samples import NOON, filled, state_in
from tests.journal.test_faults import STEPS, BadDisk, PowerCut, fresh, on

COUNT = 12
EVENT = WorkerDrained(worker=WorkerId("v4a-0"), reason="afterwards")


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return filled(tmp_path / "state", COUNT)


def commit(state: StateDir, after_seq: int = 0) -> int:
    with state.locked("iris drain", after_seq=after_seq) as writer:
        return writer.append([EVENT], at=NOON).seq


def compact(state: StateDir, after_seq: int = 0) -> None:
    done, _ = state.compact("iris log compact", after_seq=after_seq)
    assert done is not None


def transactions(path: Path) -> tuple[Transaction, ...]:
    """What somebody reads who knows nothing yet."""
    view = state_in(path).read()
    assert view.damage is None
    return view.transactions


def archived(path: Path) -> list[str]:
    return sorted(each.name for each in (path / "archive").iterdir())


def log(path: Path) -> list[bytes]:
    return (path / "events.jsonl").read_bytes().splitlines()


def name(first: int, last: int) -> str:
    return f"events-{first:012}-{last:012}.jsonl.gz"


def found(verdict: Verdict) -> list[tuple[str, int, int, str]]:
    return [(fault.file, fault.line, fault.seq, fault.what) for fault in verdict.findings]


# What it does


def test_the_lines_go_to_a_segment_as_they_are_and_the_log_begins_behind_them(state: StateDir) -> None:
    before = (state.path / "events.jsonl").read_bytes()
    compact(state)
    assert archived(state.path) == [name(1, COUNT)]
    segment = state.path / "archive" / name(1, COUNT)
    assert gzip.decompress(segment.read_bytes()) == before
    assert segment.stat().st_mode & 0o777 == 0o600
    assert segment.parent.stat().st_mode & 0o777 == 0o700
    (line,) = log(state.path)
    header, first = json.loads(line), json.loads(before.splitlines()[0])
    assert header["seq"] == COUNT + 1
    assert header["prev"] == json.loads(before.splitlines()[-1])["crc"]
    assert [header[key] for key in ("format", "cluster_id", "program")] == [
        first[key] for key in ("format", "cluster_id", "program")
    ]
    assert header["events"] == [{"type": "LogCompacted", "name": "lab", "through": COUNT}]
    assert json.loads((state.path / "HEAD").read_text())["seq"] == COUNT + 1


def test_all_transactions_are_still_read_and_those_to_come_follow_them(state: StateDir) -> None:
    before = state.read().transactions
    for round_ in range(3):
        compact(state)
        assert commit(state) == COUNT + 2 * (round_ + 1)
    after = transactions(state.path)
    assert after[:COUNT] == before
    assert [each.seq for each in after] == list(range(1, COUNT + 7))
    assert [type(each.events[0]) for each in after[COUNT:]] == [LogCompacted, WorkerDrained] * 3
    assert archived(state.path) == [name(1, 12), name(13, 14), name(15, 16)]
    verdict = verify(state.path)
    assert (verdict.ok, verdict.records, verdict.segments) == (True, COUNT + 6, 3)


def test_a_log_that_is_nothing_but_its_header_stays_as_it_is(state: StateDir) -> None:
    compact(state)
    before = (state.path / "events.jsonl").read_bytes()
    assert state.compact("iris log compact")[0] is None
    assert (state.path / "events.jsonl").read_bytes() == before
    assert len(archived(state.path)) == 1


@pytest.mark.parametrize("known", [0, 1, COUNT - 1, COUNT])
def test_who_has_read_some_of_the_log_reads_on_behind_it(state: StateDir, known: int) -> None:
    reader = state_in(state.path)
    before = reader.read().transactions
    compact(state)
    commit(state)
    after = reader.read(known)
    assert after.damage is None
    assert after.transactions[: COUNT - known] == before[known:]
    assert [each.seq for each in after.transactions] == list(range(known + 1, COUNT + 3))
    assert commit(reader, after.seq) == COUNT + 3


def test_a_writer_goes_on_behind_its_own_compaction(state: StateDir) -> None:
    with state.locked("iris drain") as writer:
        assert writer.compact(at=NOON) is not None
        assert writer.append([EVENT], at=NOON).seq == COUNT + 2
    assert len(transactions(state.path)) == COUNT + 2


def test_what_an_interrupted_writer_left_is_recovered_first(state: StateDir) -> None:
    with (state.path / "events.jsonl").open("ab") as stream:
        stream.write(b'{"seq":13,"prev"')
    done, messages = state.compact("iris log compact")
    assert done is not None
    assert "unfinished" in messages[0]
    assert archived(state.path) == [name(1, COUNT)]
    assert len(transactions(state.path)) == COUNT + 1


def test_a_damaged_log_is_not_compacted(state: StateDir) -> None:
    path = state.path / "events.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"w3"', b'"w4"'))
    with pytest.raises(LogDamagedError):
        state.compact("iris log compact")
    assert not (state.path / "archive").exists()


# When it fails


def sound(path: Path) -> None:
    filled(path, COUNT)


def compacted_before(path: Path) -> None:
    """With one segment in the archive, and two lines behind the header."""
    state = filled(path, COUNT - 4)
    compact(state)
    for _ in range(3):
        commit(state)


def interrupted_before(path: Path) -> None:
    """With the segment of a compaction that never came to replace the log, which went on since."""
    state = filled(path, COUNT - 1)
    kept = {each: (path / each).read_bytes() for each in ("events.jsonl", "HEAD")}
    compact(state)
    for each, content in kept.items():
        (path / each).write_bytes(content)
    commit(state_in(path))


def check_goes_on(path: Path, before: tuple[Transaction, ...]) -> None:
    """Nothing that was committed is lost or changed, and the next commands work as ever."""
    assert transactions(path)[:COUNT] == before
    assert verify(path).ok
    seq = commit(state_in(path))
    assert seq - COUNT in (1, 2)
    compact(state_in(path))
    assert transactions(path)[:COUNT] == before
    assert [each.seq for each in transactions(path)] == list(range(1, seq + 2))
    assert verify(path).ok


PREPARED = pytest.mark.parametrize(
    "prepare", [sound, compacted_before, interrupted_before], ids=lambda each: each.__name__
)


@PREPARED
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_step_loses_nothing_and_the_next_writer_goes_on(
    tmp_path: Path, prepare: Callable[[Path], None], after: bool
) -> None:
    for step in STEPS:
        path = fresh(tmp_path, prepare)
        before = transactions(path)
        disk = BadDisk(step, PowerCut, after=after)
        try:
            on(disk, path).compact("iris log compact")
        except PowerCut:
            pass
        else:
            assert disk.calls.count("fsync") >= 4
            break
        check_goes_on(path, before)
    else:
        pytest.fail("no run without a fault")


@pytest.mark.parametrize("fault", [errno.ENOSPC, "short"])
@pytest.mark.parametrize("worn", [False, True], ids=["once", "worn"])
def test_a_disk_that_fails_at_any_step_is_a_clear_error_and_nothing_is_lost(
    tmp_path: Path, fault: int | str, worn: bool
) -> None:
    for step in STEPS:
        path = fresh(tmp_path, compacted_before)
        before = transactions(path)
        try:
            on(BadDisk(step, fault, worn=worn), path).compact("iris log compact")
        except NotWritableError:
            pass
        else:
            break
        assert not list(path.glob("**/*.gz.tmp"))
        check_goes_on(path, before)
    assert step > 6


def test_the_segment_is_durable_before_the_log_is_replaced(tmp_path: Path) -> None:
    """The new directory; the segment, its name and the name's durability; the same of the log; and HEAD."""
    path = fresh(tmp_path, sound)
    disk = BadDisk(99, errno.EIO)
    on(disk, path).compact("iris log compact")
    calls = [*disk.calls[:1], *(each for each in disk.calls[1:] if each != "write")]
    assert calls == ["fsync", "fsync", "rename", "fsync", "fsync", "rename", "fsync", "rename"]


# Damage in the archive


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A log with three segments behind it, of 12, 4 and 2 lines."""
    state = filled(tmp_path / "state", COUNT)
    compact(state)
    for _ in range(3):
        commit(state)
    compact(state)
    commit(state)
    compact(state)
    commit(state)
    assert archived(state.path) == [name(1, 12), name(13, 16), name(17, 18)]
    return state.path


def test_a_segment_that_is_missing_is_named_with_what_is_lost(three: Path) -> None:
    (three / "archive" / name(13, 16)).unlink()
    assert found(verify(three)) == [
        (f"archive/{name(17, 18)}", 1, 13, "the archive lacks seq 13 to 16, which went before this line")
    ]
    view = state_in(three).read()
    assert view.damage is not None
    assert "the archive lacks seq 13 to 16" in view.damage.what
    assert view.seq == 12
    with pytest.raises(LogDamagedError, match="seq 13 to 16"):
        commit(state_in(three))


def test_the_last_segment_missing_is_found_at_the_log(three: Path) -> None:
    (three / "archive" / name(17, 18)).unlink()
    assert found(verify(three)) == [
        ("events.jsonl", 1, 17, "the archive lacks seq 17 to 18, which went before this line")
    ]


def test_without_an_archive_the_log_says_what_is_lost(three: Path) -> None:
    (three / "archive").rename(three / "elsewhere")
    assert found(verify(three))[0][2:] == (1, "the archive lacks seq 1 to 18, which went before this line")
    assert state_in(three).read().damage is not None


def test_who_has_what_is_in_the_archive_needs_none(three: Path) -> None:
    (three / "archive").rename(three / "elsewhere")
    view = state_in(three).read(18)
    assert view.damage is None
    assert [each.seq for each in view.transactions] == [19, 20]
    assert commit(state_in(three), 18) == 21


def test_a_segment_cut_off_at_any_byte_is_found_and_read_up_to_there(three: Path) -> None:
    path = three / "archive" / name(13, 16)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        (fault,) = verify(three).findings
        assert fault.file == f"archive/{path.name}"
        assert fault.what.startswith("the segment can't be read")
        view = state_in(three).read()
        assert view.damage is not None
        assert 12 <= view.seq <= 16
        assert [each.seq for each in view.transactions] == list(range(1, view.seq + 1))


def test_a_flipped_bit_anywhere_in_a_segment_is_found_or_harmless(three: Path) -> None:
    path = three / "archive" / name(13, 16)
    whole = path.read_bytes()
    before = transactions(three)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(100):
        place, bit = chance.randrange(len(whole)), chance.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        view = state_in(three).read()
        if verify(three).ok:
            assert view.transactions == before
        else:
            assert view.damage is not None or view.transactions == before
        assert view.transactions == before[: view.seq]


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
    assert (report.kept, report.lost) == (kept, 20 - kept - 1)
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
    assert (report.kept, report.lost) == (18, 1)
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
        "the log is missing, and what went to its archive is there",
    )
    report = salvage(three, now=NOON, actor="me@laptop")
    assert (report.kept, report.lost, report.old_log) == (18, 0, None)
    assert transactions(three) == before[:18]
    assert commit(state_in(three)) == 19
