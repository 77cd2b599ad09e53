"""Whatever appears in the state directory is its owner's alone, however careless the umask, and has no secret in it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_cli.errors import ExitCode
from tests.cli.test_disk_faults import CLOCK, CONFIG, JOB, PAST_ANY_BACK_OFF, Site, keep_snapshots
from tests.support.fake_runner import Host

CANARY = "canary-7d41aa"


@pytest.fixture
def careless() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(state: Path) -> dict[str, str]:
    """Of all that is there and isn't 0700, for a directory, or 0600."""
    found = {}
    for path in (state, *state.rglob("*")):
        status = path.lstat()
        wanted = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
        if stat.S_IMODE(status.st_mode) != wanted:
            found[str(path.relative_to(state))] = oct(status.st_mode)
    return found


@pytest.mark.usefixtures("careless")
def test_everything_in_the_state_directory_is_private_and_free_of_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("IRIS_STATE_DIR", raising=False)
    monkeypatch.setenv("TOKEN", CANARY)
    keep_snapshots(monkeypatch, every=1)
    (tmp_path / "cluster.yaml").write_text(CONFIG)
    site = Site(tmp_path, {name: Host(name, CLOCK.now) for name in ("w0", "w1")})
    state = tmp_path / "state"
    names: set[str] = set()

    def iris(*words: str, code: int = ExitCode.OK) -> None:
        assert site.iris(*words) == code, words
        assert modes(state) == {}, words
        names.update(path.name.partition("-2")[0] for path in state.iterdir())

    iris("launch", "--name", "first", "--secret", "TOKEN", *JOB)
    iris("launch", "--name", "second", "--env", "PLAIN=1", "--no-schedule", *JOB)
    with (state / "events.jsonl").open("ab") as log:
        log.write(b'{"seq"')
    iris("schedule", "--once")
    iris("log", "compact")
    iris("launch", "--name", "third", "--secret", "TOKEN", *JOB)
    (state / "HEAD").unlink()
    CLOCK.ahead += PAST_ANY_BACK_OFF
    iris("schedule", "--once")
    iris("cancel", "third")
    damaged = (state / "events.jsonl").read_bytes().replace(b'"third"', b'"thirD"')
    (state / "events.jsonl").write_bytes(damaged)
    iris("log", "salvage", "--yes")
    iris("status")
    assert names >= {"HEAD", "events.jsonl", "lock", "lock.json", "heartbeat.json", "archive", "torn"}
    assert "snapshot.json" in names
    said = capsys.readouterr()
    assert CANARY not in said.out + said.err
    for path in state.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path
    started = [json.loads(line) for line in damaged.splitlines()]
    assert "TOKEN" in json.dumps(started)  # its name is there
