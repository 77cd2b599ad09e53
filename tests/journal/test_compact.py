"""Compaction: the lines go to the archive, nothing is lost at any step, and nobody who reads on notices."""

from __future__ import annotations

import errno
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.core.events.events import LogCompacted, Transaction, WorkerDrained
from iris_cli.core.ids import WorkerId
from iris_cli.errors import LockedError, LogDamagedError, NotWritableError
from iris_cli.files import Disk
from iris_cli.journal.log.verify import verify
from iris_cli.journal.state_dir import StateDir
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


class Slow(Disk):
    """While the segment is put in its place, somebody deletes the lock file, and another command commits."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile = meanwhile

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        if target.parent.name == "archive":
            self._meanwhile()


def test_what_somebody_else_commits_when_the_lock_was_lost_meanwhile_stays(state: StateDir) -> None:
    def during_compaction() -> None:
        (state.path / "lock").unlink()
        assert commit(state_in(state.path)) == COUNT + 1

    with pytest.raises(LockedError, match="deleted or replaced"):
        on(Slow(during_compaction), state.path).compact("iris log compact")
    assert transactions(state.path)[-1].events == (EVENT,)
    compact(state)
    assert commit(state) == COUNT + 3
    assert verify(state.path).ok


def test_the_draft_of_another_process_is_not_deleted_when_the_lock_was_lost(state: StateDir) -> None:
    draft = state.path / "events.jsonl.tmp"

    def during_compaction() -> None:
        (state.path / "lock").unlink()

    with pytest.raises(LockedError, match="deleted or replaced"):
        on(Slow(during_compaction), state.path).compact("iris log compact")
    assert draft.exists()
    compact(state)
    assert not draft.exists()


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
def test_a_reader_of_a_part_of_the_log_continues_after_a_compaction(state: StateDir, known: int) -> None:
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
    assert not list(path.glob("archive/*.tmp"))


PREPARED = pytest.mark.parametrize(
    "prepare", [sound, compacted_before, interrupted_before], ids=lambda each: each.__name__
)


@PREPARED
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_step_loses_nothing_and_the_next_writer_goes_on(
    tmp_path: Path, prepare: Callable[[Path], None], after: bool
) -> None:
    drafts: set[str] = set()
    for step in STEPS:
        path = fresh(tmp_path, prepare)
        before = transactions(path)
        disk = BadDisk(step, PowerCut, after=after)
        try:
            on(disk, path).compact("iris log compact")
        except PowerCut:
            drafts |= {each.name for each in path.glob("**/*.tmp")}
        else:
            assert disk.calls.count("fsync") >= 4
            break
        check_goes_on(path, before)
    else:
        pytest.fail("no run without a fault")
    # A crash leaves drafts. Their names are constant, so that the next compaction overwrites them.
    assert drafts >= {"segment.tmp", "events.jsonl.tmp"}


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
        assert not list(path.glob("**/*.tmp"))
        check_goes_on(path, before)
    assert step > 6


def test_the_segment_is_durable_before_the_log_is_replaced(tmp_path: Path) -> None:
    """The new directory; the segment, its name and the name's durability; the same of the log; and HEAD."""
    path = fresh(tmp_path, sound)
    disk = BadDisk(99, errno.EIO)
    on(disk, path).compact("iris log compact")
    calls = [*disk.calls[:1], *(each for each in disk.calls[1:] if each != "write")]
    assert calls == ["fsync", "fsync", "rename", "fsync", "fsync", "rename", "fsync"]
