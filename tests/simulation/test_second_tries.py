"""The same with an operator who retries and launches again, and with tasks that are quiet for a while."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.simulation.simulation import run

_SEEDS = int(os.environ.get("IRIS_SIM_SEEDS", "240"))


def _all_is_well(seeds: Iterable[int]) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed, retrying=True)
        assert not result.breaches, result.report()
        assert result.tries is not None
        seen.update(result.tries.counts)
    return seen


def test_nothing_runs_twice_is_charged_or_lost_when_the_operator_tries_again() -> None:
    # 51: the stacks of quiet tasks are read shortly before another task would be quiet.
    seen = _all_is_well((*range(3), 51))
    assert min(seen[each] for each in ("retried", "again", "quiet", "writes again")) > 0


@pytest.mark.soak
@pytest.mark.parametrize("block", range(12))
def test_nothing_runs_twice_is_charged_or_lost_at_very_many_seeds(block: int) -> None:
    _all_is_well(range(block, _SEEDS, 12))
