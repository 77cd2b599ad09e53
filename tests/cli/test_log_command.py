"""`iris log verify` and `iris log salvage` on logs that were damaged in all the ways there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iris_cli.cli.app import run
from iris_cli.core.events.events import WorkerDrained
from iris_cli.core.ids import WorkerId
from tests.journal.samples import NOON, state_in
from tests.ops.world import World
from tests.support.lab import Lab


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of a small cluster, several lines long."""
    lab = Lab().worker("w").job("one").job("two").schedule()
    World(lab, tmp_path / "state").write()
    monkeypatch.delenv("IRIS_CONFIG", raising=False)
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state" / "events.jsonl"


def flip(log: Path, line: int) -> None:
    """Damage one line, counted from 0."""
    lines = log.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"seq"', b'"sEq"', 1)
    log.write_bytes(b"".join(lines))


def cut(log: Path, lines: int) -> None:
    """Lose so many lines at the end, as an old backup does."""
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-lines]))


def count(log: Path) -> int:
    return len(log.read_bytes().splitlines())


def test_a_sound_log_is_counted(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "verify"]) == 0
    assert capsys.readouterr().out == f"{log}: {count(log)} transactions, all valid (cluster lab)\n"


def test_damage_is_named_by_line_byte_and_seq(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offset = len(b"".join(log.read_bytes().splitlines(keepends=True)[:2]))
    flip(log, 2)
    assert run(["log", "verify"]) == 6
    assert f"line 3 (byte {offset}, seq 3)" in capsys.readouterr().out


def test_the_verdict_is_json_too(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(log, 2)
    assert run(["log", "verify", "--json"]) == 6
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["sound_until"]["seq"], found["findings"][0]["seq"]) == (False, 2, 3)


def test_without_a_log_there_is_nothing_to_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "none"))
    assert run(["log", "verify"]) == 4
    assert run(["log", "salvage"]) == 4
    assert not (tmp_path / "none").exists()


def test_salvage_of_a_valid_log_changes_nothing_and_prints_a_document(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = log.read_bytes()
    assert run(["log", "salvage"]) == 0
    assert capsys.readouterr().out == "the log is valid; nothing changed\n"
    assert run(["log", "salvage", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema_version"], found["kept"], found["lost"]) == (1, count(log), 0)
    assert run(["log", "salvage", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert log.read_bytes() == before


def test_salvage_says_first_what_would_be_lost(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = count(log)
    flip(log, 2)
    damaged = log.read_bytes()
    assert run(["log", "salvage"]) == 6
    error = capsys.readouterr().err
    assert f"would keep 2 transactions and drop the damaged line and {lines - 3} after it" in error
    assert "iris log salvage --yes" in error
    assert log.read_bytes() == damaged


def test_salvage_of_a_log_with_windows_line_ends_keeps_all_of_it(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound, lines = log.read_bytes(), count(log)
    log.write_bytes(sound.replace(b"\n", b"\r\n"))
    assert run(["log", "export"]) == 6
    assert "it ends in CR LF" in capsys.readouterr().err
    assert run(["log", "salvage"]) == 6
    assert f"would keep {lines} transactions and drop nothing" in capsys.readouterr().err
    assert run(["log", "salvage", "--yes"]) == 0
    assert f"kept {lines} transactions; dropped nothing" in capsys.readouterr().out
    assert log.read_bytes().startswith(sound)
    assert run(["log", "verify"]) == 0


def test_lost_lines_at_the_end_need_the_operators_word(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = count(log)
    cut(log, 2)
    assert run(["log", "verify"]) == 6
    assert run(["log", "salvage", "--yes"]) == 6
    assert "iris log salvage --accept-loss" in capsys.readouterr().err
    assert run(["log", "salvage", "--accept-loss"]) == 0
    assert f"next transaction: seq {lines}" in capsys.readouterr().out
    (event,) = json.loads(log.read_bytes().splitlines()[-1])["events"]
    assert (event["type"], event["condition"]) == ("WorkerConditionChanged", "unprobed")
    assert run(["log", "verify"]) == 0


def test_accepting_a_loss_does_not_accept_damage(log: Path) -> None:
    flip(log, 2)
    damaged = log.read_bytes()
    assert run(["log", "salvage", "--accept-loss"]) == 6
    assert log.read_bytes() == damaged


@pytest.mark.parametrize("left", [None, b"", b"\n"])
def test_a_log_of_which_nothing_is_left_is_told_and_can_begin_anew(
    log: Path, left: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if left is None:
        log.unlink()
    else:
        log.write_bytes(left)
    assert run(["log", "verify"]) == 6
    assert run(["log", "export"]) == 6
    assert run(["log", "salvage"]) == 6
    assert "iris log salvage --accept-loss" in capsys.readouterr().err
    assert run(["log", "salvage", "--accept-loss"]) == 0
    assert "kept 0 transactions" in capsys.readouterr().out
    assert run(["log", "verify"]) == 0


def test_what_cannot_have_happened_is_named_and_cut_off(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = count(log)
    with state_in(log.parent).locked("iris test") as writer:
        writer.append([WorkerDrained(worker=WorkerId("nobody"))], at=NOON)
    assert run(["log", "verify"]) == 6
    assert f"line {lines + 1} " in capsys.readouterr().out
    assert run(["log", "compact"]) == 6
    assert "iris log salvage" in capsys.readouterr().err
    assert run(["log", "salvage"]) == 6
    assert f"keep {lines} transactions and drop the damaged line\n" in capsys.readouterr().err
    assert run(["log", "salvage", "--yes"]) == 0
    assert run(["log", "verify"]) == 0
    assert run(["log", "compact"]) == 0
