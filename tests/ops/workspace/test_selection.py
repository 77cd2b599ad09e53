"""Which files of a directory go with a job: what git would show, else all but what an ignore file names."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.errors import UsageError
from iris_cli.ops.workspace import selection
from iris_cli.ops.workspace.selection import select

with_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed here")


@pytest.fixture(autouse=True)
def own_git(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No setting of whoever runs the tests; and no repository around the directories of the tests."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path_factory.getbasetemp()))


def git(top: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=me", "-c", "user.email=me@here", *arguments],
        cwd=top,
        check=True,
        capture_output=True,
    )


def files(top: Path, *names: str) -> Path:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    return top


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = files(tmp_path / "repository", "tracked", "sub/tracked", "sub/new", "new", "build/out", "x.log")
    git(top, "init", "-q")
    (top / ".gitignore").write_text("build/\n*.log\n")
    git(top, "add", "tracked", "sub/tracked")
    return top


@with_git
def test_git_chooses_what_it_tracks_and_what_it_doesn_t_ignore(repository: Path) -> None:
    chosen = select(repository)
    assert chosen.names == (".gitignore", "new", "sub/new", "sub/tracked", "tracked")
    assert (chosen.rule, chosen.warnings) == ("git", ())


@with_git
def test_of_a_part_of_a_repository_only_that_is_taken(repository: Path) -> None:
    assert select(repository / "sub").names == ("new", "tracked")


@with_git
def test_a_directory_that_git_ignores_is_taken_whole(repository: Path) -> None:
    assert select(repository / "build").names == ("out",)


@with_git
def test_an_ignore_file_leaves_out_tracked_files_too(repository: Path) -> None:
    (repository / ".irisignore").write_text("tracked\n.*ignore\n")
    chosen = select(repository)
    assert (chosen.names, chosen.rule) == (("new", "sub/new"), "git and .irisignore")


@with_git
def test_files_that_git_ignores_but_tracks_go_along(repository: Path) -> None:
    git(repository, "add", "-f", "x.log")
    assert "x.log" in select(repository).names


@with_git
def test_repositories_in_a_repository_choose_for_themselves(repository: Path) -> None:
    inner = files(repository / "vendor/inner", "kept", "left.out")
    git(inner, "init", "-q")
    (inner / ".gitignore").write_text("*.out\n.gitignore\n")
    names = select(repository).names
    assert [name for name in names if name.startswith("vendor")] == ["vendor/inner/kept"]


@with_git
def test_submodules_go_along_and_one_that_is_not_checked_out_is_told(
    repository: Path, tmp_path: Path
) -> None:
    other = files(tmp_path / "other", "library")
    git(other, "init", "-q")
    git(other, "add", ".")
    git(other, "commit", "-qm", "all")
    for name in ("used", "unused"):
        git(
            repository,
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "add",
            "-q",
            str(other),
            f"lib/{name}",
        )
    git(repository, "submodule", "--quiet", "deinit", "-f", "lib/unused")
    chosen = select(repository)
    assert [name for name in chosen.names if name.startswith("lib")] == ["lib/used/library"]
    assert chosen.warnings == ("lib/unused is not shipped: the submodule is not checked out",)


@with_git
def test_no_program_that_a_repository_names_is_run(repository: Path) -> None:
    git(repository, "config", "core.fsmonitor", f"touch {repository}/run; false")
    select(repository)
    assert not (repository / "run").exists()


@with_git
def test_a_hook_s_environment_names_no_other_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = files(tmp_path / "other", "a")
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    assert "tracked" in select(repository).names


@with_git
def test_any_bytes_can_be_in_a_name(repository: Path) -> None:
    odd = [b"\xff", b"a\nb", b'"', b"\\", b"-x", b"\x1b[2J", " ü".encode()]
    for name in odd:
        Path(os.fsdecode(os.fsencode(repository / "odd-") + name)).touch()
    found = [os.fsencode(name) for name in select(repository).names if name.startswith("odd-")]
    assert found == sorted(b"odd-" + name for name in odd)


def _broken(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (top / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (top / ".git/index").write_bytes(b"not an index")


def _missing(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_GIT", ("iris-test-no-such-program",))


def _of_somebody_else(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")


def _hanging(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_GIT", ("sh", "-c", "exec sleep 600"))
    monkeypatch.setattr(selection, "_TIMEOUT", 0.2)


@with_git
@pytest.mark.parametrize(
    ("breakage", "why"),
    [
        (_broken, "index file"),
        (_missing, "git is not installed"),
        (_of_somebody_else, "dubious ownership"),
        (_hanging, "no answer"),
    ],
)
def test_if_git_can_t_tell_nothing_it_may_ignore_is_shipped_until_an_ignore_file_decides(
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    breakage: Callable[[Path, pytest.MonkeyPatch], None],
    why: str,
) -> None:
    breakage(repository, monkeypatch)
    with pytest.raises(UsageError, match=f"git can't list .*{why}") as told:
        select(repository)
    assert ".irisignore" in told.value.hint
    (repository / ".irisignore").write_text("build\n*.log\n.*\n")
    chosen = select(repository)
    assert chosen.names == ("new", "sub/new", "sub/tracked", "tracked")
    assert "only .irisignore is used" in chosen.warnings[0]


# Without git


def test_elsewhere_everything_is_taken_but_git_s_own(tmp_path: Path) -> None:
    top = files(tmp_path / "plain", "a", ".hidden", "sub/b", "sub/.git/config")
    (top / "empty").mkdir()
    assert select(top).names == (".hidden", "a", "sub/b")


def test_elsewhere_the_ignore_file_decides(tmp_path: Path) -> None:
    top = files(tmp_path / "plain", "a", "b.log", "data/big", "sub/data/big", "sub/b")
    (top / ".irisignore").write_text("*.log\n/data/\n")
    chosen = select(top)
    assert chosen.names == (".irisignore", "a", "sub/b", "sub/data/big")
    assert chosen.rule == "all files except those in .irisignore"


def test_an_empty_git_directory_is_no_repository(tmp_path: Path) -> None:
    top = files(tmp_path / "plain", "a")
    (top / ".git").mkdir()
    assert select(top).names == ("a",)


def test_links_are_taken_as_they_are(tmp_path: Path) -> None:
    top = files(tmp_path / "plain", "sub/a")
    (top / "link").symlink_to("sub")
    (top / "loop").symlink_to(".")
    assert select(top).names == ("link", "loop", "sub/a")


def test_what_is_neither_file_nor_link_stays_with_a_word(tmp_path: Path) -> None:
    top = files(tmp_path / "plain", "a")
    os.mkfifo(top / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(top)  # the path of a socket is short
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        chosen = select(top)
    assert chosen.names == ("a",)
    assert sorted(chosen.warnings) == [
        f"{name} is not shipped: it is neither file nor link" for name in ("pipe", "socket")
    ]


def test_our_own_state_stays_here(tmp_path: Path) -> None:
    top = files(
        tmp_path / "plain", "a", "cluster.yaml", "state/events.jsonl", "state/workspaces/x", "statement"
    )
    assert select(top, (top / "state", top / "cluster.yaml")).names == ("a", "statement")


@with_git
def test_git_does_not_choose_what_is_our_own(repository: Path) -> None:
    files(repository, "cluster.yaml", "state/events.jsonl", "sub/cluster.yaml", "iris-out/train/task-0/x")
    names = select(repository, (repository / "state", repository / "cluster.yaml")).names
    assert names == (".gitignore", "new", "sub/cluster.yaml", "sub/new", "sub/tracked", "tracked")


def test_pulled_files_are_not_shipped_and_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "MAX_FILES", 3)
    pulled = [f"iris-out/train/task-{number}/attempt-0/model" for number in range(5)]
    top = files(tmp_path / "plain", "a", "my-iris-out/b", *pulled, "sub/iris-out/train/c")
    assert select(top).names == ("a", "my-iris-out/b")


def test_a_directory_of_pulled_files_is_shipped_when_it_is_named_itself(tmp_path: Path) -> None:
    top = files(tmp_path / "iris-out" / "train", "task-0/attempt-0/model")
    assert select(top).names == ("task-0/attempt-0/model",)


def test_a_directory_that_can_t_be_read_is_named(tmp_path: Path) -> None:
    top = files(tmp_path / "plain", "a", "secret/b")
    (top / "secret").chmod(0)
    if os.access(top / "secret", os.R_OK):
        pytest.skip("whoever runs this can read everything")
    try:
        with pytest.raises(UsageError, match=r"secret/ can't be read: Permission denied"):
            select(top)
    finally:
        (top / "secret").chmod(0o700)


def test_a_whole_home_is_shipped_by_nobody_s_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(files(tmp_path, ".ssh/id_ed25519")))
    with pytest.raises(UsageError, match="keys and other private files"):
        select(tmp_path)
    git(tmp_path, "init")  # for settings that are kept in git, which ignores nothing of the rest
    with pytest.raises(UsageError, match="keys and other private files"):
        select(tmp_path)
    (tmp_path / ".irisignore").write_text(".*\n")
    assert select(tmp_path).names == ()


def test_very_many_files_are_refused_before_all_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "MAX_FILES", 3)
    top = files(tmp_path / "plain", "a", "b", "c")
    assert len(select(top).names) == 3
    files(top, "d")
    with pytest.raises(UsageError, match="more than 3 files"):
        select(top)
