"""A log that was compacted tells as much as before: `history --all`, `status --at`, `log export`."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iris_cli.cli.app import run
from iris_cli.errors import ExitCode
from iris_cli.journal.state_dir import StateDir
from tests.ops.world import World
from tests.support.lab import Lab

Show = Callable[..., str]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small cluster on which two jobs run."""
    lab = Lab().worker("w").job("one").job("two").schedule()
    World(lab, tmp_path / "state").write()
    (tmp_path / "cluster.yaml").write_text(
        "cluster: {name: lab}\nworkers: [{id: w, host: nowhere.invalid}]\n"
    )
    monkeypatch.setenv("IRIS_CONFIG", str(tmp_path / "cluster.yaml"))
    monkeypatch.delenv("IRIS_STATE_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state"


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str], state: Path) -> Show:
    def shown(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run(words) == code
        return capsys.readouterr().out

    return shown


def rows(show: Show, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in show("log", "export", *words).splitlines()]


def strip_ages(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What does not change by itself."""
    return [{key: value for key, value in each.items() if "seconds" not in key} for each in entries]


def test_compaction_says_what_went_where(show: Show, state: Path) -> None:
    told = json.loads(show("log", "compact", "--json"))
    assert (told["compacted"], told["first"]) == (True, 1)
    assert (state / told["segment"]).stat().st_size == told["bytes_archived"]
    assert told["bytes_after"] == (state / "events.jsonl").stat().st_size < told["bytes_before"]
    assert json.loads(show("log", "compact", "--json"))["compacted"] is False
    assert "nothing to move" in show("log", "compact")
    assert "and 1 archived segment" in show("log", "verify")
    assert json.loads(show("log", "verify", "--json"))["segments"] == 1


def test_the_state_is_the_same_after_it(show: Show) -> None:
    def state() -> list[Any]:
        status = json.loads(show("status", "--json"))
        return [status["jobs"], status["workers"], show("why", "one"), show("worker", "show", "w")]

    before = [each if isinstance(each, str) else strip_ages(each) for each in state()]
    show("log", "compact")
    assert [each if isinstance(each, str) else strip_ages(each) for each in state()] == before


def test_the_past_is_the_same_after_it(show: Show, state: Path) -> None:
    moments = [each["at"] for each in json.loads(show("history", "--json"))["entries"]]
    before = [show("status", "--at", moment, "--json") for moment in moments]
    show("log", "compact")
    assert [show("status", "--at", moment, "--json") for moment in moments] == before


def test_history_shows_the_log_and_with_all_the_archive_too(show: Show) -> None:
    before = json.loads(show("history", "--limit", "0", "--json"))
    show("log", "compact")
    after = json.loads(show("history", "--json"))
    assert [each["type"] for each in after["entries"]] == ["LogCompacted"]
    assert after["archived"] == before["entries"][-1]["seq"]
    assert "in the archive: add --all" in show("history")
    whole = json.loads(show("history", "--all", "--limit", "0", "--json"))
    assert whole["entries"][:-1] == before["entries"]
    assert whole["archived"] == 0
    assert json.loads(show("history", "one", "--all", "--json"))["entries"] == [
        each for each in before["entries"] if "one" in each["text"]
    ]


def test_a_subject_that_is_only_in_the_archive_is_pointed_out(
    show: Show, capsys: pytest.CaptureFixture[str]
) -> None:
    show("log", "compact")
    assert run(["history", "one"]) == ExitCode.NOT_FOUND
    assert "iris history one --all" in capsys.readouterr().err


def test_what_happens_later_to_an_attempt_in_the_archive_still_belongs_to_its_worker(
    tmp_path: Path, show: Show, state: Path
) -> None:
    show("log", "compact")
    with StateDir(state, now=lambda: 2e9, actor="me@laptop").locked("iris test") as writer:
        from iris_cli.core.events.events import TaskDispatched
        from iris_cli.core.ids import JobId, TaskId

        writer.append([TaskDispatched(task=TaskId(JobId("one"), 0), attempt=0)], at=2e9)
    (entry,) = json.loads(show("history", "w", "--json"))["entries"]
    assert entry["type"] == "TaskDispatched"


def test_an_exported_event_says_what_it_is_about(show: Show) -> None:
    exported = rows(show)
    assert [list(row) for row in exported] == [
        ["seq", "index", "at", "actor", "type", "job", "task", "attempt", "worker", "event"]
    ] * len(exported)
    (assigned,) = [row for row in exported if row["type"] == "TaskAssigned" and row["job"] == "one"]
    assert (assigned["task"], assigned["attempt"], assigned["worker"]) == ("one/task-0", 0, "w")
    assert assigned["event"]["token"]
    (submitted,) = [row for row in exported if row["type"] == "JobSubmitted" and row["job"] == "two"]
    assert (submitted["task"], submitted["attempt"], submitted["worker"]) == (None, None, None)


def test_an_export_is_every_event_once_and_in_order_wherever_it_stands(show: Show, state: Path) -> None:
    lines = (state / "events.jsonl").read_text().splitlines()
    before = rows(show)
    assert [(row["seq"], row["index"], row["type"]) for row in before] == [
        (entry["seq"], index, event["type"])
        for entry in map(json.loads, lines)
        for index, event in enumerate(entry["events"])
    ]
    show("log", "compact")
    after = rows(show)
    assert after[:-1] == before
    assert after[-1]["type"] == "LogCompacted"
    assert rows(show, "--after", "2") == [row for row in after if row["seq"] > 2]


def test_an_export_ends_with_what_can_be_read_and_says_why(show: Show, state: Path) -> None:
    whole = rows(show)
    show("log", "compact")
    (segment,) = (state / "archive").iterdir()
    lines = gzip.decompress(segment.read_bytes()).splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"seq"', b'"sEq"')
    segment.write_bytes(gzip.compress(b"".join(lines)))
    printed = show("log", "export", code=ExitCode.LOG_DAMAGED).splitlines()
    assert [json.loads(line) for line in printed] == [row for row in whole if row["seq"] < 3]


def test_without_a_log_there_is_nothing_to_compact_or_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "none"))
    for command in ("compact", "export"):
        assert run(["log", command]) == ExitCode.NOT_FOUND
    assert not (tmp_path / "none").exists()


def test_the_reader_of_an_export_may_exit_early(show: Show, state: Path) -> None:
    for _ in range(3):
        show("log", "compact")
    iris = [sys.executable, "-m", "iris_cli", "--state-dir", str(state), "log", "export"]
    with subprocess.Popen(iris, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as exporting:
        assert exporting.stdout is not None
        assert exporting.stderr is not None
        exporting.stdout.close()
        assert exporting.stderr.read() == b""
        assert exporting.wait() == 0
