"""GPUs of a real Slurm, by `gres`: files stand for their devices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iris_cli.demo.local_slurm import why_no_slurm
from tests.support.slurm import Slurm
from tests.support.slurm_slices import Settled, slurm_group


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """Two nodes with four GPUs each."""
    if why := why_no_slurm():
        pytest.skip(why)
    made = Slurm(tmp_path_factory.mktemp("slurm"), nodes=2, gpus=4)
    monkeypatch.setenv("SLURM_CONF", str(made.conf))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.soak
def test_each_node_has_the_granted_gpus_by_their_numbers(lab: Slurm) -> None:
    lab.run("sbatch", "--nodes=2", "--gres=gpu:a100:1", "--output=/dev/null", "--wrap=sleep 600")
    group = slurm_group(gres="gpu:a100:2")
    Settled("us").create("west-1", group)
    [there] = Settled("us").list()
    assert [each.gpus for each in there.hosts] == [(1, 2), (1, 2)]
    assert (group.template.device.count, group.template.device.variant) == (2, "a100")
