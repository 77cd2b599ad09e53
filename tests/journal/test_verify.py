"""`iris log verify` and `iris log salvage`: everything that is wrong is told, and nothing is thrown away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iris_cli.core.events.events import Event, WorkerDrained, WorkerRegistered
from iris_cli.core.ids import WorkerId
from iris_cli.errors import LogDamagedError, NotFoundError
from iris_cli.journal.log.verify import VerifyReport, salvage, verify
from iris_cli.journal.state_dir import StateDir
from tests.journal.samples import HOST, NOON, filled, state_in
from tests.journal.test_record import seal

COUNT = 20
DRAINED = [WorkerDrained(worker=WorkerId("v4a-0"))]


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return filled(tmp_path / "state", COUNT)


def lines(state: StateDir) -> list[bytes]:
    return (state.path / "events.jsonl").read_bytes().splitlines(keepends=True)


def spoil(state: StateDir, lines: list[bytes]) -> None:
    (state.path / "events.jsonl").write_bytes(b"".join(lines))


def found(verdict: VerifyReport) -> list[tuple[int, int, str]]:
    return [(fault.line, fault.seq, fault.what) for fault in verdict.findings]


def test_a_sound_log_has_no_findings(state: StateDir) -> None:
    verdict = verify(state.path)
    assert verdict.ok
    assert (verdict.records, verdict.sound_until.seq, verdict.unfinished) == (COUNT, COUNT, None)
    assert verdict.header == state.read().header


def test_without_a_log_there_is_nothing_to_verify(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        verify(tmp_path)
    with pytest.raises(NotFoundError):
        salvage(tmp_path / "nowhere", now=NOON, actor="me@laptop")


def test_an_unfinished_line_is_no_finding(state: StateDir) -> None:
    spoil(state, [*lines(state), b'{"seq":21'])
    verdict = verify(state.path)
    assert verdict.ok
    assert verdict.unfinished is not None
    assert (verdict.unfinished.line, verdict.unfinished.seq) == (COUNT + 1, COUNT + 1)


def test_every_damaged_place_is_found_not_only_the_first(state: StateDir) -> None:
    raw = lines(state)
    raw[3] = raw[3].replace(b"w3", b"w4")
    raw[7:9] = [b"\0" * 40 + b"\n", b"oops\n"]
    del raw[12]
    spoil(state, raw)
    verdict = verify(state.path)
    assert found(verdict) == [
        (4, 4, "the checksum is wrong"),
        (8, 8, "the checksum is wrong"),
        (9, 9, "the checksum is wrong"),
        (13, 13, "seq 14 follows 12"),
    ]
    assert [fault.offset for fault in verdict.findings] == [len(b"".join(raw[:n])) for n in (3, 7, 8, 12)]
    assert (verdict.sound_until.seq, verdict.records) == (3, COUNT - 5)


def test_a_repeated_end_is_found_once(state: StateDir) -> None:
    spoil(state, lines(state) + lines(state)[-3:])
    assert found(verify(state.path)) == [(COUNT + 1, COUNT + 1, "seq 18 follows 20")]


def test_what_head_says_against_the_log_is_found(state: StateDir, tmp_path: Path) -> None:
    head, raw = json.loads((state.path / "HEAD").read_text()), lines(state)
    spoil(state, raw[:-2])
    assert found(verify(state.path)) == [(18, 20, "HEAD says it was committed, but the log ends at seq 18")]
    spoil(state, raw)
    (state.path / "HEAD").write_text(json.dumps(head | {"crc": "00000000"}))
    assert found(verify(state.path)) == [(20, 20, "HEAD names another line than this one")]
    other = filled(tmp_path / "other", COUNT)
    spoil(state, lines(other))
    assert found(verify(state.path)) == [(20, 20, "HEAD belongs to the log of another cluster")]


def test_verifying_changes_nothing(state: StateDir) -> None:
    spoil(state, [*lines(state)[:4], b"oops\n", *lines(state)[5:], b"unfinished"])
    before = {path: path.read_bytes() for path in state.path.iterdir()}
    verify(state.path)
    assert {path: path.read_bytes() for path in state.path.iterdir()} == before


def test_salvage_keeps_what_stands_before_the_damage_and_the_whole_old_file_beside_it(
    state: StateDir,
) -> None:
    whole = state.read().transactions
    damaged = [*lines(state)[:12], b"oops\n", *lines(state)[13:], b"unfinished"]
    spoil(state, damaged)
    report = salvage(state.path, now=NOON, actor="me@laptop")
    assert (report.kept, report.lost) == (12, COUNT - 12)
    assert [fault.line for fault in report.findings] == [13]
    assert report.old_log == state.path / "events.jsonl.damaged-20261121T120000.000Z"
    assert report.old_log.read_bytes() == b"".join(damaged)
    assert report.old_log.stat().st_mode & 0o777 == 0o600
    with state_in(state.path).locked("iris drain") as writer:
        assert writer.transactions == whole[:12]
        assert writer.messages == ()
        assert writer.append(DRAINED, at=NOON).seq == 13
    assert verify(state.path).ok


def test_a_second_salvage_in_the_same_moment_keeps_both_old_files(state: StateDir) -> None:
    for at_line in (15, 10):
        spoil(state, [*lines(state)[:at_line], b"oops\n", *lines(state)[at_line + 1 :]])
        assert salvage(state.path, now=NOON, actor="me@laptop").kept == at_line
    assert len(list(state.path.glob("events.jsonl.damaged-*"))) == 2


def test_a_sound_log_needs_no_salvage(state: StateDir) -> None:
    before = lines(state)
    report = salvage(state.path, now=NOON, actor="me@laptop")
    assert (report.kept, report.lost, report.old_log) == (COUNT, 0, None)
    assert lines(state) == before
    assert not list(state.path.glob("*damaged*"))


def test_after_salvage_a_log_without_its_first_line_can_begin_anew(state: StateDir) -> None:
    spoil(state, [b"oops\n", *lines(state)[1:]])
    report = salvage(state.path, now=NOON, actor="me@laptop")
    assert (report.kept, report.lost) == (0, COUNT)
    state_in(state.path).create("lab")
    assert state_in(state.path).read().seq == 1


def test_salvage_accepts_that_committed_lines_are_missing(state: StateDir) -> None:
    spoil(state, lines(state)[:-2])
    report = salvage(state.path, now=NOON, actor="me@laptop")
    assert (report.kept, report.lost) == (COUNT - 2, 2)
    with state_in(state.path).locked("iris drain") as writer:
        assert writer.seq == COUNT - 2


def test_the_log_of_another_cluster_is_not_made_ours_by_salvage(state: StateDir, tmp_path: Path) -> None:
    other = lines(filled(tmp_path / "other", COUNT + 5))
    spoil(state, other)
    with pytest.raises(LogDamagedError, match="another cluster"):
        salvage(state.path, now=NOON, actor="me@laptop")
    assert lines(state) == other


def test_a_log_that_is_too_new_is_not_cut_by_salvage(state: StateDir) -> None:
    prev = json.loads(lines(state)[-1])["crc"]
    entry = {"seq": COUNT + 1, "prev": prev, "at": "2026-11-21T12:00:00.000Z", "actor": "me"}
    strange = seal(json.dumps(entry | {"events": [{"type": "MoonPhaseChanged"}]})[:-1]) + b"\n"
    before = [*lines(state), strange]
    spoil(state, before)
    with pytest.raises(LogDamagedError, match="too new"):
        salvage(state.path, now=NOON, actor="me@laptop")
    assert lines(state) == before
    assert found(verify(state.path))[0][:2] == (COUNT + 1, COUNT + 1)


@pytest.mark.parametrize("compacted", [0, 1, 2, 3])
def test_what_cannot_have_happened_is_found_where_it_stands_and_salvage_ends_the_log_before_it(
    tmp_path: Path, compacted: int
) -> None:
    state = state_in(tmp_path / "state")
    state.create("lab")
    worker, nobody = WorkerId("v4a-0"), WorkerId("nobody")
    written: list[int] = []
    steps: list[list[Event]] = [
        [WorkerRegistered(worker=worker, connection=HOST)],
        [WorkerDrained(worker=worker), WorkerDrained(worker=nobody)],
        [WorkerDrained(worker=nobody)],
    ]
    for number, events in enumerate(steps):
        if number == compacted:
            state_in(state.path).compact("iris log compact")
        with state_in(state.path).locked("iris drain") as writer:
            written.append(writer.append(events, at=NOON).seq)
    if compacted == 3:
        state_in(state.path).compact("iris log compact")
    bad = written[1]
    line_by_line = verify(state.path)
    assert line_by_line.ok
    report = verify(state.path, replayed=True)
    (finding,) = report.findings
    assert finding.seq == bad
    assert report.records == line_by_line.records - 1
    assert "WorkerDrained(worker='nobody'" in finding.what
    with pytest.raises(LogDamagedError, match=f"seq {bad} of the event log contradicts"):
        state_in(state.path).load()
    assert salvage(state.path, now=NOON, actor="me@laptop", replayed=True).kept == bad - 1
    assert verify(state.path, replayed=True).ok
    cluster = state_in(state.path).load().cluster
    assert cluster is not None
    assert not cluster.workers[worker].draining


def test_head_is_not_said_to_be_damaged_because_the_first_line_is(state: StateDir) -> None:
    spoil(state, [b"oops\n", *lines(state)[1:]])
    assert found(verify(state.path)) == [(1, 1, "the checksum is wrong")]


def test_a_log_that_is_gone_is_found_by_its_head(state: StateDir) -> None:
    (state.path / "events.jsonl").unlink()
    (finding,) = verify(state.path).findings
    assert finding.line == 1
    assert finding.what == "HEAD says it was committed, but the log ends at seq 0"
    assert salvage(state.path, now=NOON, actor="me@laptop").kept == 0
    state_in(state.path).create("lab")
    assert state_in(state.path).read().seq == 1


def test_salvage_counts_what_it_gives_up_where_no_line_can_be_read(state: StateDir) -> None:
    spoil(state, [line.replace(b'"seq"', b'"SEQ"') for line in lines(state)])
    report = salvage(state.path, now=NOON, actor="me@laptop")
    assert (report.kept, report.lost) == (0, COUNT)
