"""A background loop can belong to a process that may be killed: it is gone when nobody holds the lock of its file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from iris_cli.ops.loop.run import LoopEnd
from iris_cli.ops.loop.start import OWNER, has_owner_ended, own_loops
from tests.ops.loop.loop_lab import LoopLab

HOLD = """
import sys
from pathlib import Path
from iris_cli.ops.loop.start import own_loops
with own_loops(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_an_owner_lives_as_long_as_its_block(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    with own_loops(tmp_path / "owner", environ):
        inside = dict(environ)
        assert inside == {OWNER: str(tmp_path / "owner")}
        assert not has_owner_ended(inside)
    assert environ == {}
    assert has_owner_ended(inside)


def test_an_owner_that_was_killed_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "owner"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert not has_owner_ended({OWNER: str(file)})
        process.kill()
    assert has_owner_ended({OWNER: str(file)})


def test_an_owner_whose_file_is_missing_is_gone(tmp_path: Path) -> None:
    assert has_owner_ended({OWNER: str(tmp_path / "owner")})


def test_a_loop_without_an_owner_never_loses_it() -> None:
    assert not has_owner_ended({})


def test_a_loop_ends_when_its_owner_has_ended(tmp_path: Path) -> None:
    lab = LoopLab(tmp_path)
    lab.site.launch("train")
    ended: list[bool] = []
    lab.orphaned = lambda: bool(ended)
    lab.at(33.0, lambda: ended.append(True))
    assert lab.run() is LoopEnd.ORPHANED
    assert lab.now <= 35.0
