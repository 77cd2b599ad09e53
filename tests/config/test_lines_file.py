"""Files with a line for each task: read to the byte, or refused with the number of the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.config.variable_files import read_lines
from iris_cli.errors import UsageError


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", ("a", "b")),
        (b"a\nb", ("a", "b")),
        (b"a\r\nb\r\n", ("a", "b")),
        (b"a\n\nb\n", ("a", "", "b")),
        (b"\n", ("",)),
        (b" a \n\tb", (" a ", "\tb")),
        (b"\xef\xbb\xbfa\n", ("a",)),
        ("ß\u2028x\x0by\x85\n".encode(), ("ß\u2028x\x0by\x85",)),
        (b"$(id) 'x' \"y\" \\\n", ("$(id) 'x' \"y\" \\",)),
        (b"x" * 131_056 + b"\n", ("x" * 131_056,)),
        (b"x\n" * 10_000, ("x",) * 10_000),
    ],
    ids=lambda value: repr(value[:24])[:24],
)
def test_each_line_is_one_task_whatever_is_in_it(
    tmp_path: Path, content: bytes, lines: tuple[str, ...]
) -> None:
    (tmp_path / "lines").write_bytes(content)
    assert read_lines(tmp_path / "lines") == lines


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "lines has no lines"),
        (b"a\nb\0c\n", "lines:2: the line has a NUL byte"),
        (b"a\n\xff\n", "lines:2: the line is not UTF-8 text"),
        (b"a\n" + b"x" * 131_057, "lines:2: the line has 131057 bytes"),
        (b"x\n" * 10_001, "lines has 10001 lines, more than 10000"),
    ],
    ids=lambda value: repr(value[:24])[:24],
)
def test_a_file_that_is_no_list_of_tasks_is_refused(
    tmp_path: Path, content: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines").write_bytes(content)
    monkeypatch.chdir(tmp_path)  # a long name would be cut in the message
    with pytest.raises(UsageError) as refused:
        read_lines(Path("lines"))
    assert refused.value.message.startswith(said)


def test_a_file_of_more_than_64_mib_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "lines").open("wb") as file:
        file.truncate(64 << 20 | 1)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"^lines takes more than 64MiB"):
        read_lines(Path("lines"))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_lines(tmp_path / "none")
