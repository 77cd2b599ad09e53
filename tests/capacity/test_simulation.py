"""Whatever goes wrong on the way: in the end the cloud has what the log has, and nothing costs money for nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capacity.simulation import Story


@pytest.mark.parametrize("seed", range(8))
def test_after_healing_the_cloud_has_the_slices_of_the_log(tmp_path: Path, seed: int) -> None:
    Story(seed, tmp_path / "state").tell(steps=20)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8, 400))
def test_after_healing_the_cloud_has_the_slices_of_the_log_long(tmp_path: Path, seed: int) -> None:
    Story(seed, tmp_path / "state").tell(steps=40)
