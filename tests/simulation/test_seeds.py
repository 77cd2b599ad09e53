"""Whatever a seed makes of operators, hosts, networks and disks, nothing runs twice, is lost, or hangs.

A failing seed prints its story; `python -m tests.simulation SEED` tells it again.
IRIS_SIM_FROM and IRIS_SIM_SEEDS choose the first seed and how many.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import ReapReport, Silence
from iris_cli.remote.transport import Target
from tests.simulation import fleet
from tests.simulation.simulation import run
from tests.simulation.wires import SimRunner

_FROM = int(os.environ.get("IRIS_SIM_FROM", "0"))
_SEEDS = int(os.environ.get("IRIS_SIM_SEEDS", "16"))
_BLOCKS = 4
_SOAK = 1_600
_SOAK_BLOCKS = 20
_REAPING = range(75, 77)  # in 75 what is presumed gone may still run


def _block(number: int, blocks: int, seeds: int) -> range:
    """The seeds of one block: every so many-th, so that all blocks take about as long."""
    return range(_FROM + number, _FROM + seeds, blocks)


def _all_is_well(seeds: range) -> None:
    for seed in seeds:
        result = run(seed)
        assert not result.breaches, result.report()


@pytest.mark.parametrize("number", range(_BLOCKS))
def test_nothing_runs_twice_nothing_is_lost_nothing_hangs(number: int) -> None:
    _all_is_well(_block(number, _BLOCKS, _SEEDS))


@pytest.mark.soak
@pytest.mark.parametrize("number", range(_SOAK_BLOCKS))
def test_nothing_runs_twice_is_lost_or_hangs_at_very_many_seeds(number: int) -> None:
    _all_is_well(_block(number, _SOAK_BLOCKS, int(os.environ.get("IRIS_SIM_SEEDS", str(_SOAK)))))


def test_old_output_is_removed_beside_all_that_and_never_of_what_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual, reap, asked = fleet._limits, SimRunner.reap, list[Token]()

    def noting(self: SimRunner, target: Target, tokens: Sequence[Token]) -> ReapReport | Silence:
        asked.extend(tokens)
        return reap(self, target, tokens)

    monkeypatch.setattr(SimRunner, "reap", noting)
    monkeypatch.setattr(fleet, "_limits", lambda rng: replace(usual(rng), reap_after=20.0))
    _all_is_well(_REAPING)
    assert len(asked) >= len(_REAPING)


def test_a_seed_is_the_same_story_in_every_process() -> None:
    """Nothing hangs on hash seeds or on what was run before."""
    kinds: list[dict[str, Any]] = [{}, {"scaling": True}, {"asking": True}, {"retrying": True}]
    program = (
        "from tests.simulation.simulation import run; "
        f"print(*(run(7, **kind).story.digest() for kind in {kinds}), sep='\\n')"
    )
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert told == [run(7, **kind).story.digest() for kind in kinds]
    assert len(set(told)) == len(kinds)
