"""`--workdir` and `--each-line` inside a task: the iris of tasks sends the same bytes as the whole one."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.core.requests import Answer, Request, Submit
from iris_cli.ops.workspace.pack import list_directory, tar_chunks
from tests.client.operator_thread import OperatorThread
from tests.support.small_iris import Task, operator


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


def tree(top: Path, seed: int) -> Path:
    """Files of many lengths, some of them programs, under names of many lengths; links that stay inside."""
    chance = random.Random(seed)
    names = [
        b"plain",
        b"two words",
        "ä🚀".encode(),
        b"back\\slash",
        b"'quote\"",
        b"-dash",
        b"star*",
        b"n" * 99,
    ]
    names += [b"m" * 101, b"n" * 200, b"d" * 60 + b"/" + b"e" * 80 + b"/x", b"p" * 160 + b"/" + b"q" * 30]
    names += [b"k" * 155 + b"/" + b"l" * 100, b"a.b", b"a/b", b".hidden/x", b"%s $(id)"]
    raw = os.fsencode(top)
    for name in names:
        path = os.path.join(raw, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        data = chance.randbytes(chance.choice((0, 1, 511, 512, 513, 70_000)))
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, chance.choice((0o600, 0o644, 0o755, 0o700)))
    for link, target in ((b"a/up", b"../plain"), (b"long", b"t" * 150), (b".hidden/n", b"./y")):
        os.symlink(target, os.path.join(raw, link))
    return top


def packed(task: Task, found: list[bytes]) -> Callable[[Request], Answer | None]:
    """An operator that looks at what was packed before he answers."""
    decide = operator()

    def look(request: Request) -> Answer | None:
        if isinstance(request, Submit) and request.job.workspace is not None:
            file = task.directory / f"outbox/.packed/{request.job.workspace.hash}.tar.gz"
            found.append(gzip.decompress(file.read_bytes()))
        return decide(request)

    return look


@pytest.mark.parametrize("seed", range(3))
def test_a_directory_becomes_the_same_bytes(task: Task, tmp_path: Path, seed: int) -> None:
    top = tree(tmp_path / "work/code", seed)
    found: list[bytes] = []
    with OperatorThread(task.directory, packed(task, found)) as thread:
        ran = task.iris("launch", "--name", "x", "--workdir", str(top), "--", "true")
    assert (ran.code, ran.out) == (0, "train/x\n"), ran
    listing = list_directory(top, 1 << 30)
    whole = b"".join(tar_chunks(listing))
    workspace = thread.asked[0].job.workspace
    assert (workspace.name, workspace.size, workspace.files) == ("code", len(whole), len(listing.entries))
    assert workspace.hash == hashlib.sha256(whole).hexdigest()
    assert found == [whole]
    assert list((task.directory / "outbox/.packed").iterdir()) == []


def link_out(top: Path) -> None:
    (top / "sub").mkdir()
    (top / "sub/out").symlink_to("../../etc")


def absolute_link(top: Path) -> None:
    (top / "out").symlink_to("/etc/passwd")


def arrow(top: Path) -> None:
    (top / "a -> b").touch()


def line_break(top: Path) -> None:
    (top / "a\nb").touch()


def nothing(top: Path) -> None:
    (top / "a").unlink()


def of_git(top: Path) -> None:
    subprocess.run(["git", "init", "-q", str(top.parent)], check=True)


def ignore_file(top: Path) -> None:
    (top / ".irisignore").write_text("a\n")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (link_out, "links that lead out of it: sub/out"),
        (absolute_link, "links that lead out of it: out"),
        (arrow, "names with an arrow"),
        (line_break, "control characters"),
        (nothing, "nothing to ship"),
        (of_git, "is in a git work tree"),
        (ignore_file, "has an .irisignore"),
    ],
)
def test_what_it_can_not_pack_is_refused_in_one_line(
    tmp_path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    task, top = Task(tmp_path), tmp_path / "above/code"
    top.mkdir(parents=True)
    (top / "a").write_text("a")
    spoil(top)
    ran = task.iris("launch", "--workdir", str(top), "--", "true")
    assert (ran.code, ran.out) == (2, "")
    assert why in ran.err.splitlines()[0]
    assert [path for path in (task.directory / "outbox").rglob("*") if path.name != ".packed"] == []


def test_its_own_task_is_not_packed(tmp_path: Path) -> None:
    task = Task(tmp_path)
    for directory in (task.directory, tmp_path):
        ran = task.iris("launch", "--workdir", str(directory), "--", "true")
        assert (ran.code, "holds the directories of this task" in ran.err) == (2, True)


@pytest.mark.parametrize("text", ["a\n", "a\n\nlast", "\ufeffa\r\nä  \\\n", "  indented\n-n\n"])
def test_lines_are_those_of_the_whole_iris(task: Task, tmp_path: Path, text: str) -> None:
    from iris_cli.config.lines_file import read_lines

    file = tmp_path / "lines"
    file.write_bytes(text.encode())
    with OperatorThread(task.directory, operator()) as thread:
        assert task.iris("launch", "--name", "x", "--each-line", str(file), "--", "true").code == 0
    assert thread.asked[0].job.each_line == read_lines(file)


@pytest.mark.parametrize(("text", "why"), [(b"", "no lines"), (b"a\0b\n", "NUL"), (b"x" * 70_000, "65536")])
def test_what_are_no_lines_is_refused(tmp_path: Path, text: bytes, why: str) -> None:
    task, file = Task(tmp_path), tmp_path / "lines"
    file.write_bytes(text)
    ran = task.iris("launch", "--each-line", str(file), "--", "true")
    assert (ran.code, why in ran.err) == (2, True)
