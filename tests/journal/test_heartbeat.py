"""`heartbeat.json` keeps one time for each kind of runner, whoever else writes at the same moment."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from iris_cli.journal.files.runners import runners_of
from iris_cli.journal.state_dir import StateDir

KINDS = ("cron", "loop", "watch", "wait", "command")


def state_of(directory: Path) -> StateDir:
    return StateDir(directory, now=lambda: 0.0, actor="me@laptop")


def test_each_kind_of_runner_has_a_time_of_its_own(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    state.write_heartbeat({"at": 1.0, "asked": 4}, "cron", {"at": 1.0, "interval": 60.0})
    state.write_heartbeat({"at": 2.0, "asked": 0}, "loop", {"at": 2.0, "pid": 4711})
    heartbeat = state.read_heartbeat()
    assert heartbeat is not None
    assert {name: heartbeat[name] for name in ("at", "asked")} == {"at": 2.0, "asked": 0}
    assert runners_of(heartbeat) == {
        "cron": {"at": 1.0, "interval": 60.0},
        "loop": {"at": 2.0, "pid": 4711},
    }


def test_a_forgotten_runner_leaves_the_others(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    state.write_heartbeat({"at": 1.0}, "cron", {"at": 1.0})
    state.write_heartbeat({"at": 2.0}, "loop", {"at": 2.0})
    state.forget_runner("cron")
    state.forget_runner("watch")
    assert state.read_heartbeat() == {"at": 2.0, "runners": {"loop": {"at": 2.0}}}


def test_nothing_is_written_to_forget_what_was_never_there(tmp_path: Path) -> None:
    state_of(tmp_path).forget_runner("cron")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    ['{"at": 5.0, "asked": 2, "silent": 0}', '{"at": 5.0, "runners": [1]}', '{"runners": {"cron": 7}}'],
)
def test_what_an_older_iris_wrote_has_no_runners(text: str, tmp_path: Path) -> None:
    (tmp_path / "heartbeat.json").write_text(text)
    state = state_of(tmp_path)
    assert state.read_heartbeat() == json.loads(text)
    assert runners_of(state.read_heartbeat()) == {}
    state.write_heartbeat({"at": 6.0}, "loop", {"at": 6.0})
    assert state.read_heartbeat() == {"at": 6.0, "runners": {"loop": {"at": 6.0}}}


def beat(directory: Path, kind: str, times: int) -> None:
    state = state_of(directory)
    for number in range(times):
        state.write_heartbeat({"at": number}, kind, {"at": number})


def test_processes_that_write_at_the_same_moment_lose_nothing_of_each_other(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=beat, args=(tmp_path, kind, 100)) for kind in KINDS]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * len(KINDS)
    assert runners_of(state_of(tmp_path).read_heartbeat()) == {kind: {"at": 99} for kind in KINDS}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heartbeat.json", "heartbeat.lock"]
