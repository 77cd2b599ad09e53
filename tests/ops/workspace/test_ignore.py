"""`.irisignore` means what `.gitignore` means: git itself is asked where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris_cli.errors import UsageError
from iris_cli.ops.workspace.selection import IgnoreFile, read_ignore_file

NAMES = (
    *("a", "b.log", "#c", "!d", "build", "sub/a", "sub/b.log", "sub/build", "sub/deep/a", "sub/deep/b.log"),
    *("build.d/x", "build.d/sub/y", "sub/build.d/z", "A", "a b", "a b ", "x[1]", "1", "-", "]", "a\\b"),
    *("deep/build.d/x", "foo/bar/baz", "foo/baz", "foo/x/y/baz", "ab", "abc", "ä", "sub/.hidden", ".hidden"),
)

ASCII = {name for name in NAMES if name.isascii()}  # of others git counts bytes


def left_out(patterns: str) -> set[str]:
    ignore = IgnoreFile(patterns)
    return {name for name in NAMES if ignore.excludes_file(name)}


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ("", set()),
        ("# a comment\n\n   \n", set()),
        ("*.log", {"b.log", "sub/b.log", "sub/deep/b.log"}),
        ("/b.log", {"b.log"}),
        ("sub/*.log", {"sub/b.log"}),
        ("sub/**/*.log", {"sub/b.log", "sub/deep/b.log"}),
        ("build.d/", {"build.d/x", "build.d/sub/y", "sub/build.d/z", "deep/build.d/x"}),
        ("build/", set()),  # it is a file here
        ("**/build", {"build", "sub/build"}),
        ("foo/**/baz", {"foo/bar/baz", "foo/baz", "foo/x/y/baz"}),
        ("foo/**", {"foo/bar/baz", "foo/baz", "foo/x/y/baz"}),
        ("*.log\n!sub/deep/b.log", {"b.log", "sub/b.log"}),
        ("foo/\n!foo/baz", {"foo/bar/baz", "foo/baz", "foo/x/y/baz"}),  # what it lies in is left out
        ("\\#c\n\\!d", {"#c", "!d"}),
        ("a b   ", {"a b"}),
        ("a b\\ ", {"a b "}),
        ("[0-9]", {"1"}),
        ("[!a-z]", {"A", "1", "-", "]", "ä"}),
        ("x\\[1]", {"x[1]"}),
        ("a?", {"ab"}),
        ("a\r\n*.log\r\n", {"a", "sub/a", "sub/deep/a", "b.log", "sub/b.log", "sub/deep/b.log"}),
    ],
)
def test_what_a_pattern_leaves_out(patterns: str, names: set[str]) -> None:
    assert left_out(patterns) == names


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a\\", "nothing follows"),
        ("x\nfoo[a", "not closed"),
        ("[[:alpha:]]", "named classes"),
        ("[a-", "not"),
        ("[z-a]", "is empty"),
    ],
)
def test_what_can_t_be_a_pattern_is_refused_with_its_line(tmp_path: Path, pattern: str, why: str) -> None:
    (tmp_path / ".irisignore").write_text(pattern)
    line = pattern.count("\n") + 1
    with pytest.raises(UsageError, match=rf"\.irisignore:{line}: .*{why}"):
        read_ignore_file(tmp_path)


def test_no_file_is_not_an_empty_one(tmp_path: Path) -> None:
    assert read_ignore_file(tmp_path) is None
    (tmp_path / ".irisignore").touch()
    assert read_ignore_file(tmp_path) is not None


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["a pipe", "a directory"])
def test_what_is_no_file_is_told_and_nobody_waits_for_it(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / ".irisignore")
    with pytest.raises(UsageError, match=r"\.irisignore (is not a file|can.t be read)"):
        read_ignore_file(tmp_path)


_LINES = st.lists(
    st.sampled_from(
        [
            *("*", "**", "/", "!", "a", "b", "sub", "build", "build.d", "foo", "bar", "baz", "?", ".log"),
            *("deep", "[a-c]", "[!a]", "[^b]", "[]a]", "x", "\\*", " ", ".", "#", "[-a]", "[a-]", "A"),
        ]
    ),
    max_size=5,
).map("".join)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed here")
    top = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    for name in NAMES:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).touch()
    return top


def as_git_has_it(repository: Path, patterns: str) -> set[str]:
    file = repository.with_name("patterns")
    file.write_text(patterns)
    listed = subprocess.run(
        ["git", "-c", "core.ignoreCase=false", "ls-files", "-z", "-o", f"--exclude-from={file}"],
        cwd=repository,
        capture_output=True,
        check=True,
    ).stdout
    return ASCII - set(os.fsdecode(listed).split("\0"))


def agrees(repository: Path, lines: list[str]) -> None:
    patterns = "\n".join(lines)
    assert left_out(patterns) & ASCII == as_git_has_it(repository, patterns)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(lines=st.lists(_LINES, max_size=4))
def test_git_leaves_out_the_same(repository: Path, lines: list[str]) -> None:
    agrees(repository, lines)


@pytest.mark.soak
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(lines=st.lists(_LINES, max_size=4))
def test_git_leaves_out_the_same_of_very_many(repository: Path, lines: list[str]) -> None:
    agrees(repository, lines)
