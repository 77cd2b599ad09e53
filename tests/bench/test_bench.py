"""The measurements run, whatever the figures are; those that don't depend on time are right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.result import Row, table
from bench.ssh_hosts import has_ssh

ROOT = Path(__file__).parents[2]
KEYS = ["target", "name", "value", "reference", "ratio", "limit", "ok"]


@pytest.mark.parametrize(
    ("value", "ratio", "ok"), [(3.0, 1.5, True), (4.0, 2.0, True), (4.1, 2.05, False), (0, 0.0, True)]
)
def test_a_row_keeps_its_target_up_to_the_limit(value: float, ratio: float, ok: bool) -> None:
    row = Row(target=1, name="cycle, s", value=value, reference=2.0, limit=2.0)
    assert row.as_json() == {
        "target": 1,
        "name": "cycle, s",
        "value": value,
        "reference": 2.0,
        "ratio": ratio,
        "limit": 2.0,
        "ok": ok,
    }
    assert ("MISSED" in table([row])) is not ok


def measured(tmp_path: Path, *words: str) -> list[dict[str, Any]]:
    """The rows that the command has written down."""
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "bench", "--tiny", *words, "--results", str(results)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(results.read_text())
    assert all(list(row) == KEYS for row in rows)
    about = json.loads((tmp_path / "results.machine.json").read_text())
    assert list(about) == ["machine", "date", "load", "versions"]
    return rows


@pytest.mark.soak
def test_everything_is_measured_and_written_down(tmp_path: Path) -> None:
    rows = measured(tmp_path)
    over_ssh = {9, 10} if has_ssh() else set()
    assert {row["target"] for row in rows} == {*range(9), *range(11, 18)} | over_ssh
    counted = {row["name"]: row["value"] for row in rows}
    assert counted["status loads the SSH library"] == 0
    assert counted["schedule --once loads the SSH library"] == 0
    assert counted["SSH connections of it"] == 0


def test_only_the_targets_that_were_asked_for_are_measured_and_written_down(tmp_path: Path) -> None:
    rows = measured(tmp_path, "--only", "1,12")
    assert {row["target"] for row in rows} == {1, 12}
    counted = {row["name"]: row["value"] for row in rows}
    assert counted["calls to a host until its rank is stopped"] == 2
