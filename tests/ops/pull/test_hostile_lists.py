"""Listings that mean harm, and directories here that do: nothing is written where it does not belong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import Token
from iris_cli.errors import NotWritableError
from iris_cli.ops.files.local_tree import LocalTree, open_tree
from iris_cli.remote.output_calls import PIECE, FileList, FilePiece, Version
from tests.ops.pull.conftest import pulled, row, tree
from tests.ops.world import World
from tests.support.remote_files import RemoteFile, RemoteFiles


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (b"output//etc/passwd", "its name is absolute"),
        (b"/etc/passwd", "not a file of this attempt"),
        (b"output/../../escaped", "leads out of the directory"),
        (b"output/a/../../../escaped", "leads out of the directory"),
        (b"output/a/./b", "leads out of the directory"),
        (b"output/a//b", "leads out of the directory"),
        (b"output/", "leads out of the directory"),
        (b"output", "not a file of this attempt"),
        (b"env", "not a file of this attempt"),
        (b"outputs/x", "not a file of this attempt"),
        (b"output/.iris-part-0", "reserved by iris"),
        (b"output/" + b"n" * 300, "can't be written"),
        (b"output/" + b"d/" * 3000 + b"x", "too long"),
        (b"output/file/below", "can't be written"),
        (b"output/directory", "can't be written"),
        (b"output/link", "can't be written (a link of that name exists)"),
        (b"output/way/x", "can't be written"),
        (b"output/dangling", "can't be written"),
    ],
)
def test_no_name_leads_anywhere_else(
    world: World, remote: RemoteFiles, rank0: Token, here: Path, tmp_path: Path, name: bytes, why: str
) -> None:
    here.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"precious")
    (here / "link").symlink_to(outside / "precious")
    (here / "way").symlink_to(outside)
    (here / "dangling").symlink_to(outside / "new")
    (here / "file").write_bytes(b"")
    (here / "directory/sub").mkdir(parents=True)
    before = {path for path in tmp_path.rglob("*") if "state" not in path.parts}
    remote.put(rank0, name, b"evil")
    found = row(world, remote, here)
    assert why in found.problems[0]
    assert (found.files, len(found.problems)) == (0, 1)
    after = {
        path for path in tmp_path.rglob("*") if "state" not in path.parts and ".iris-part" not in path.name
    }
    assert after == before
    assert tree(outside) == {"precious": b"precious"}


def test_an_attempt_whose_directory_is_a_link_is_not_written(
    world: World, remote: RemoteFiles, rank0: Token, here: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    here.parent.mkdir(parents=True)
    here.symlink_to(tmp_path / "outside")
    remote.put(rank0, "output/x", b"x")
    with pytest.raises(NotWritableError, match="can't be written"):
        pulled(world, remote, here)
    assert tree(tmp_path / "outside") == {}


def test_two_names_that_are_one_here_are_not_mixed_up(
    world: World, remote: RemoteFiles, rank0: Token, here: Path
) -> None:
    remote.put(rank0, b"output/a%0Ab", b"1")
    remote.put(rank0, b"output/a\nb", b"2")
    found = row(world, remote, here)
    assert tree(here) == {"a%0Ab": b"1"}
    assert "another file has the same local name" in found.problems[0]


def test_more_bytes_than_were_said_are_not_taken(
    world: World, remote: RemoteFiles, rank0: Token, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.put(rank0, "output/x", b"x" * (2 * PIECE))
    piece = remote.piece
    endless = RemoteFile(b"y" * (9 * PIECE))

    def generous(*arguments: object, **others: object) -> object:
        found = piece(*arguments, **others)  # type: ignore[arg-type]  # handed on
        assert isinstance(found, FilePiece)
        return replace(found, data=endless.data)

    monkeypatch.setattr(remote, "piece", generous)
    assert row(world, remote, here).bytes == 2 * PIECE
    assert (here / "x").stat().st_size == 2 * PIECE


def test_a_hundred_thousand_bad_names_are_rejected_in_few_words(
    world: World, remote: RemoteFiles, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = Version(1, 1, 1)
    names = tuple((b"output/../%d" % number, version) for number in range(100_000))
    monkeypatch.setattr(remote, "files_of", lambda token: FileList(token=token, files=names, cut=True))
    found = row(world, remote, here)
    assert len(found.problems) == 6
    assert "too many files: only 100000" in found.problems[0]
    assert found.problems[-1].endswith(" more")
    assert tree(here) == {}


def test_what_does_not_fit_is_not_begun(
    world: World, remote: RemoteFiles, rank0: Token, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalTree, "free", 10)
    remote.put(rank0, "output/x", b"x" * 11)
    assert "11B, only 10B free" in row(world, remote, here).problems[0]
    assert tree(here) == {}


def test_a_full_disk_ends_it_and_says_what_to_do(
    world: World, remote: RemoteFiles, rank0: Token, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    remote.put(rank0, "output/x", b"x")
    with pytest.raises(NotWritableError, match="No space left") as told:
        pulled(world, remote, here)
    assert "pull again" in told.value.hint


def test_two_pulls_at_once_do_not_mix(world: World, remote: RemoteFiles, rank0: Token, here: Path) -> None:
    remote.put(rank0, "output/x", b"x")
    with open_tree(here):
        assert "another iris pull" in row(world, remote, here).problems[0]
    assert row(world, remote, here).files == 1
