"""The store of packed workspaces: what was put there comes back as it was, or not at all."""

from __future__ import annotations

import errno
import gzip
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from iris_cli.errors import IrisError, NotWritableError, WorkspaceGoneError
from iris_cli.files import Disk
from iris_cli.journal.files.workspaces import Workspaces
from tests.journal.samples import state_in
from tests.support.waiting import until

PIECES = [b"a" * 100_000, b"", Random(7).randbytes(300_000), b"end"]  # the hash is part of names of tests
WHOLE = b"".join(PIECES)
HASH = sha256(WHOLE).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "workspaces")


def contents(store: Workspaces, name: str = HASH) -> bytes:
    with store.open(name) as file:
        return gzip.decompress(file.read())


def test_a_workspace_is_named_after_its_contents_and_comes_back(store: Workspaces) -> None:
    assert store.put(PIECES) == (HASH, len(WHOLE))
    assert store.names() == (HASH,)
    assert contents(store) == WHOLE


def test_the_same_contents_are_kept_once(store: Workspaces) -> None:
    assert store.put(PIECES) == store.put([WHOLE])
    assert os.listdir(store.path) == [f"{HASH}.tar.gz"]


def test_nobody_else_can_read_them(tmp_path: Path) -> None:
    state = state_in(tmp_path / "state")
    state.create("lab")
    state.workspaces.put(PIECES)
    (file,) = state.workspaces.path.iterdir()
    assert [path.stat().st_mode & 0o777 for path in (file.parent, file)] == [0o700, 0o600]


def test_a_missing_workspace_is_reported(store: Workspaces) -> None:
    with pytest.raises(WorkspaceGoneError, match=f"{HASH[:12]} can't be read: No such file"):
        store.open(HASH)
    assert store.names() == ()
    store.remove(HASH)


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def _emptied(file: Path) -> None:
    os.truncate(file, 0)


def _flipped(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)


def _lengthened(file: Path) -> None:
    with file.open("ab") as end:
        end.write(b"\0")


def _of_others(file: Path) -> None:
    file.write_bytes(gzip.compress(b"content has changed"))


def _linked(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def _piped(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "damage", [_cut, _emptied, _flipped, _lengthened, _of_others, _linked, _piped, _directory]
)
def test_a_damaged_workspace_is_never_opened(store: Workspaces, damage: Callable[[Path], None]) -> None:
    store.put(PIECES)
    contents(store)  # read whole, and found right
    damage(store.path / f"{HASH}.tar.gz")
    with pytest.raises(WorkspaceGoneError, match=HASH[:12]):
        store.open(HASH)


def test_storing_a_workspace_again_repairs_it(store: Workspaces) -> None:
    store.put(PIECES)
    _flipped(store.path / f"{HASH}.tar.gz")
    store.put(PIECES)
    assert contents(store) == WHOLE


def test_a_workspace_is_verified_once(store: Workspaces, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(PIECES)
    contents(store)
    monkeypatch.setattr("iris_cli.journal.files.workspaces._hash_of", lambda file: pytest.fail("again"))
    assert contents(store) == WHOLE


@pytest.mark.parametrize("name", ["../../etc/passwd", "", HASH.upper(), HASH + "0", HASH[:-1]])
def test_only_a_hash_names_a_workspace(store: Workspaces, name: str) -> None:
    for use in (store.open, store.remove):
        with pytest.raises(ValueError, match="is not the hash"):
            use(name)


def test_other_files_there_are_no_workspaces(store: Workspaces) -> None:
    store.put(PIECES)
    for name in ("README", f"{HASH}.tar", "0.tar.gz", "abc.part"):
        (store.path / name).touch()
    assert store.names() == (HASH,)
    store.remove(HASH)
    assert store.names() == ()


def test_a_link_in_the_place_of_the_directory_is_not_followed(store: Workspaces, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    store.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotWritableError, match="is not a real directory"):
        store.put(PIECES)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_failed_packing_leaves_no_file(store: Workspaces) -> None:
    def broken() -> Iterator[bytes]:
        yield PIECES[0]
        raise IrisError("a file has changed")

    with pytest.raises(IrisError, match="a file has changed"):
        store.put(broken())
    assert os.listdir(store.path) == []


class _Broken(Disk):
    """A disk of which one call fails."""

    def __init__(self, call: str) -> None:
        self.call = call

    def fail(self, call: str) -> None:
        if call == self.call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(self, fd: int, data: bytes) -> int:
        self.fail("write")
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self.fail("fsync")
        super().fsync(fd)

    def rename(self, source: Path, target: Path) -> None:
        self.fail("rename")
        super().rename(source, target)


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, call: str) -> None:
    with pytest.raises(NotWritableError, match="No space left"):
        Workspaces(tmp_path / "workspaces", _Broken(call)).put(PIECES)
    assert os.listdir(tmp_path / "workspaces") == []


def test_many_threads_that_put_and_open_the_same_get_the_same(store: Workspaces) -> None:
    found: list[bytes] = []

    def use() -> None:
        store.put(PIECES)
        found.append(contents(store))

    threads = [Thread(target=use) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [WHOLE] * 4
    assert os.listdir(store.path) == [f"{HASH}.tar.gz"]


_WRITER = """
import sys
from itertools import cycle
from pathlib import Path
from iris_cli.journal.files.workspaces import Workspaces
Workspaces(Path(sys.argv[1])).put(cycle([b"x" * 100_000]))
"""


def test_a_writer_that_is_killed_leaves_a_part_that_is_no_workspace(store: Workspaces) -> None:
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(store.path)])
    try:
        until(lambda: store.path.is_dir() and os.listdir(store.path))
    finally:
        writer.kill()
        writer.wait()
    assert [path.suffix for path in store.path.iterdir()] == [".part"]
    assert store.names() == ()
    store.put(PIECES)
    assert store.names() == (HASH,)
