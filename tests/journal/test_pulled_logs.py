"""Output of tasks that was fetched from their workers: kept byte for byte, in pieces that may come again."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from iris_cli.core.ids import AttemptId, JobId, TaskId
from iris_cli.errors import NotWritableError
from iris_cli.journal.files.pulled_logs import PulledLogs

ATTEMPT = AttemptId(TaskId(JobId("parent/child"), 3), 1)


@pytest.fixture
def logs(tmp_path: Path) -> PulledLogs:
    return PulledLogs(tmp_path / "logs")


def test_pieces_make_up_the_output_again(logs: PulledLogs) -> None:
    data = bytes(range(256)) * 3
    for start in range(0, len(data), 100):
        assert logs.size(ATTEMPT, "out") == start
        logs.put(ATTEMPT, "out", start, data[start : start + 100])
    assert logs.read(ATTEMPT, "out", 0, 10_000) == data
    assert logs.read(ATTEMPT, "out", 700, 10) == data[700:710]
    assert logs.read(ATTEMPT, "out", 10_000, 10) == b""
    assert (logs.directory / "parent/child/task-3/attempt-1/out").read_bytes() == data


def test_what_was_never_fetched_is_empty(logs: PulledLogs) -> None:
    assert logs.size(ATTEMPT, "err") == 0
    assert logs.written_at(ATTEMPT, "err") is None
    assert logs.read(ATTEMPT, "err", 0, 10) == b""
    assert not logs.directory.exists()


def test_a_piece_that_comes_again_changes_nothing(logs: PulledLogs) -> None:
    logs.put(ATTEMPT, "out", 0, b"0123456789")
    logs.put(ATTEMPT, "out", 2, b"234")
    assert logs.read(ATTEMPT, "out", 0, 100) == b"0123456789"


def test_a_gap_is_refused(logs: PulledLogs) -> None:
    logs.put(ATTEMPT, "out", 0, b"abc")
    assert not logs.put(ATTEMPT, "out", 4, b"e")
    assert logs.size(ATTEMPT, "out") == 3


def test_what_was_not_finished_counts_as_cut_off(logs: PulledLogs) -> None:
    assert not logs.is_incomplete(ATTEMPT)
    logs.finish(ATTEMPT, 5.0)
    assert not logs.put(ATTEMPT, "out", 4, b"e")
    logs.put(ATTEMPT, "out", 0, b"abc")
    assert logs.is_incomplete(ATTEMPT)
    logs.finish(ATTEMPT, 5.0)
    assert (logs.is_incomplete(ATTEMPT), logs.written_at(ATTEMPT, "out")) == (False, 5.0)


def test_a_replaced_file_is_fetched_from_the_start(logs: PulledLogs) -> None:
    logs.put(ATTEMPT, "out", 0, b"abc")
    logs.forget(ATTEMPT, "out")
    logs.forget(ATTEMPT, "out")
    assert logs.size(ATTEMPT, "out") == 0


def test_only_out_and_err_have_a_path(logs: PulledLogs) -> None:
    with pytest.raises(ValueError, match="neither out nor err"):
        logs.put(ATTEMPT, "../x", 0, b"")


def test_others_can_not_read_it(logs: PulledLogs) -> None:
    logs.put(ATTEMPT, "out", 0, b"secret")
    path = logs.path(ATTEMPT, "out")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.parents[:4]} == {0o700}


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_only_a_file_is_read_or_written(logs: PulledLogs, tmp_path: Path, kind: str) -> None:
    precious, path = tmp_path / "precious", logs.path(ATTEMPT, "out")
    precious.write_bytes(b"precious")
    path.parent.mkdir(parents=True)
    if kind == "link":
        path.symlink_to(precious)
        with pytest.raises(NotWritableError):
            logs.read(ATTEMPT, "out", 0, 10)
    else:
        os.mkfifo(path)
        assert logs.size(ATTEMPT, "out") == 0
    with pytest.raises(NotWritableError):
        logs.put(ATTEMPT, "out", 0, b"x")
    assert precious.read_bytes() == b"precious"


def test_the_excerpt_is_replaced_each_time(logs: PulledLogs) -> None:
    assert logs.excerpt(ATTEMPT) == b""
    logs.keep_excerpt(ATTEMPT, b"a long line\n")
    logs.keep_excerpt(ATTEMPT, b"short\n")
    assert logs.excerpt(ATTEMPT) == b"short\n"
    path = logs.directory / str(ATTEMPT) / "telling"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert logs.written_at(ATTEMPT, "out") is None, "nothing was pulled"
    assert not logs.is_incomplete(ATTEMPT)


def test_a_link_in_their_place_is_not_followed(logs: PulledLogs, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    path = logs.directory / str(ATTEMPT) / "telling"
    path.parent.mkdir(parents=True)
    path.symlink_to(secret)
    with pytest.raises(NotWritableError):
        logs.excerpt(ATTEMPT)
    with pytest.raises(NotWritableError):
        logs.keep_excerpt(ATTEMPT, b"x")
    assert secret.read_text() == "secret"
