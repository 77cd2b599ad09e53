"""The same with tasks that ask for child jobs and endpoints from inside, at any moment, also their last one."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest

from iris_cli.core.lifecycle import children
from iris_cli.ops.cycle.reply_queue import ReplyQueue
from tests.simulation.simulation import run

_SEEDS = int(os.environ.get("IRIS_SIM_SEEDS", "240"))


def _all_is_well(seeds: range) -> Counter[str]:
    answered: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed, asking=True)
        assert not result.breaches, result.report()
        assert result.boxes is not None
        answered.update(result.boxes.counts)
    return answered


def test_each_request_counts_once_and_none_is_forgotten() -> None:
    answered = _all_is_well(range(4))
    assert set(answered) >= {"submit", "cancel", "wait"}


@pytest.mark.soak
@pytest.mark.parametrize("block", range(12))
def test_each_request_counts_once_at_very_many_seeds(block: int) -> None:
    _all_is_well(range(block, _SEEDS, 12))


def _counted_each_time() -> AbstractContextManager[Any]:
    return patch.object(children, "_is_same_request", lambda _known, _origin: False)


def _not_waited_for() -> AbstractContextManager[Any]:
    return patch.object(ReplyQueue, "mark_deferred", lambda _self, answer: answer)


@pytest.mark.parametrize("broken", [_counted_each_time, _not_waited_for])
def test_it_is_noticed_if_a_request_counts_twice_or_is_forgotten(broken: Any) -> None:
    """Without the memory of who asked for what, and where an end doesn't wait for what was asked before it."""
    for seed in range(60):
        with broken():
            if run(seed, asking=True).breaches:
                return
    pytest.fail("nobody noticed")
