"""A system call that fails, or a process that dies, at each single step of writing."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from iris_cli.core.events.events import WorkerDrained
from iris_cli.core.ids import WorkerId
from iris_cli.errors import ExitCode, NotWritableError
from iris_cli.files import Disk
from iris_cli.journal.log.verify import salvage, verify
from iris_cli.journal.state_dir import StateDir
from tests.journal.samples import NOON, filled, state_in

COUNT = 6
EVENT = WorkerDrained(worker=WorkerId("v4a-0"), reason="the one in question")


class PowerCut(BaseException):
    """The process dies here: nothing is tidied up."""


@dataclass
class BadDisk(Disk):
    """A disk on which the call number `step`, counted from 0, goes wrong; if it is worn, all later ones too."""

    step: int
    fault: int | type[PowerCut] | str
    worn: bool = False
    after: bool = False  # the call has its effect before it fails
    calls: list[str] = field(default_factory=list)

    def write(self, fd: int, data: bytes) -> int:
        if self._fails("write"):
            os.write(fd, data[: len(data) if self.after else len(data) // 2])
            if self.fault == "short":
                return len(data) // 2
            self._fail()
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        if self._fails("fsync"):
            self._fail()
        super().fsync(fd)

    def truncate(self, fd: int, size: int) -> None:
        if self._fails("truncate"):
            if self.after:
                super().truncate(fd, size)
            self._fail()
        super().truncate(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        if self._fails("rename"):
            if self.after:
                super().rename(source, target)
            self._fail()
        super().rename(source, target)

    def _fails(self, call: str) -> bool:
        self.calls.append(call)
        place = len(self.calls) - 1
        return place == self.step or (self.worn and place > self.step)

    def _fail(self) -> None:
        if self.fault is PowerCut:
            raise PowerCut
        code = self.fault if isinstance(self.fault, int) else errno.EIO
        raise OSError(code, os.strerror(code))


def on(disk: Disk, path: Path) -> StateDir:
    return StateDir(path, now=lambda: NOON, actor="me@laptop", disk=disk)


def commit(state: StateDir) -> int:
    with state.locked("iris drain") as writer:
        return writer.append([EVENT], at=NOON).seq


def fresh(tmp_path: Path, prepare: Callable[[Path], object]) -> Path:
    """The state directory, made anew."""
    path = tmp_path / "state"
    if path.exists():
        shutil.rmtree(path)
    prepare(path)
    return path


def sound(path: Path) -> None:
    filled(path, COUNT)


def beyond_head_and_torn(path: Path) -> None:
    """What a crash leaves: a line that HEAD doesn't know, and half of another."""
    state = filled(path, COUNT - 1)
    head = (path / "HEAD").read_bytes()
    commit(state)
    (path / "HEAD").write_bytes(head)
    with (path / "events.jsonl").open("ab") as log:
        log.write(b'{"seq":7,"prev"')


def nothing(path: Path) -> None:
    path.mkdir(mode=0o700)


def test_a_commit_is_refused_where_there_is_no_room_though_its_line_would_still_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = filled(tmp_path / "state", COUNT)
    before = {path.name: path.read_bytes() for path in state.path.iterdir()}
    whole = os.statvfs(tmp_path)

    def say(**sizes: int) -> None:
        said = SimpleNamespace(f_blocks=whole.f_blocks, f_frsize=whole.f_frsize, f_bfree=0, f_bavail=0)
        monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(**{**vars(said), **sizes}))

    say()
    with pytest.raises(NotWritableError, match="No space left") as caught:
        commit(state)
    assert caught.value.exit_code == ExitCode.NOT_WRITABLE
    assert {path.name: path.read_bytes() for path in state.path.iterdir()} == before
    say(f_bfree=1, f_bavail=1)
    assert commit(state) == COUNT + 1
    say(f_blocks=0)  # one that doesn't say how large it is
    assert commit(state) == COUNT + 2


STEPS = range(40)
FAULTS = [errno.ENOSPC, errno.EIO, "short"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_commit_that_fails_at_any_step_is_taken_back(tmp_path: Path, fault: int | str, after: bool) -> None:
    for step in range(3):
        path = fresh(tmp_path, sound)
        before, head = (path / "events.jsonl").read_bytes(), (path / "HEAD").read_bytes()
        with pytest.raises(NotWritableError) as caught:
            commit(on(BadDisk(step, fault, after=after), path))
        assert caught.value.exit_code == ExitCode.NOT_WRITABLE
        assert (path / "events.jsonl").read_bytes() == before
        assert (path / "HEAD").read_bytes() == head
        assert commit(state_in(path)) == COUNT + 1
        assert verify(path).ok


def test_a_commit_is_line_then_fsync_then_head(tmp_path: Path) -> None:
    disk = BadDisk(99, errno.EIO)
    assert commit(on(disk, fresh(tmp_path, sound))) == COUNT + 1
    assert disk.calls == ["write", "fsync", "write"]


def test_a_commit_asks_the_kernel_for_durability_of_the_line_and_of_a_new_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, int]] = []

    def fsync(fd: int) -> None:
        status = os.fstat(fd)
        synced.append((status.st_ino, status.st_size))

    def log() -> tuple[int, int]:
        status = (path / "events.jsonl").stat()
        return status.st_ino, status.st_size

    path = fresh(tmp_path, nothing)
    monkeypatch.setattr(os, "fsync", fsync)
    state_in(path).create("lab")
    assert synced[0] == log()
    assert path.stat().st_ino in [inode for inode, _ in synced[1:]]
    synced.clear()
    commit(state_in(path))
    assert synced == [log()]
    synced.clear()
    (path / "HEAD").unlink()
    with state_in(path).locked("iris drain"):
        assert synced[0] == log()
        assert path.stat().st_ino in [inode for inode, _ in synced[1:]]


@pytest.mark.parametrize("fault", FAULTS)
def test_if_reverting_fails_the_next_writer_recovers(tmp_path: Path, fault: int | str) -> None:
    for step in range(3):
        path = fresh(tmp_path, sound)
        state = on(BadDisk(step, fault, worn=True), path)
        with pytest.raises(NotWritableError), state.locked("iris drain") as writer:
            writer.append([EVENT], at=NOON)
        assert state.read().seq in (COUNT, COUNT + 1)
        survived = state.read().seq
        assert commit(state_in(path)) == survived + 1
        assert verify(path).ok


def test_after_a_failure_that_could_not_be_taken_back_the_same_writer_refuses(tmp_path: Path) -> None:
    path = fresh(tmp_path, sound)
    disk = BadDisk(1, errno.EIO, worn=True)
    with on(disk, path).locked("iris drain") as writer:
        with pytest.raises(NotWritableError, match="Input/output error"):
            writer.append([EVENT], at=NOON)
        disk.worn = False
        with pytest.raises(NotWritableError, match="grew to seq"):
            writer.append([EVENT], at=NOON)
    assert commit(state_in(path)) == COUNT + 2


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("prepare", [sound, beyond_head_and_torn], ids=lambda each: each.__name__)
def test_a_crash_at_any_step_loses_nothing_that_was_acknowledged(
    tmp_path: Path, prepare: Callable[[Path], None], after: bool
) -> None:
    for step in STEPS:
        path = fresh(tmp_path, prepare)
        history = state_in(path).read().transactions
        disk = BadDisk(step, PowerCut, after=after)
        try:
            commit(on(disk, path))
        except PowerCut:
            pass
        else:
            assert "fsync" in disk.calls
            break
        view = state_in(path).read()
        assert view.damage is None
        assert view.transactions[: len(history)] == history
        assert [each.events for each in view.transactions[len(history) :]] in ([], [(EVENT,)])
        assert commit(state_in(path)) == view.seq + 1
        assert verify(path).ok
    else:
        pytest.fail("no run without a fault")


@pytest.mark.parametrize("fault", [PowerCut, errno.ENOSPC, errno.EIO, "short"])
@pytest.mark.parametrize("worn", [False, True], ids=["once", "worn"])
def test_a_log_whose_beginning_failed_at_any_step_can_begin_again(
    tmp_path: Path, fault: int | str | type[PowerCut], worn: bool
) -> None:
    for step in STEPS:
        path = fresh(tmp_path, nothing)
        try:
            on(BadDisk(step, fault, worn=worn), path).create("lab")
        except (PowerCut, NotWritableError):
            state_in(path).create("lab")
            assert state_in(path).read().seq == 1
            assert commit(state_in(path)) == 2
            assert verify(path).ok
        else:
            break
    assert step > 3


@pytest.mark.parametrize("fault", [PowerCut, errno.ENOSPC, "short"])
def test_a_repair_that_fails_at_any_step_can_be_repeated(
    tmp_path: Path, fault: int | str | type[PowerCut]
) -> None:
    for step in STEPS:
        path = fresh(tmp_path, beyond_head_and_torn)
        history = state_in(path).read().transactions
        try:
            with on(BadDisk(step, fault), path).locked("iris drain"):
                pass
        except (PowerCut, NotWritableError):
            assert state_in(path).read().transactions == history
            assert commit(state_in(path)) == COUNT + 1
            assert verify(path).ok
            assert any(each.read_bytes() == b'{"seq":7,"prev"' for each in path.glob("torn-*"))
        else:
            break
    assert step > 5


@pytest.mark.parametrize("fault", [errno.ENOSPC, "short"])
def test_what_there_is_no_room_to_copy_leaves_no_beginning_behind(tmp_path: Path, fault: int | str) -> None:
    """Cron tries once a minute: what each run left would fill a disk that has room again."""

    def repair(disk: Disk) -> None:
        with on(disk, path).locked("iris drain"):
            pass

    def save(disk: Disk) -> None:
        salvage(path, now=NOON, actor="me@laptop", disk=disk)

    for act in (repair, save):
        for step, call in enumerate(("write", "fsync")):
            path = fresh(tmp_path, beyond_head_and_torn)
            if act is save:
                (path / "events.jsonl").write_bytes(
                    (path / "events.jsonl").read_bytes().replace(b"w3", b"w4")
                )
            before = {each.name for each in path.iterdir()}
            disk = BadDisk(step, fault)
            with pytest.raises(NotWritableError):
                act(disk)
            assert disk.calls[step] == call
            assert {each.name for each in path.iterdir()} - before <= {"lock", "lock.json"}


@pytest.mark.parametrize("fault", [PowerCut, errno.ENOSPC, "short"])
def test_a_salvage_that_fails_at_any_step_can_be_repeated(
    tmp_path: Path, fault: int | str | type[PowerCut]
) -> None:
    for step in STEPS:
        path = fresh(tmp_path, sound)
        log = path / "events.jsonl"
        damaged = log.read_bytes().replace(b'"w3"', b'"w4"')
        log.write_bytes(damaged)
        try:
            salvage(path, now=NOON, actor="me@laptop", disk=BadDisk(step, fault))
        except (PowerCut, NotWritableError):
            salvage(path, now=NOON, actor="me@laptop")
            assert state_in(path).read().seq == 3
            assert commit(state_in(path)) == 4
            assert verify(path).ok
            assert any(each.read_bytes() == damaged for each in path.glob("events.jsonl.damaged-*"))
        else:
            break
    assert step > 5


SHORT_WRITE = """
import resource, sys
from pathlib import Path
from iris_cli.core.events.events import WorkerDrained
from iris_cli.core.ids import WorkerId
from iris_cli.errors import IrisError
from iris_cli.journal.state_dir import StateDir

state = StateDir(Path(sys.argv[1]), now=lambda: 0.0, actor="me@laptop")
limit = (state.path / "events.jsonl").stat().st_size + 50
sys.dont_write_bytecode = True  # Python would leave the beginning of what it compiled, which nobody can load
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    with state.locked("iris drain") as writer:
        writer.append([WorkerDrained(worker=WorkerId("w"), reason="x" * 500)], at=0.0)
except IrisError as error:
    sys.exit(error.exit_code)
"""


def test_a_write_that_the_kernel_cuts_short_is_taken_back(tmp_path: Path) -> None:
    path = fresh(tmp_path, lambda path: filled(path, 60))
    before = (path / "events.jsonl").read_bytes()
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", SHORT_WRITE, str(path)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
    )
    assert ended.returncode == ExitCode.NOT_WRITABLE
    assert (path / "events.jsonl").read_bytes() == before
    assert commit(state_in(path)) == 61
