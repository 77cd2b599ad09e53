"""GPUs of a real Slurm, by `gres`: tasks get the granted indexes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_cli.demo.local_slurm import why_no_slurm
from tests.e2e.slurm_site import GANG, SlurmSite, slurm_site
from tests.support.slurm import Slurm


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[SlurmSite]:
    """Two nodes with four GPUs each, that are reached by srun. Files stand for the devices."""
    if why := why_no_slurm():
        pytest.skip(why)
    slurm = Slurm(tmp_path_factory.mktemp("slurm"), nodes=2, gpus=4)
    try:
        slurm.start()
        made = slurm_site(slurm, [], tmp_path)
        made.configure("nodes: 2, gres: 'gpu:a100:2', transport: srun")
        yield made
    finally:
        slurm.stop()


def test_tasks_get_the_gpus_that_slurm_granted(site: SlurmSite) -> None:
    assert site.slurm is not None
    site.slurm.run("sbatch", "--nodes=2", "--gres=gpu:a100:1", "--output=/dev/null", "--wrap=sleep 600")
    show = "echo GPUs $CUDA_VISIBLE_DEVICES"
    site.iris("launch", "--no-schedule", "--name", "train", *GANG, "--gpu", "a100:2", "--", "sh", "-c", show)
    site.run_until("train", "SUCCEEDED")
    lines = site.iris("logs", "train", "--no-fold").out.splitlines()
    assert sorted(lines) == ["[0] GPUs 1,2", "[1] GPUs 1,2"]
