"""Where Slurm tracks processes by cgroup, and the probe ran in the job's, the end of a job is proof."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_cli.demo.local_slurm import why_no_slurm
from tests.e2e.slurm_site import GANG, SlurmSite, slurm_site
from tests.support.slurm import Slurm


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[SlurmSite]:
    """A Slurm that tracks by the freezer of version 1, and nodes that are reached by srun."""
    why = why_no_slurm() or ("" if Path("/sys/fs/cgroup/freezer").is_dir() else "no freezer on this machine")
    if why:
        pytest.skip(why)
    slurm = Slurm(tmp_path_factory.mktemp("slurm"), nodes=2, cgroups=True)
    try:
        slurm.start()
        made = slurm_site(slurm, [], tmp_path)
        made.configure("nodes: 2, transport: srun")
        yield made
    finally:
        slurm.stop()


def test_a_cancelled_allocation_ends_its_attempts_without_another_proof(site: SlurmSite) -> None:
    site.iris("launch", "--no-schedule", "--name", "train", *GANG, "--", "sleep", "600")
    site.run_until("train", "RUNNING")
    job = site.allocation()
    assert site.slurm is not None
    site.slurm.run("scancel", job)
    site.cycle_until(lambda: len(site.of_type("AttemptEnded")) == 2)
    ends = site.of_type("AttemptEnded")
    assert [f"is gone: Slurm job {job}: CANCELLED" in each["end"]["error"] for each in ends] == [True, True]
    assert site.of_type("AttemptStopRequested", "AttemptPresumedGone") == []
