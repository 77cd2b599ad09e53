"""What `iris doctor` says of each thing that can be wrong with the log: the command that mends it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.cli import app
from iris_cli.core.events.events import WorkerDrained, WorkerRegistered
from iris_cli.core.ids import WorkerId
from iris_cli.errors import ExitCode
from iris_cli.journal.log.position import Fault, FaultKind
from iris_cli.journal.log.verify import verify
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.checks.findings import Level
from iris_cli.ops.checks.log_checks import check_log, fix_of
from iris_cli.ops.cycle import compaction
from tests.journal.samples import HOST, NOON, state_in
from tests.journal.test_record import seal

COUNT = 12


def filled(path: Path, transactions: int) -> StateDir:
    """A state directory with a log of so many transactions, which can be replayed."""
    state = state_in(path)
    state.create("lab")
    workers = [WorkerId(f"w{number}") for number in range(2, transactions)]
    with state.locked("iris test") as writer:
        writer.append([WorkerRegistered(worker=worker, connection=HOST) for worker in workers], at=NOON)
        for worker in workers:
            writer.append([WorkerDrained(worker=worker)], at=NOON)
    return state


def damaged(path: Path) -> None:
    log = path / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'Drained","worker":"w3"', b'Drained","worker":"w4"'))


def impossible(path: Path) -> None:
    with state_in(path).locked("iris test") as writer:
        writer.append([WorkerDrained(worker=WorkerId("nobody"))], at=NOON)


def torn(path: Path) -> None:
    with (path / "events.jsonl").open("ab") as log:
        log.write(b'{"seq":13')


def shorter_than_head(path: Path) -> None:
    log = path / "events.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-2]))


def too_new(path: Path) -> None:
    log = path / "events.jsonl"
    prev = json.loads(log.read_bytes().splitlines()[-1])["crc"]
    entry = {"seq": COUNT + 1, "prev": prev, "at": "2026-11-21T12:00:00.000Z", "actor": "me"}
    strange = seal(json.dumps(entry | {"events": [{"type": "MoonPhaseChanged"}]})[:-1]) + b"\n"
    log.write_bytes(log.read_bytes() + strange)


def foreign(path: Path) -> None:
    other = filled(path.with_name("other"), COUNT + 2)
    (path / "events.jsonl").write_bytes((other.path / "events.jsonl").read_bytes())


def head_contradicts_itself(path: Path) -> None:
    head = json.loads((path / "HEAD").read_text())
    (path / "HEAD").write_text(json.dumps(head | {"seq": 99}))


def segment_missing(path: Path) -> None:
    state_in(path).compact("iris log compact")
    next((path / "archive").iterdir()).unlink()


def segment_damaged(path: Path) -> None:
    state_in(path).compact("iris log compact")
    segment = next((path / "archive").iterdir())
    segment.write_bytes(segment.read_bytes()[:-20])


def log_missing(path: Path) -> None:
    state_in(path).compact("iris log compact")
    (path / "events.jsonl").unlink()


@pytest.mark.parametrize(
    ("spoil", "kind", "fix"),
    [
        (damaged, FaultKind.DAMAGED, "iris log salvage"),
        (impossible, FaultKind.DAMAGED, "iris log salvage"),
        (shorter_than_head, FaultKind.LOST, "iris log salvage --accept-loss"),
        (too_new, FaultKind.NEWER, "pip install --upgrade"),
        (foreign, FaultKind.FOREIGN, "iris --state-dir"),
        (head_contradicts_itself, FaultKind.HEAD, "mv {path}/HEAD {path}/HEAD.damaged"),
        (segment_missing, FaultKind.MISSING, "restore the missing segment into {path}/archive"),
        (segment_damaged, FaultKind.DAMAGED, "cp -a {path} {path}.copy"),
        (log_missing, FaultKind.DAMAGED, "iris log salvage"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_each_verdict_on_the_log_has_its_fix(
    tmp_path: Path, spoil: Callable[[Path], None], kind: FaultKind, fix: str
) -> None:
    path = filled(tmp_path / "state", COUNT).path
    spoil(path)
    assert verify(path, replayed=True).findings[0].kind is kind
    first = next(check_log(state_in(path)))
    assert (first.level, first.code) == (Level.FAIL, ExitCode.LOG_DAMAGED)
    assert fix.format(path=path) in first.fix


def test_an_unfinished_line_needs_nothing(tmp_path: Path) -> None:
    path = filled(tmp_path / "state", COUNT).path
    torn(path)
    levels = [(each.level, each.fix) for each in check_log(state_in(path))]
    assert levels == [(Level.OK, ""), (Level.WARN, levels[1][1])]
    assert levels[1][1].startswith("nothing to do")


def test_what_is_unfinished_in_a_damaged_log_is_not_said_to_be_set_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = filled(tmp_path / "state", COUNT).path
    log = path / "events.jsonl"
    log.write_bytes(log.read_bytes()[:-2])
    assert [each.level for each in check_log(state_in(path))] == [Level.FAIL]
    assert app.run(["--state-dir", str(path), "log", "verify"]) == ExitCode.LOG_DAMAGED
    assert "sets it aside" not in capsys.readouterr().err


def test_of_many_damaged_lines_the_first_are_named_and_the_others_counted(tmp_path: Path) -> None:
    path = filled(tmp_path / "state", 40).path
    log = path / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:5], *(b"oops\n" for _ in lines[5:35]), *lines[35:]]))
    assert len(verify(path).findings) == 30
    found = list(check_log(state_in(path)))
    assert [each.level for each in found] == [Level.FAIL] * 11
    assert found[9].text.startswith("line 15 ")
    assert found[10].text == "20 more places, which `iris log verify` lists"
    assert "iris log salvage" in found[10].fix


def test_a_fix_can_be_typed_with_any_path(tmp_path: Path) -> None:
    path = filled(tmp_path / "my 'state'", COUNT).path
    head_contradicts_itself(path)
    subprocess.run(["sh", "-c", next(check_log(state_in(path))).fix], check=True)
    assert not (path / "HEAD").exists()
    assert (path / "HEAD.damaged").exists()


def test_a_large_log_is_to_be_compacted_and_a_compacted_one_is_fine(tmp_path: Path) -> None:
    state = filled(tmp_path / "state", COUNT)
    sound, large = check_log(state, large=1000)
    assert (sound.level, large.level, large.fix) == (Level.OK, Level.WARN, "iris log compact")
    state.compact("iris log compact")
    (fine,) = check_log(state, large=1000)
    assert fine.text == f"{COUNT + 1} transactions, including 1 archived segment, all valid"


def test_every_kind_of_fault_has_a_fix(tmp_path: Path) -> None:

    for kind in FaultKind:
        assert fix_of(Fault(kind=kind, line=1, offset=0, seq=1, what=""), tmp_path)


def test_where_the_snapshot_has_the_state_only_history_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = filled(tmp_path / "state", COUNT).path
    compaction.compact(state_in(path), "iris log compact", 0.0)
    next((path / "archive").iterdir()).unlink()
    (finding,) = check_log(state_in(path))
    assert finding.level is Level.FAIL
    assert finding.fix.startswith(f"restore it into {path}/archive")
    assert app.run(["--state-dir", str(path), "log", "salvage"]) == ExitCode.LOG_DAMAGED
    assert "not recommended" in capsys.readouterr().err
    (path / "snapshot.json").unlink()
    (finding,) = check_log(state_in(path))
    assert "iris log salvage" in finding.fix
