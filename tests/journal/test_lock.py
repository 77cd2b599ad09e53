"""One writer at a time, and what the others are told."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from filelock import FileLock, Timeout, lock_descriptor

from iris_cli.core.events.events import WorkerDrained
from iris_cli.core.ids import WorkerId
from iris_cli.errors import LockedError, NotWritableError
from iris_cli.journal.state_dir import StateDir
from tests.journal.samples import NOON, state_in
from tests.journal.writer_process import start

DRAINED = [WorkerDrained(worker=WorkerId("v4a-0"))]


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    state = state_in(tmp_path / "state")
    state.create("lab")
    return state


@contextmanager
def holder_of(state: StateDir) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock; killed in the end, if the test has not done so."""
    with start(state.path, "hold", "you") as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def commit(state: StateDir, timeout: float = 30.0) -> int:
    with state.locked("iris drain", timeout) as writer:
        return writer.append(DRAINED, at=NOON).seq


def test_a_timeout_names_the_lock_holder(state: StateDir) -> None:
    with holder_of(state) as process:
        for timeout in (0.0, 0.05):
            with pytest.raises(LockedError) as caught:
                commit(state, timeout)
            message = caught.value.message
            assert f"'iris hold' (pid {process.pid}, you@laptop) since 20" in message
            assert "--lock-timeout" in caught.value.hint
        holder = state.lock_holder()
        assert holder is not None
        assert holder.pid == process.pid


def test_a_stopped_holder_keeps_the_lock_however_long(state: StateDir) -> None:
    with holder_of(state) as process:
        process.send_signal(signal.SIGSTOP)
        ages_ago = NOON - 10**8
        os.utime(state.path / "lock", (ages_ago, ages_ago))
        wait_until_stopped(process.pid)
        with pytest.raises(LockedError, match=rf"\(pid {process.pid}, .*, which is stopped") as refused:
            commit(state, 0.2)
        assert refused.value.hint == f"to resume: kill -CONT {process.pid}"
        process.send_signal(signal.SIGCONT)


def wait_until_stopped(pid: int) -> None:
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)


def test_a_stopped_process_of_that_number_on_another_host_is_not_said_to_hold_the_lock(
    state: StateDir,
) -> None:
    """`lock.json` of a shared directory names a process of another host."""
    with holder_of(state) as process:
        process.send_signal(signal.SIGSTOP)
        wait_until_stopped(process.pid)
        signed = state.path / "lock.json"
        signed.write_text(signed.read_text().replace('@laptop"', '@elsewhere"'))
        with pytest.raises(LockedError) as refused:
            commit(state, 0.05)
        assert refused.value.hint.startswith("wait, or raise")
        process.send_signal(signal.SIGCONT)


def test_the_lock_is_that_which_the_library_takes_by_its_path(state: StateDir) -> None:
    """Scripts of an operator may hold it that way, and so did the iris of before."""
    by_path = FileLock(state.path / "lock", mode=0o600, fallback_to_soft=False, preserve_lock_file=True)
    with by_path, pytest.raises(LockedError):
        commit(state, 0.05)
    with state.locked("iris drain"), pytest.raises(Timeout):
        by_path.acquire(timeout=0)
    assert commit(state) == 2


def test_readers_neither_wait_nor_lock(state: StateDir) -> None:
    with holder_of(state):
        assert state.read().seq == 1


def test_the_lock_of_a_killed_process_is_free(state: StateDir) -> None:
    with holder_of(state) as process:
        process.kill()
        process.wait()
        assert commit(state) == 2


def test_a_stale_lock_json_is_ignored(state: StateDir) -> None:
    with holder_of(state) as process:
        process.kill()
        process.wait()
    left = json.loads((state.path / "lock.json").read_text())
    assert left["pid"] == process.pid
    assert state.lock_holder() is None
    assert state_in(state.path).lock_holder() is None
    elsewhere = StateDir(state.path, now=lambda: NOON, actor="me@bastion")
    assert elsewhere.lock_holder() is not None, "a process on another host can't be asked"


def test_a_malformed_lock_json_is_ignored(state: StateDir) -> None:
    wrong_types = '{"pid": "x", "actor": 1, "command": 2, "since": 3}'
    for content in ("", "{", "[]", "{}", wrong_types, '{"pid": -1}', "\0" * 9000):
        with state.locked("iris drain"):
            (state.path / "lock.json").write_text(content)
            assert state_in(state.path).lock_holder() is None
    with holder_of(state):
        (state.path / "lock.json").write_text(wrong_types)
        with pytest.raises(LockedError, match="another command"):
            commit(state, 0.0)
    assert commit(state) == 2


def test_when_the_lock_is_let_go_nobody_is_named(state: StateDir) -> None:
    with state.locked("iris drain"):
        holder = state.lock_holder()
        assert holder is not None
        assert (holder.pid, holder.command, holder.actor) == (os.getpid(), "iris drain", "me@laptop")
    assert state.lock_holder() is None


def test_ctrl_c_just_when_the_lock_is_got_lets_it_go(
    state: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook keeps the traceback, with all that is in it, and lives on."""

    def interrupted(fd: int, *, blocking: bool) -> None:
        assert lock_descriptor(fd, blocking=blocking)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("iris_cli.journal.log.writer.lock_descriptor", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            commit(state)
    assert commit(state_in(state.path), 0.0) == 2
    assert caught.traceback


def test_the_lock_file_stays(state: StateDir) -> None:
    inode = (state.path / "lock").stat().st_ino
    commit(state)
    with pytest.raises(ZeroDivisionError), state.locked("iris drain"):
        _ = 1 / 0
    assert (state.path / "lock").stat().st_ino == inode
    assert commit(state) == 3


@pytest.mark.parametrize("how", ["deleted", "replaced", "directory replaced"])
def test_the_holder_of_a_replaced_lock_writes_nothing(state: StateDir, how: str, tmp_path: Path) -> None:
    lock, before = state.path / "lock", (state.path / "events.jsonl").read_bytes()
    with state.locked("iris drain") as writer:
        if how == "directory replaced":
            state.path.rename(tmp_path / "old")
            state_in(state.path).create("other")
        else:
            lock.unlink()
        if how == "replaced":
            lock.touch(0o600)
        with pytest.raises(LockedError, match="deleted or replaced"):
            writer.append(DRAINED, at=NOON)
    where = tmp_path / "old" if how == "directory replaced" else state.path
    assert (where / "events.jsonl").read_bytes() == before
    assert commit(state) == 2


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused(
    state: StateDir, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def no_locks(fd: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(NotWritableError, match="does not support locks") as caught:
        commit(state)
    assert "--state-dir" in caught.value.hint
    assert state.read().seq == 1


def test_two_processes_that_write_at_once_lose_nothing(state: StateDir) -> None:
    told: list[str] = []
    with start(state.path, "append", "a") as one, start(state.path, "append", "b") as other:
        try:
            for process in (one, other) * 15:
                assert process.stdout is not None
                told.append(process.stdout.readline())
        finally:
            one.kill()
            other.kill()
    view = state.read()
    assert [each.seq for each in view.transactions] == list(range(1, view.seq + 1))
    seqs = sorted(int(line.split()[0]) for line in told)
    assert len(set(seqs)) == 30
    assert seqs[-1] <= view.seq


def test_threads_that_share_a_state_directory_lose_nothing(state: StateDir) -> None:
    seqs: list[int] = []

    def write() -> None:
        seqs.extend(commit(state) for _ in range(5))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seqs) == list(range(2, 22))


def test_a_thread_that_holds_the_lock_keeps_itself_out(state: StateDir) -> None:
    commit(state)
    with (
        state.locked("iris drain") as writer,
        pytest.raises(LockedError, match="'iris drain'"),
        state.locked("iris drain", 0.0),
    ):
        pass
    with pytest.raises(ValueError, match="was released"):
        writer.append(DRAINED, at=NOON)
    assert commit(state) == 3


@pytest.mark.parametrize("held", [False, True])
def test_a_forked_process_takes_the_lock_like_any_other(state: StateDir, held: bool) -> None:
    commit(state)
    with state.locked("iris drain") if held else nullcontext():
        child = os.fork()
        if child == 0:
            seq = 0
            with suppress(BaseException):
                seq = commit(state, 0.0)
            os._exit(seq)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (0 if held else 3)
    assert commit(state) == (3 if held else 4)
