"""The same where slices come and go: no slice leaks, none is made twice, and no gang loses one that is well.

`python -m tests.simulation --scaling SEED` tells the story of one seed.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.simulation import run

_DEFAULT = 4
_SEEDS = int(os.environ.get("IRIS_SIM_SEEDS", "240"))


def _all_is_well(seeds: range) -> None:
    """Also no slice-second is wasted after healing."""
    for seed in seeds:
        result = run(seed, scaling=True)
        assert not result.breaches, result.report()
        assert result.ledger is not None
        assert result.ledger.wasted == 0.0


@pytest.mark.parametrize("first", range(4))
def test_the_cloud_has_the_slices_of_the_log_and_no_money_is_wasted(first: int) -> None:
    _all_is_well(range(first, _DEFAULT, 4))


@pytest.mark.soak
@pytest.mark.parametrize("block", range(12))
def test_the_cloud_has_the_slices_of_the_log_at_very_many_seeds(block: int) -> None:
    _all_is_well(range(block, _SEEDS, 12))
