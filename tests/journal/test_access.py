"""Who may get at the state directory, and what is told when it isn't as it should be."""

from __future__ import annotations

import os
import subprocess
import threading
import traceback
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from iris_cli.core.events.events import WorkerDrained, WorkerRegistered
from iris_cli.core.ids import WorkerId
from iris_cli.errors import ExitCode, NotWritableError
from iris_cli.files import last_lines
from iris_cli.journal.access import disk_problem
from iris_cli.journal.log.file_store import FileStore
from iris_cli.journal.log.verify import salvage, verify
from iris_cli.journal.state_dir import StateDir
from tests.journal import histories
from tests.journal.samples import HOST, NOON, filled, state_in

DRAINED = [WorkerDrained(worker=WorkerId("v4a-0"))]
FILES = ["events.jsonl", "HEAD", "lock", "lock.json"]
NOBODY = 65534


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return filled(tmp_path / "state", 5)


def refusal(state: StateDir) -> NotWritableError:
    before = (state.path / "events.jsonl").read_bytes()
    with pytest.raises(NotWritableError) as caught, state.locked("iris drain") as writer:
        writer.append(DRAINED, at=NOON)
    assert (state.path / "events.jsonl").read_bytes() == before
    with pytest.raises(NotWritableError):
        salvage(state.path, now=NOON, actor="me@laptop")
    return caught.value


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o606, 0o777])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_others_can_read_or_write_is_refused_with_the_line_that_closes_it(
    state: StateDir, name: str, mode: int
) -> None:
    (state.path / name).chmod(mode)
    error = refusal(state)
    assert error.hint == f"chmod 600 {state.path / name}"
    assert error.exit_code == ExitCode.NOT_WRITABLE
    view = state.read()
    assert view.seq == 5
    assert error.hint in view.warnings[0]


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777])
def test_a_directory_that_others_can_enter_is_refused_with_the_line_that_closes_it(
    state: StateDir, mode: int
) -> None:
    state.path.chmod(mode)
    assert refusal(state).hint == f"chmod 700 {state.path}"


def test_the_line_that_closes_names_everything_and_can_be_pasted(tmp_path: Path) -> None:
    state = filled(tmp_path / "my state", 5)
    state.path.chmod(0o777)
    (state.path / "HEAD").chmod(0o666)
    hint = refusal(state).hint
    subprocess.run(["sh", "-c", hint], check=True)
    with state.locked("iris drain") as writer:
        assert writer.append(DRAINED, at=NOON).seq == 6


@pytest.mark.parametrize("name", FILES)
def test_a_symbolic_link_in_the_place_of_a_file_is_refused(
    state: StateDir, name: str, tmp_path: Path
) -> None:
    (state.path / name).rename(tmp_path / name)
    (state.path / name).symlink_to(tmp_path / name)
    assert f"{name} is a symbolic link" in refusal(state).message
    with pytest.raises(NotWritableError, match="symbolic link"):
        state.read()


@pytest.mark.parametrize("name", ["HEAD.tmp", "events.jsonl.tmp"])
def test_a_symbolic_link_in_the_place_of_a_draft_is_not_followed(
    state: StateDir, name: str, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (state.path / name).symlink_to(victim)
    (state.path / "HEAD").unlink()  # so that the log is copied, too
    with pytest.raises(NotWritableError), state.locked("iris drain"):
        pass
    assert victim.read_text() == "precious"


def at_once(act: Callable[[], object], pipe: Path) -> list[object]:
    """What it gave, of what must not wait for a pipe, or what it raised."""
    done: list[object] = []

    def run() -> None:
        try:
            done.append(act())
        except NotWritableError as error:
            done.append(error.message)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    if thread.is_alive():
        os.close(os.open(pipe, os.O_RDWR))  # which lets it go on
    return done


@pytest.mark.parametrize(
    ("name", "kind"), [*product(FILES, ("pipe", "directory")), ("archive", "pipe"), ("archive", "file")]
)
def test_a_special_file_is_rejected_without_blocking(state: StateDir, name: str, kind: str) -> None:
    path = state.path / name
    path.unlink(missing_ok=True)
    makers: dict[str, Callable[[Path, int], None]] = {
        "pipe": os.mkfifo,
        "directory": os.mkdir,
        "file": Path.touch,
    }
    makers[kind](path, 0o600)
    said = f"{path} is not a {'directory' if name == 'archive' else 'regular file'}"

    def write() -> None:
        with state.locked("iris drain"):
            pass

    for act in (state.read, write, lambda: verify(state.path)):
        assert at_once(act, path) == [said]


def test_a_pipe_in_place_of_a_log_with_a_snapshot_does_not_block(tmp_path: Path) -> None:
    state = histories.state_in(tmp_path / "state")
    state.create("lab")
    with state.locked("iris drain") as writer:
        writer.append([WorkerRegistered(worker=WorkerId("w"), connection=HOST)], at=NOON)
    view = state.load()
    assert view.cluster is not None
    state.save_snapshot(view.cluster, always=True)
    assert state.has_snapshot
    log = state.path / "events.jsonl"
    log.unlink()
    os.mkfifo(log, 0o600)
    for act in (state.load, state.has_log):
        assert at_once(act, log) == [f"{log} is not a regular file"]


def test_a_pipe_in_place_of_the_heartbeat_does_not_block(state: StateDir) -> None:
    os.mkfifo(state.path / "heartbeat.json", 0o600)
    assert at_once(state.read_heartbeat, state.path / "heartbeat.json") == [None]


def test_a_pipe_in_place_of_the_loops_log_does_not_block(state: StateDir) -> None:
    log = state.path / "loop.log"
    os.mkfifo(log, 0o600)
    assert at_once(lambda: last_lines(log), log) == [[]]


def test_a_state_directory_may_be_reached_by_a_link(state: StateDir, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(state.path)
    with state_in(tmp_path / "link").locked("iris drain") as writer:
        assert writer.append(DRAINED, at=NOON).seq == 6


def test_a_state_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").touch(0o600)
    state = state_in(tmp_path / "state")
    with pytest.raises(NotWritableError):
        state.create("lab")
    with pytest.raises(NotWritableError):
        state.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", [".", *FILES])
def test_what_belongs_to_another_user_is_refused(state: StateDir, name: str) -> None:
    os.chown(state.path / name, NOBODY, NOBODY)
    error = refusal(state)
    assert f"belongs to another user (uid {NOBODY})" in error.message
    assert "chown" in error.hint


def in_a_child(state: StateDir, attempt: Callable[[StateDir], None]) -> bool:
    """Whether `attempt` ends well in a process that no permission is waived for.

    Root may write anywhere, so as root the child becomes somebody else, after going to where it needs no path.
    """
    if os.geteuid() == 0:
        for path in (state.path, *state.path.iterdir()):
            os.chown(path, NOBODY, NOBODY)
    child = os.fork()
    if child == 0:
        try:
            os.chdir(state.path.parent)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            attempt(state_in(Path(state.path.name)))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_read_only_directory_can_be_read_and_is_refused_to_writers(state: StateDir) -> None:
    def attempt(state: StateDir) -> None:
        assert (state.read().seq, state.read().damage) == (5, None)
        with pytest.raises(NotWritableError, match="state can't be written"), state.locked("iris drain"):
            pass

    state.path.parent.chmod(0o755)
    state.path.chmod(0o500)
    assert in_a_child(state, attempt)
    state.path.chmod(0o700)


def test_a_head_that_nobody_may_write_to_is_replaced(state: StateDir) -> None:
    def attempt(state: StateDir) -> None:
        store = FileStore(state.path)
        store.load()
        assert store.append(5, DRAINED, at=NOON, actor="me@laptop") == 6
        assert state.read().committed

    state.path.parent.chmod(0o755)
    (state.path / "HEAD").chmod(0o400)
    assert in_a_child(state, attempt)
    assert (state.path / "HEAD").stat().st_mode & 0o777 == 0o600


def test_a_directory_that_is_closed_to_us_is_told_to_readers_too(state: StateDir) -> None:
    def attempt(state: StateDir) -> None:
        with pytest.raises(NotWritableError, match="Permission denied"):
            state.read()
        with pytest.raises(NotWritableError, match="Permission denied"), state.locked("iris drain"):
            pass

    state.path.parent.chmod(0o755)
    state.path.chmod(0o000)
    assert in_a_child(state, attempt)
    state.path.chmod(0o700)


def test_a_disk_with_room_and_a_directory_that_is_not_there_keep_nobody_from_writing(state: StateDir) -> None:
    """For full and read-only disks: tests/faults/test_full_disks.py."""
    assert disk_problem(state.path.parent) == ""
    assert disk_problem(state.path / "nowhere") == ""
