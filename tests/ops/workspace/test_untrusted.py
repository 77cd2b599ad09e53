"""What a task says it has packed is taken as we would have packed it, and in no other form."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.ops.workspace.archive import END, ArchiveError, Entry, TarCheck, padded_size
from iris_cli.ops.workspace.pack import list_directory, tar_chunks
from tests.remote.test_ship import HOSTILE
from tests.support.archives import archive


def looked_at(tar: bytes, step: int = 1 << 20) -> None:
    check = TarCheck()
    for place in range(0, len(tar), step):
        check.feed(tar[place : place + step])
    check.end()


def one(name: bytes, data: bytes = b"", target: bytes | None = None) -> bytes:
    entry = Entry(os.fsdecode(name), len(data), target=None if target is None else os.fsdecode(target))
    return entry.header + data.ljust(padded_size(len(data)), b"\0")


def program(a: bytes) -> bytes:
    return a.replace(b"0000644\0", b"0000755\0")


@pytest.mark.parametrize("step", [1, 511, 512, 4096, 1 << 20])
def test_what_we_have_packed_is_taken_however_it_is_cut(tmp_path: Path, step: int) -> None:
    for name in (
        "a",
        "b/c",
        "b/d/e",
        "b.d",
        "ä 🚀",
        "n" * 200,
        "d" * 90 + "/" + "e" * 90,
        "p" * 160 + "/" + "q" * 90,
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (len(name) * 37 % 1500))
    (tmp_path / "b/c").chmod(0o755)
    (tmp_path / "b/up").symlink_to("../a")
    (tmp_path / "long").symlink_to("t" * 180)
    looked_at(b"".join(tar_chunks(list_directory(tmp_path, 1 << 30))), step)


def test_an_empty_one_is_taken() -> None:
    looked_at(END)


@pytest.mark.parametrize("what", HOSTILE)
def test_nothing_that_a_worker_would_refuse_is_taken(what: str) -> None:
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with pytest.raises(ArchiveError):
            looked_at(archive(HOSTILE[what], form))


ODD: dict[str, tuple[Callable[[], bytes], str]] = {
    "absolute": (lambda: one(b"/tmp/x") + END, "invalid path"),
    "above": (lambda: one(b"../x") + END, "invalid path"),
    "above, inside": (lambda: one(b"a/../../x") + END, "invalid path"),
    "here": (lambda: one(b"./x") + END, "invalid path"),
    "no name": (lambda: one(b"") + END, "invalid path"),
    "directory": (lambda: one(b"x/") + END, "invalid path"),
    "long name above": (lambda: one(b"a/" * 99 + b"../" * 100 + b"x") + END, "invalid path"),
    "part too long for a disk": (lambda: one(b"x" * 256) + END, "invalid path"),
    "line break": (lambda: one(b"a\nb") + END, "control characters"),
    "NUL": (lambda: one(b"a\0b") + END, "control characters"),
    "no UTF-8": (lambda: one(b"\xff") + END, "not UTF-8"),
    "arrow": (lambda: one(b"a -> b") + END, "arrow"),
    "link out": (lambda: one(b"x", target=b"../y") + END, "links that lead out"),
    "absolute link": (lambda: one(b"x", target=b"/etc/passwd") + END, "links that lead out"),
    "link out by way of another": (lambda: one(b"a/x", target=b"b/../../..") + END, "links that lead out"),
    "link to nothing": (lambda: one(b"x", target=b"") + END, "links that lead out"),
    "long link out": (lambda: one(b"x", target=b"y/" * 99 + b"../" * 99 + b"z") + END, "links that lead out"),
    "behind a link": (lambda: one(b"a", target=b"b") + one(b"a/x") + END, "twice"),
    "behind a file": (lambda: one(b"a/b/c") + one(b"a.b") + one(b"a/b", b"x") + END, "'a/b'|a/b twice"),
    "twice": (lambda: one(b"a") + one(b"b") + one(b"a", b"other") + END, "a twice"),
    "setuid": (lambda: one(b"x").replace(b"0000644\0", b"0004755\0") + END, "unknown metadata of x"),
    "owner": (lambda: one(b"x").replace(b"0000000\0", b"0000001\0", 1) + END, "unknown metadata of x"),
    "no checksum": (lambda: program(one(b"x")) + END, "unknown metadata of x"),
    "less than nothing": (lambda: Entry("x", -8).header + END, "without a size"),
    "name that is too long": (lambda: one(b"n/" * 3000 + b"x") + END, "too long"),
    "two long names": (lambda: one(b"n" * 150)[:1024] + one(b"n" * 150) + END, "too long"),
    "long name of nothing": (lambda: one(b"n" * 150)[:1024] + END, "truncated"),
    "no end": (lambda: one(b"x"), "truncated"),
    "half an end": (lambda: one(b"x") + END[:512], "truncated"),
    "cut in a file": (lambda: one(b"x", b"y" * 2000)[:-600], "truncated"),
    "cut in a header": (lambda: one(b"x")[:100], "truncated"),
    "more behind its end": (lambda: one(b"x") + END + one(b"../y"), "after its end"),
    "no tar": (lambda: b"plain text" * 1000, "neither file nor link"),
}


@pytest.mark.parametrize("what", ODD)
def test_what_we_would_not_have_packed_is_named(what: str) -> None:
    tar, why = ODD[what][0](), ODD[what][1]
    with pytest.raises(ArchiveError, match=why):
        looked_at(tar)


def test_what_is_taken_has_the_names_that_others_read() -> None:
    tar = one(b"a/b", b"x") + one(b"n" * 150) + one(b"l", target=b"a") + END
    looked_at(tar)
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        assert opened.getnames() == ["a/b", "n" * 150, "l"]
