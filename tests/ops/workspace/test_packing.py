"""A directory as a tar file: the same bytes for the same files, which every tar reads, or a word why not."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.core.model.job import JobRequest, Workspace
from iris_cli.core.model.limits import Limits
from iris_cli.errors import UsageError
from iris_cli.ops.jobs.launch import launch
from iris_cli.ops.session import Session
from iris_cli.ops.workspace import pack
from iris_cli.ops.workspace.archive import Entry
from iris_cli.ops.workspace.pack import Listing, files_to_ship, list_directory, tar_chunks
from tests.ops.world import World
from tests.support.lab import Lab
from tests.support.onlooker import Onlooker

GIB = 1 << 30


def packed(directory: Path) -> bytes:
    return b"".join(tar_chunks(list_directory(directory, GIB)))


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Names of all lengths, links, files that are programs, and files as long as a block, and nearly."""
    top = tmp_path / "top"
    names = [
        *("a", "-x", "sub/b", "ü b", "sub/" + "n" * 100, "n" * 101, "d" * 155 + "/" + "n" * 100),
        *("d" * 156 + "/n", "/".join(["deep" * 20] * 9), "deeper/" * 50 + "end", "back\\slash", "*"),
    ]
    for number, name in enumerate(names):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(os.urandom([0, 1, 511, 512, 513, 70_000][number % 6]))
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o751)
    (top / "sub/link").symlink_to("../a")
    (top / "dangling").symlink_to("nowhere/" * 30)
    return top


def tree(top: Path) -> dict[str, tuple[bytes | str, bool]]:
    return {
        str(path.relative_to(top)): (os.readlink(path), False)
        if path.is_symlink()
        else (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in top.rglob("*")
        if path.is_symlink() or path.is_file()
    }


TARS = [("tar",), ("busybox", "tar"), ("bsdtar",)]


@pytest.mark.parametrize("program", TARS, ids=" ".join)
def test_every_tar_reads_it(top: Path, tmp_path: Path, program: tuple[str, ...]) -> None:
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed here")
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [*program, "-xf", "-"], cwd=tmp_path / "out", input=packed(top), capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert tree(tmp_path / "out") == tree(top)


def test_nothing_of_this_machine_is_in_it_but_names_and_contents(top: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(packed(top))) as file:
        members = file.getmembers()
    assert [each.name for each in members] == sorted(tree(top), key=os.fsencode)
    assert {(each.uid, each.gid, each.uname, each.gname, each.mtime) for each in members} == {
        (0, 0, "", "", 946_684_800)
    }
    assert {each.mode for each in members} == {0o644, 0o755, 0o777}


def test_the_same_files_make_the_same_bytes_wherever_and_whenever(top: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(top, copy, symlinks=True)
    for path in copy.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)
    (copy / "empty").mkdir()
    assert packed(copy) == packed(top)
    (copy / "a").write_bytes(b"another")
    assert packed(copy) != packed(top)


def test_its_size_is_known_beforehand(top: Path) -> None:
    assert list_directory(top, GIB).size == len(packed(top))


def test_a_file_of_nearly_8_gib_still_has_its_size_in_the_header() -> None:
    header = Entry(name="big", size=(1 << 33) - 1).header
    with tarfile.open(fileobj=io.BytesIO(header), ignore_zeros=True) as file:
        member = file.next()
    assert member is not None
    assert member.size == (1 << 33) - 1


def test_too_much_is_refused_with_the_biggest_files_and_what_to_do(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"file-{number}").write_bytes(bytes(1000 * number))
    with pytest.raises(UsageError) as told:
        list_directory(tmp_path, 20_000)
    assert "in 9 files, more than 20KB (limits.workspace_size)" in told.value.message
    assert "file-8 (8KB), file-7 (7KB)" in told.value.message
    assert "file-3" not in told.value.message
    assert ".irisignore" in told.value.hint


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("link", "/etc/passwd"),
        ("link", ".."),
        ("link", "../a"),
        ("sub/link", "../../a"),
        ("link", "sub/../../a"),
        ("sub/link", "here/../../a"),  # where `here` is a link to `..`, this leads out
        ("link", "./../a"),
        ("link", "a\nb"),
        ("link", b"\xff"),
    ],
)
def test_links_that_lead_out_are_refused(tmp_path: Path, name: str, target: str | bytes) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").touch()
    os.symlink(os.fsencode(target), os.fsencode(tmp_path / name))
    with pytest.raises(UsageError, match=f"links that lead out of the directory: {name} ->"):
        list_directory(tmp_path, GIB)


@pytest.mark.parametrize(
    "target", [".", "a", "./a", "sub//b", "../a", "../../top/a", "..", "../sub/", ".a..b"]
)
def test_links_that_stay_inside_are_kept(tmp_path: Path, target: str) -> None:
    (tmp_path / "top/sub").mkdir(parents=True)
    (tmp_path / "top/sub/link").symlink_to(target)
    if target.startswith("../.."):
        with pytest.raises(UsageError):
            list_directory(tmp_path / "top", GIB)
    else:
        assert [each.target for each in list_directory(tmp_path / "top", GIB).entries] == [target]


@pytest.mark.parametrize("name", [b"\xff", b"a\nb", b"\x1b[31m", b"a\x7f"])
def test_names_that_programs_read_differently_are_refused(tmp_path: Path, name: bytes) -> None:
    with open(os.fsencode(tmp_path) + b"/" + name, "w"):
        pass
    with pytest.raises(UsageError, match="not UTF-8 or hold control characters"):
        list_directory(tmp_path, GIB)


@pytest.mark.parametrize(("name", "target"), [("a -> b", None), ("a -> b", "c"), ("a", "b -> c")])
def test_names_that_no_worker_would_take_are_refused_at_once(
    tmp_path: Path, name: str, target: str | None
) -> None:
    if target is None:
        (tmp_path / name).touch()
    else:
        (tmp_path / name).symlink_to(target)
    with pytest.raises(UsageError, match="names with an arrow"):
        list_directory(tmp_path, GIB)


def test_what_lies_behind_a_link_in_the_place_of_a_directory_is_not_taken(tmp_path: Path) -> None:
    """Git still tracks `sub/b` after `sub` has become a link."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed here")
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (top / "sub/b").touch()
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=top, check=True)
    shutil.rmtree(top / "sub")
    (top / "other").mkdir()
    (top / "other/b").touch()
    (top / "sub").symlink_to("other")
    assert [each.name for each in list_directory(top, GIB).entries] == ["other/b", "sub"]


@pytest.mark.parametrize("name", ["nowhere", "file", "loop", "nul\0"])
def test_what_is_no_directory_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match=r"--workdir .*") as told:
        list_directory(tmp_path / name, GIB)
    assert told.value.hint == "name a directory"


def test_an_empty_directory_is_no_workspace(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to ship"):
        list_directory(tmp_path, GIB)


def test_a_directory_may_be_named_by_a_link(top: Path, tmp_path: Path) -> None:
    (tmp_path / "named").symlink_to(top)
    assert packed(tmp_path / "named") == packed(top)


# Launching with it


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(Lab(), tmp_path / "state")


def request(top: Path) -> JobRequest:
    return JobRequest(command=("true",), workdir=str(top))


def launched(session: Session, top: Path) -> Workspace:
    job = launch(session, request(top))
    workspace = session.cluster.jobs[job].workspace
    assert workspace is not None
    return workspace


def test_the_job_has_what_was_kept_in_the_state_directory(world: World, top: Path) -> None:
    session = world.session()
    found = launched(session, top)
    assert (found.name, found.files, found.size) == ("top", len(tree(top)), len(packed(top)))
    assert session.state.workspaces.names() == (found.hash,)


def test_what_was_launched_is_kept_though_the_directory_changes(world: World, top: Path) -> None:
    session = world.session()
    before = launched(session, top)
    (top / "a").write_bytes(b"changed")
    after = launched(session, top)
    assert after != before
    assert session.state.workspaces.names() == tuple(sorted([before.hash, after.hash]))
    assert launched(session, top) == after
    assert len(session.state.workspaces.names()) == 2


def test_a_dry_run_packs_nothing(world: World, top: Path) -> None:
    found = files_to_ship(world.session(), request(top))
    assert found is not None
    assert (len(found.entries), found.rule) == (len(tree(top)), "all files (not a git repository)")
    assert world.session().state.workspaces.names() == ()


def test_what_else_is_wrong_with_a_job_is_told_before_anything_is_packed(world: World, top: Path) -> None:
    with pytest.raises(UsageError, match="no command"):
        launch(world.session(), JobRequest(workdir=str(top)))
    assert world.session().state.workspaces.names() == ()


def _changes(monkeypatch: pytest.MonkeyPatch, times: int, change: Callable[[int], object]) -> None:
    """While a directory is packed, something changes it, so many times."""
    happened = iter(range(times))
    chunks = pack.tar_chunks

    def changing(listing: Listing) -> Iterator[bytes]:
        for number in happened:
            change(number)
            break
        yield from chunks(listing)

    monkeypatch.setattr(pack, "tar_chunks", changing)


@pytest.mark.parametrize(
    "change",
    [
        lambda top, number: (top / "a").write_bytes(b"x" * number * 3),
        lambda top, number: (top / "a").unlink(missing_ok=True),
        lambda top, number: os.utime(top / "run.sh", (number, number)),
        lambda top, number: (top / "a").exists() and ((top / "a").unlink(), (top / "a").symlink_to("sub")),
    ],
    ids=["grows", "vanishes", "is written anew", "becomes a link"],
)
def test_a_file_that_changes_meanwhile_is_packed_again(
    world: World, top: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path, int], object]
) -> None:
    _changes(monkeypatch, 2, lambda number: change(top, number + 1))
    session = world.session()
    found = launched(session, top)
    assert found.size == len(packed(top))
    assert session.state.workspaces.names() == (found.hash,)


def test_a_file_that_never_comes_to_rest_is_named(
    world: World, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _changes(monkeypatch, 99, lambda number: (top / "a").write_bytes(b"x" * (number + 2)))
    with pytest.raises(UsageError, match=r"^a changed while it was being packed, 3 times"):
        launch(world.session(), request(top))
    assert os.listdir(world.session().state.workspaces.path) == []


def test_a_file_that_can_t_be_read_is_named(world: World, top: Path) -> None:
    (top / "a").chmod(0)
    if os.access(top / "a", os.R_OK):
        pytest.skip("whoever runs this can read everything")
    with pytest.raises(UsageError, match=r"^a can't be read: Permission denied"):
        launch(world.session(), request(top))


def test_the_limit_of_the_configuration_holds(world: World, top: Path) -> None:
    session = world.session()
    session.config = replace(session.config, limits=Limits(workspace_size=1 << 20))
    (top / "big").write_bytes(bytes(1 << 20))
    with pytest.raises(UsageError, match=r"more than 1MiB .*big \(1MiB\)"):
        launch(session, request(top))


def test_it_says_how_far_it_is(world: World, top: Path) -> None:
    session, onlooker = world.session(), Onlooker()
    session.progress = onlooker
    found = list_directory(top, GIB)
    for number, _ in enumerate(pack._with_progress(session, found, iter([bytes(1 << 20)] * 20)), 1):
        assert onlooker.sees("packing") == ("packing top", number << 20, found.size, "bytes")
