"""A command that names a file of this directory is told that the file stays here, unless it is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.model.job import JobRequest
from iris_cli.ops.jobs.launch import unshipped_files


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    for name in ("train.py", "src/eval.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("python3", "train.py"), ["train.py"]),
        (("./train.py",), ["./train.py"]),
        (("python3", "src/eval.py", "train.py", "train.py"), ["src/eval.py", "train.py"]),
        (("python3", "/src/train.py"), []),
        (("sh", "-c", "python3 train.py"), []),
        (("ls", "src", "nowhere.py", "-l", "", "a\0b", "x" * 5000), []),
        (None, []),
    ],
)
def test_relative_names_of_files_are_noticed(command: tuple[str, ...] | None, named: list[str]) -> None:
    assert [each.split()[0] for each in unshipped_files(JobRequest(command=command))] == named


def test_with_a_workdir_they_are_where_they_should_be() -> None:
    assert unshipped_files(JobRequest(command=("python3", "train.py"), workdir=".")) == []
