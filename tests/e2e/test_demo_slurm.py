"""`iris demo --slurm`: the story, and nothing is left of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.demo.local_slurm import why_no_slurm
from tests.e2e.test_demo import mentioning, run


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    ran = run("demo", "--slurm", directory=tmp_path, env={"PATH": "/nowhere"})
    assert ran.returncode == 1
    assert "on this machine: apt-get install slurm-wlm munge" in ran.stderr
    assert run("demo", "--slurm", "--keep", directory=tmp_path).returncode == 2


@pytest.mark.soak
@pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm())
def test_the_story(tmp_path: Path) -> None:
    """The name of the test is part of the path of a socket, which has a limit."""
    ran = run("demo", "--slurm", directory=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = ran.stdout
    assert [f"[{rank}] rank {rank} of 4 on pool-" in told for rank in range(4)] == [True] * 4
    assert "rank 2 failed first: exit 3" in told
    assert "round 0 of long ended" in told
    assert "PENDING (" in told
    assert "long    SUCCEEDED" in told
    assert mentioning(str(tmp_path)) == []
    assert list(tmp_path.glob("iris-demo-*")) == []
