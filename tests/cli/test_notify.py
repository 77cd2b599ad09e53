"""`notify` in `cluster.yaml`, with real commands: what was told and not written down is told again, never lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from iris_cli.cli.app import run
from iris_cli.errors import ExitCode
from tests.support.listener import SECRET, listening

TELL = 'echo "$IRIS_JOB_ID $IRIS_STATE $IRIS_CLUSTER" >>told; test ! -e deadly || kill -KILL $PPID'


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a cluster of no hosts, whose command may kill whoever runs it."""
    for name in ("IRIS_CONFIG", "IRIS_STATE_DIR", "IRIS_TASK_DIR", "http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    _tells({"command": ["sh", "-c", TELL]})
    return tmp_path


def _tells(notify: dict[str, object]) -> None:
    text = json.dumps({"cluster": {"name": "lab"}, "notify": notify})
    Path("cluster.yaml").write_text(text)


def _iris(*words: str) -> None:
    assert run(words) == ExitCode.OK, words


def _ended(*names: str) -> None:
    """Jobs that were there at the last cycle, and have ended since."""
    for name in names:
        _iris("launch", "--name", name, "--cpu", "1", "--", "true")
    _iris("cancel", *names)


def test_a_notification_is_repeated_after_a_kill_before_its_record(place: Path) -> None:
    _ended("one", "two")
    (place / "deadly").touch()
    iris = [sys.executable, "-m", "iris_cli", "schedule", "--once"]
    died = subprocess.run(iris, env=os.environ, capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    told = (place / "told").read_text().splitlines()
    assert told == ["one KILLED lab"]
    (place / "deadly").unlink()
    _iris("schedule", "--once")
    _iris("schedule", "--once")
    assert (place / "told").read_text().splitlines() == [*told, "one KILLED lab", "two KILLED lab"]


def test_a_wait_sends_the_notification_of_its_job(place: Path) -> None:
    _iris("launch", "--name", "one", "--cpu", "1", "--", "true")
    _iris("cancel", "one")
    assert run(["wait", "one"]) == ExitCode.KILLED
    assert (place / "told").read_text() == "one KILLED lab\n"


def test_the_url_of_a_server_is_in_nothing_that_is_said_and_not_in_the_log(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening() as listener:
        _tells({"webhook": listener.url})
        listener.answers = [500]
        _ended("one")
        for words in (
            ["schedule", "--once"],
            ["schedule", "--once", "--json"],
            ["status"],
            ["status", "--json"],
            ["config", "validate", "--json"],
            ["doctor", "--json"],
            ["history", "--json"],
        ):
            run(words)
    said = capsys.readouterr()
    assert "notify: the webhook answered 500" in said.out
    assert SECRET not in said.out + said.err
    for name in ("events.jsonl", "notices.json"):
        assert SECRET not in (place / "state" / name).read_text()


@pytest.mark.parametrize("url", ["ftp://h/{}", "https://me:{}@h/x", "https://h/{} x", "https:///{}"])
def test_a_url_that_can_t_be_posted_to_is_refused_and_not_repeated(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _tells({"webhook": url.format(SECRET)})
    assert run(["config", "validate"]) == ExitCode.CONFIG
    said = capsys.readouterr()
    assert "notify.webhook: not a URL to post to" in said.out + said.err
    assert SECRET not in said.out + said.err


def test_what_is_kept_of_it_is_its_owners_alone(place: Path) -> None:
    _ended("one")
    _iris("schedule", "--once")
    assert {path.stat().st_mode & 0o777 for path in (place / "state").glob("notices*")} == {0o600}
