"""A log of an older format is read as if it were of today's, and goes on in a new file.

There was no older format yet: this one, format 0, was made up. It called the events `what`, had the time in seconds,
and wrote `WorkerCordoned` for what is `WorkerDrained` now.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from iris_cli.clock import iso_time
from iris_cli.core.events.events import ClusterCreated, Event, LogCompacted, WorkerDrained
from iris_cli.core.ids import WorkerId
from iris_cli.errors import LogDamagedError, NotWritableError
from iris_cli.journal.log.record import UPGRADES
from iris_cli.journal.log.verify import salvage, verify
from iris_cli.journal.state_dir import StateDir
from tests.journal.samples import NOON, state_in
from tests.journal.test_faults import STEPS, BadDisk, PowerCut, fresh, on

COUNT = 8
EVENT = WorkerDrained(worker=WorkerId("v4a-0"), reason="afterwards")
HISTORY: list[tuple[Event, ...]] = [
    (ClusterCreated(name="lab"),),
    *[(WorkerDrained(worker=WorkerId(f"w{number}")),) for number in range(1, COUNT)],
]


def from_format_0(line: dict[str, Any]) -> dict[str, Any]:
    events = line.pop("what")
    for event in events:
        event["type"] = {"WorkerCordoned": "WorkerDrained"}.get(event["type"], event["type"])
    return line | {"at": iso_time(line["at"]), "events": events}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """This program can read format 0."""
    monkeypatch.setitem(UPGRADES, 0, from_format_0)


def old_log(path: Path, number: int = 0, program: str = "iris 0.0.1") -> None:
    path.mkdir(mode=0o700)
    (path / "events.jsonl").touch(0o600)
    crc = "00000000"
    with (path / "events.jsonl").open("wb") as log:
        for seq in range(1, COUNT + 1):
            line: dict[str, Any] = {"seq": seq, "prev": crc, "at": NOON + seq, "actor": "me@laptop"}
            if seq == 1:
                line |= {"format": number, "cluster_id": "0a" * 16, "program": program}
                line["what"] = [{"type": "ClusterCreated", "name": "lab"}]
            else:
                line["what"] = [{"type": "WorkerCordoned", "worker": f"w{seq - 1}"}]
            body = json.dumps(line, separators=(",", ":"))[:-1].encode()
            crc = f"{crc32(body):08x}"
            log.write(b'%s,"crc":"%s"}\n' % (body, crc.encode()))
    (path / "HEAD").touch(0o600)
    (path / "HEAD").write_text(json.dumps({"seq": COUNT, "crc": crc, "cluster_id": "0a" * 16}))


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    old_log(tmp_path / "state")
    return state_in(tmp_path / "state")


def content(state: StateDir) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in state.path.iterdir() if not each.name.startswith("lock")}


def told(state: StateDir) -> list[tuple[Event, ...]]:
    """All that a reader sees who begins anew, but for where a file ends."""
    view = state_in(state.path).read()
    assert view.damage is None
    return [each.events for each in view.transactions if not isinstance(each.events[0], LogCompacted)]


def commit(state: StateDir, after_seq: int = 0) -> int:
    with state.locked("iris drain", after_seq=after_seq) as writer:
        return writer.append([EVENT], at=NOON).seq


@pytest.mark.usefixtures("known")
def test_an_old_log_is_read_as_if_it_were_new_and_stays_as_it_is(state: StateDir) -> None:
    before = content(state)
    view = state.read()
    assert [each.events for each in view.transactions] == HISTORY
    assert [each.at for each in view.transactions] == [NOON + seq for seq in range(1, COUNT + 1)]
    assert view.header is not None
    assert (view.header.format, view.header.program) == (0, "iris 0.0.1")
    verdict = verify(state.path)
    assert (verdict.ok, verdict.records) == (True, COUNT)
    with state.locked("iris drain"):
        pass
    assert content(state) == before


@pytest.mark.usefixtures("known")
def test_reading_on_in_an_old_log_needs_no_second_look_at_its_first_line(state: StateDir) -> None:
    log = state.path / "events.jsonl"
    whole, head = log.read_bytes(), (state.path / "HEAD").read_bytes()
    log.write_bytes(b"".join(whole.splitlines(keepends=True)[:5]))
    (state.path / "HEAD").unlink()
    assert state.read().seq == 5
    log.write_bytes(whole)
    (state.path / "HEAD").write_bytes(head)
    assert [each.events for each in state.read(after_seq=5).transactions] == HISTORY[5:]


@pytest.mark.usefixtures("known")
def test_an_old_log_goes_on_in_a_new_file_and_its_lines_go_to_the_archive_as_they_are(
    state: StateDir,
) -> None:
    before = (state.path / "events.jsonl").read_bytes()
    seq = state.read().seq
    assert commit(state, after_seq=seq) == COUNT + 2
    (segment,) = (state.path / "archive").iterdir()
    assert gzip.decompress(segment.read_bytes()) == before
    header = json.loads((state.path / "events.jsonl").read_bytes().splitlines()[0])
    assert (header["format"], header["cluster_id"], header["seq"]) == (1, "0a" * 16, COUNT + 1)
    assert told(state) == [*HISTORY, (EVENT,)]
    assert commit(state) == COUNT + 3  # and so on, in the same file
    assert len(list((state.path / "archive").iterdir())) == 1
    assert told(state) == [*HISTORY, (EVENT,), (EVENT,)]
    assert verify(state.path).ok


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("fault", [PowerCut, 28])
def test_an_upgrade_that_is_cut_short_at_any_step_loses_nothing(
    tmp_path: Path, fault: int | type[PowerCut], after: bool
) -> None:
    for step in STEPS:
        path = fresh(tmp_path, old_log)
        state = state_in(path)
        try:
            assert commit(on(BadDisk(step, fault, after=after), path)) == COUNT + 2
        except (PowerCut, NotWritableError):
            assert told(state) in (HISTORY, [*HISTORY, (EVENT,)])
            commit(state)
            assert told(state)[:COUNT] == HISTORY
            assert verify(path).ok
        else:
            break
    assert step > 8


@pytest.mark.usefixtures("known")
def test_damage_in_an_old_log_is_found_and_salvaged_like_any_other(state: StateDir) -> None:
    log = state.path / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"w4"', b'"w5"', 1))
    (finding,) = verify(state.path).findings
    assert finding.line == 5
    with pytest.raises(LogDamagedError, match="line 5"):
        commit(state)
    salvage(state.path, now=NOON, actor="me@laptop")
    assert commit(state) == 6
    assert told(state) == [*HISTORY[:4], (EVENT,)]


@pytest.mark.usefixtures("known")
def test_what_is_no_line_of_the_old_format_is_damage(state: StateDir) -> None:
    log = state.path / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"what"', b'"wath"', 1))
    assert "checksum" in str(verify(state.path).findings[0])
    lines = log.read_bytes().replace(b'"wath"', b'"what"', 1).splitlines(keepends=True)
    body = lines[-1][: lines[-1].index(b',"crc"')].replace(b'"what"', b'"events"')
    log.write_bytes(b"".join(lines[:-1]) + b'%s,"crc":"%08x"}\n' % (body, crc32(body)))
    assert "'what' is missing" in str(verify(state.path).findings[0])


def test_a_format_that_never_was_is_refused_and_left_alone(state: StateDir) -> None:
    before = content(state)
    with pytest.raises(LogDamagedError, match="the log has format 0, unknown to this version"):
        commit(state)
    assert content(state) == before


def test_a_newer_format_is_refused_untouched_and_both_programs_are_named(tmp_path: Path) -> None:
    old_log(tmp_path / "state", number=2, program="iris 9.1.0")
    state = state_in(tmp_path / "state")
    before = content(state)
    for refused in (state.read, lambda: commit(state), lambda: state.compact("iris log compact")):
        with pytest.raises(
            LogDamagedError, match=r"format 2: iris 9\.1\.0 wrote it, this is iris \d"
        ) as caught:
            refused()
        assert "install that iris" in caught.value.hint
    with pytest.raises(LogDamagedError, match="too new"):
        salvage(state.path, now=NOON, actor="me@laptop")
    assert not verify(state.path).ok
    assert content(state) == before
