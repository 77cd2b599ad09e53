"""A background loop can belong to a process that may be killed: it is gone when nobody holds the lock of its file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from iris_cli.ops.loop.run import Leaving
from iris_cli.ops.loop.start import OWNER, owned, owner_is_gone
from tests.ops.loop.loop_lab import LoopLab

HOLD = """
import sys
from pathlib import Path
from iris_cli.ops.loop.start import owned
with owned(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_an_owner_lives_as_long_as_its_block(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    with owned(tmp_path / "owner", environ):
        inside = dict(environ)
        assert inside == {OWNER: str(tmp_path / "owner")}
        assert not owner_is_gone(inside)
    assert environ == {}
    assert owner_is_gone(inside)


def test_an_owner_that_was_killed_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "owner"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert not owner_is_gone({OWNER: str(file)})
        process.kill()
    assert owner_is_gone({OWNER: str(file)})


def test_an_owner_whose_file_is_missing_is_gone(tmp_path: Path) -> None:
    assert owner_is_gone({OWNER: str(tmp_path / "owner")})


def test_a_loop_without_an_owner_never_loses_it() -> None:
    assert not owner_is_gone({})


def test_a_loop_ends_when_its_owner_has_ended(tmp_path: Path) -> None:
    lab = LoopLab(tmp_path)
    lab.site.launch("train")
    ended: list[bool] = []
    lab.orphaned = lambda: bool(ended)
    lab.at(33.0, lambda: ended.append(True))
    assert lab.run() is Leaving.ORPHANED
    assert lab.now <= 35.0
