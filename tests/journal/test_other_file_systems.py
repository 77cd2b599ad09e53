"""What other file systems do otherwise: close may fail, directories need to be synced, or can't be."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from iris_cli.errors import NotWritableError
from iris_cli.files import Disk
from iris_cli.journal.log.verify import verify
from tests.journal.samples import state_in
from tests.journal.test_faults import COUNT, commit, fresh, on, sound


def test_what_is_on_the_disk_is_committed_even_if_closing_the_file_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system or FUSE may say so then. The line can't be taken back any more, and need not be."""
    close, path = os.close, fresh(tmp_path, sound)

    def failing(fd: int) -> None:
        is_ours = os.fstat(fd).st_ino in {each.stat().st_ino for each in (path, *path.iterdir())}
        close(fd)
        if is_ours:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "close", failing)
    assert commit(state_in(path)) == COUNT + 1


class Folder(Disk):
    """A file system that can't sync directories, or says that it could not."""

    def __init__(self, code: int) -> None:
        self._code = code

    def fsync(self, fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(self._code, os.strerror(self._code))
        super().fsync(fd)


def test_file_systems_without_directory_sync_are_supported(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state"
    with pytest.raises(NotWritableError, match="Input/output error"):
        on(Folder(errno.EIO), path).create("lab")
    state = on(Folder(errno.EINVAL), path)
    state.create("lab")
    assert commit(state) == 2
    state.compact("iris log compact")
    assert commit(state) == 4
    assert verify(path).ok


def test_directories_that_are_made_have_names_that_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is in them, and was acknowledged, is lost with their names."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    (tmp_path / "link").symlink_to(tmp_path)
    state = state_in(tmp_path / "link" / "lab" / "of mine" / "state")
    state.create("lab")
    for made in (state.path, state.path.parent, state.path.parent.parent):
        assert made.parent.resolve().stat().st_ino in synced, made
    synced.clear()
    state.workspaces.put([b"packed"])
    assert state.path.stat().st_ino in synced
    synced.clear()
    state.workspaces.put([b"another"])
    assert state.path.stat().st_ino not in synced
