"""`iris demo --slurm`: the story, and nothing is left of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from iris_cli.demo.local_slurm import why_no_slurm
from tests.e2e.test_demo import mentioning, run


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    ran = run("demo", "--slurm", directory=tmp_path, env={"PATH": "/nowhere"})
    assert ran.returncode == 1
    assert "on this machine: apt-get install slurm-wlm munge" in ran.stderr
    assert run("demo", "--slurm", "--keep", directory=tmp_path).returncode == 2


needs_slurm = pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm())


@needs_slurm
def test_a_directory_whose_path_is_too_long_for_a_socket_is_told(tmp_path: Path) -> None:
    long = tmp_path / ("long-" * 20)
    long.mkdir()
    ran = run("demo", "--slurm", directory=long)
    assert ran.returncode == 1
    assert (
        "too long for Slurm's sockets: 79 bytes at most\nhint: TMPDIR=/tmp iris demo --slurm\n" in ran.stderr
    )
    assert list(long.iterdir()) == []


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a short path."""
    with TemporaryDirectory(prefix="i", dir="/tmp") as place:
        yield Path(place)


@pytest.mark.soak
@needs_slurm
def test_the_story(short: Path) -> None:
    ran = run("demo", "--slurm", directory=short)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = ran.stdout
    assert [f"[{rank}] rank {rank} of 4 on pool-" in told for rank in range(4)] == [True] * 4
    assert "rank 2 failed first: exit 3" in told
    assert "round 0 of long ended" in told
    assert "PENDING (" in told
    assert "long    SUCCEEDED" in told
    assert mentioning(str(short)) == []
    assert list(short.glob("iris-demo-*")) == []
