"""The state directory in everyday use."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from iris_cli.core.events.events import ClusterCreated, WorkerDrained
from iris_cli.core.ids import WorkerId
from iris_cli.errors import ConfigError, LogDamagedError, NotFoundError, NotWritableError
from iris_cli.journal.state_dir import StateDir
from tests.journal.samples import NOON, filled, state_in

DRAINED = [WorkerDrained(worker=WorkerId("v4a-0"))]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def commit(state: StateDir) -> int:
    with state.locked("iris drain") as writer:
        return writer.append(DRAINED, at=NOON).seq


def test_a_new_state_directory_is_private_and_its_log_begins_with_the_cluster(tmp_path: Path) -> None:
    state = state_in(tmp_path / "a" / "state")
    assert state.create("lab") == ()
    view = state.read()
    assert [each.events for each in view.transactions] == [(ClusterCreated(name="lab"),)]
    assert view.header is not None
    assert view.header.cluster_name == "lab"
    assert (view.damage, view.warnings) == (None, ())
    assert mode(state.path) == 0o700
    assert sorted((path.name, mode(path)) for path in state.path.iterdir()) == [
        ("HEAD", 0o600),
        ("events.jsonl", 0o600),
        ("lock", 0o600),
        ("lock.json", 0o600),
    ]


def test_creating_again_changes_nothing(tmp_path: Path) -> None:
    state = state_in(tmp_path / "state")
    state.create("lab")
    before = (state.path / "events.jsonl").read_bytes()
    assert state_in(tmp_path / "state").create("lab") == ()
    assert (state.path / "events.jsonl").read_bytes() == before


def test_a_clone_of_the_repository_becomes_private_when_its_log_begins(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.mkdir(mode=0o755)
    (path / "README.md").write_text("what this is")
    (path / ".gitignore").write_text("*")
    state_in(path).create("lab")
    assert mode(path) == 0o700
    assert (path / "README.md").read_text() == "what this is"


def test_a_directory_with_other_things_in_it_is_not_closed_behind_their_owners_back(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o755)
    (path / "thesis.tex").touch()
    with pytest.raises(NotWritableError, match="open to other users"):
        state_in(path).create("lab")
    assert mode(path) == 0o755


def test_without_a_log_readers_see_nothing_and_writers_are_told_to_begin(tmp_path: Path) -> None:
    state = state_in(tmp_path / "state")
    assert (state.read().transactions, state.read().header) == ((), None)
    with pytest.raises(NotFoundError) as caught, state.locked("iris drain"):
        pass
    assert "iris init" in caught.value.hint
    assert not state.path.exists()


def test_a_commit_is_one_line_and_head_names_it(tmp_path: Path) -> None:
    state = state_in(tmp_path / "state")
    state.create("lab")
    with state.locked("iris drain") as writer:
        transaction = writer.append(DRAINED * 3, at=NOON + 1.2345)
    assert (transaction.seq, transaction.at, len(transaction.events)) == (2, NOON + 1.234, 3)
    lines = (state.path / "events.jsonl").read_text(encoding="ascii").splitlines()
    last = json.loads(lines[-1])
    assert (len(lines), last["seq"], last["actor"]) == (2, 2, "me@laptop iris drain")
    head = json.loads((state.path / "HEAD").read_text())
    assert (head["seq"], head["crc"], head["cluster_id"]) == (
        2,
        last["crc"],
        json.loads(lines[0])["cluster_id"],
    )
    assert state.read().transactions[-1] == state_in(state.path).read().transactions[-1]


def test_several_commits_under_one_lock_follow_each_other(tmp_path: Path) -> None:
    state = filled(tmp_path / "state", 10)
    view = state.read()
    assert [each.seq for each in view.transactions] == list(range(1, 11))
    assert view.seq == 10


def test_a_writer_sees_what_others_wrote_meanwhile_and_only_that(tmp_path: Path) -> None:
    ours, theirs = state_in(tmp_path / "state"), state_in(tmp_path / "state")
    ours.create("lab")
    commit(ours)
    commit(theirs)
    commit(theirs)
    with ours.locked("iris schedule", after_seq=2) as writer:
        assert [each.seq for each in writer.transactions] == [3, 4]
        writer.append(DRAINED, at=NOON)
    assert [each.seq for each in theirs.read(after_seq=4).transactions] == [5]
    with ours.locked("iris schedule") as writer:
        assert [each.seq for each in writer.transactions] == [1, 2, 3, 4, 5]


def test_reading_on_does_not_read_again_what_is_known(tmp_path: Path) -> None:
    state = filled(tmp_path / "state", 20)
    seq = state.read().seq
    log = state.path / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"lab"', b'"LAB"'))
    assert state.read(after_seq=seq).damage is None
    assert state.read().damage is not None


def test_a_log_that_went_back_while_the_command_ran_is_refused(tmp_path: Path) -> None:
    state = filled(tmp_path / "state", 20)
    seq = state.read().seq
    log = state.path / "events.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:12]))
    (state.path / "HEAD").unlink()
    with pytest.raises(LogDamagedError, match="no longer the log"):
        state.read(after_seq=seq)
    with pytest.raises(LogDamagedError, match="no longer the log"), state.locked("x", after_seq=seq):
        pass


def test_another_log_of_the_same_length_is_not_taken_for_ours(tmp_path: Path) -> None:
    state = filled(tmp_path / "state", 20)
    other = filled(tmp_path / "other", 25)
    seq = state.read().seq
    for name in ("events.jsonl", "HEAD"):
        (state.path / name).write_bytes((other.path / name).read_bytes())
    with pytest.raises(LogDamagedError, match="no longer the log"), state.locked("x", after_seq=seq):
        pass


def test_a_copied_log_goes_on_as_the_same_one(tmp_path: Path) -> None:
    """Recovery puts a copy in the place of the log: another file, the same history."""
    state = filled(tmp_path / "state", 20)
    seq = state.read().seq
    log = state.path / "events.jsonl"
    content = log.read_bytes()
    log.rename(tmp_path / "old")
    log.write_bytes(content)
    log.chmod(0o600)
    with state.locked("x", after_seq=seq) as writer:
        assert writer.transactions == ()
        assert writer.append(DRAINED, at=NOON).seq == 21


def test_a_writer_that_let_the_lock_go_writes_nothing(tmp_path: Path) -> None:
    state = filled(tmp_path / "state", 3)
    with state.locked("iris drain") as writer:
        pass
    with pytest.raises(ValueError, match="was released"):
        writer.append(DRAINED, at=NOON)
    assert state.read().seq == 3


def test_the_log_of_another_cluster_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "state", 3)
    stranger = state_in(tmp_path / "state", cluster_name="other")
    for refused in (stranger.read, lambda: stranger.create("other"), lambda: commit(stranger)):
        with pytest.raises(ConfigError, match="belongs to cluster 'lab', not to 'other'") as caught:
            refused()
        assert "--state-dir" in caught.value.hint
    with pytest.raises(ConfigError):
        state_in(tmp_path / "state").create("other")
    assert commit(state_in(tmp_path / "state", cluster_name="lab")) == 4


def test_a_clock_that_stepped_back_is_told(tmp_path: Path) -> None:
    filled(tmp_path / "state", 10)
    with state_in(tmp_path / "state", now=NOON - 3600).locked("iris drain") as writer:
        assert any("1h" in message and "behind" in message for message in writer.messages)
        assert writer.append(DRAINED, at=NOON - 3600).seq == 11
    with state_in(tmp_path / "state", now=NOON - 3500).locked("iris drain") as writer:
        assert writer.messages == ()


def test_a_heartbeat_comes_back_and_is_private(tmp_path: Path) -> None:
    state = state_in(tmp_path / "state")
    state.create("lab")
    assert state.read_heartbeat() is None
    for ended in ("ok", "ü"):
        state.write_heartbeat({"at": NOON, "ended": ended})
        assert state.read_heartbeat() == {"at": NOON, "ended": ended}
    assert mode(state.path / "heartbeat.json") == 0o600
    assert not [path for path in state.path.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 60_000])
def test_a_heartbeat_that_makes_no_sense_is_none(tmp_path: Path, content: bytes) -> None:
    state = state_in(tmp_path / "state")
    state.create("lab")
    (state.path / "heartbeat.json").write_bytes(content)
    assert state.read_heartbeat() is None


def test_readers_never_load_the_lock_library(tmp_path: Path) -> None:
    filled(tmp_path / "state", 3)
    code = (
        "import sys; from pathlib import Path; from iris_cli.journal.state_dir import StateDir\n"
        f"StateDir(Path({str(tmp_path / 'state')!r}), now=lambda: 0.0, actor='me@laptop').read()\n"
        "sys.exit('filelock' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, env=os.environ, check=False).returncode == 0
