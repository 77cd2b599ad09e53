"""A demo that is killed leaves a directory; the next one removes it, if it is surely that."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iris_cli.demo.processes import demo_home

STAYS = """
import sys
from iris_cli.demo.processes import demo_home
with demo_home() as root:
    (root / "file").touch()
    print(root, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def other(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A demo in another process, and its directory."""
    with subprocess.Popen(
        [sys.executable, "-c", STAYS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            root = Path(process.stdout.readline().strip())
            assert root.parent.parent == temporary
            yield process, root
        finally:
            process.kill()


def test_nothing_is_left_of_one_that_ends(temporary: Path) -> None:
    with demo_home() as root:
        (root / "file").touch()
        assert root.parent.parent == temporary
    assert list(temporary.iterdir()) == []


def test_what_a_killed_one_left_is_removed_by_the_next(
    temporary: Path, other: tuple[subprocess.Popen[str], Path]
) -> None:
    process, left = other
    process.kill()
    process.wait()
    assert (left / "file").exists()
    with demo_home() as root:
        assert list(temporary.iterdir()) == [root.parent]
        assert root.is_dir()


def test_what_runs_where_all_were_killed_is_ended_by_the_next_and_nothing_else(
    temporary: Path, other: tuple[subprocess.Popen[str], Path]
) -> None:
    """Hosts that are killed with their demo leave their tasks, some of which have another environment by then."""
    process, left = other
    process.kill()
    process.wait()
    with (
        _resident(left / "hosts" / "west-0" / "home") as task,
        _resident(Path(f"{left}-of-mine")) as stranger,
        _resident(temporary) as neighbour,
        demo_home(),
    ):
        task.wait(60)
        assert task.stdout is not None
        assert task.stdout.read() == "", "what it had begun holds this, too, as long as it runs"
        assert (stranger.poll(), neighbour.poll()) == (None, None)
        assert not left.parent.exists()


@contextmanager
def _resident(home: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is at home there, and has begun one that isn't. Both hold its output."""
    begins = "env -i sleep 600 & echo $!; wait"
    with subprocess.Popen(
        ["sh", "-c", begins], env={**os.environ, "HOME": str(home)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            yield process
        finally:
            if process.poll() is None:
                os.kill(child, signal.SIGKILL)
            process.kill()


def test_what_could_not_be_removed_whole_is_tried_again_by_the_next(
    other: tuple[subprocess.Popen[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something wrote there still, say."""
    process, left = other
    process.kill()
    process.wait()
    with monkeypatch.context() as patch:
        patch.setattr("iris_cli.demo.processes.shutil.rmtree", _busy)
        with demo_home():
            assert left.exists()
    with demo_home():
        assert not left.exists()


def _busy(root: Path) -> None:
    """Remove what lies in it, except what lies deeper."""
    for path in root.iterdir():
        if path.is_file():
            path.unlink()
    raise OSError(errno.ENOTEMPTY, "something is there again")


def test_one_that_runs_is_left_alone(other: tuple[subprocess.Popen[str], Path]) -> None:
    with demo_home():
        assert (other[1] / "file").exists()


def test_what_only_has_such_a_name_is_left_alone(temporary: Path) -> None:
    """A cluster that somebody keeps, a link to what is not ours, a pipe in the place of the lock."""
    kept = temporary / "iris-demo-kept"
    kept.mkdir()
    (kept / "cluster.yaml").touch()
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".iris-demo-runs").touch()
    (temporary / "iris-demo-link").symlink_to(elsewhere)
    (temporary / "iris-demo-file").touch()
    linked = temporary / "iris-demo-linked"
    linked.mkdir()
    (linked / ".iris-demo-runs").symlink_to(elsewhere / ".iris-demo-runs")
    piped = temporary / "iris-demo-piped"
    piped.mkdir()
    os.mkfifo(piped / ".iris-demo-runs")
    before = sorted(temporary.rglob("*"))
    with demo_home():
        pass
    assert sorted(temporary.rglob("*")) == before
