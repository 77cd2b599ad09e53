"""The same demand and the same groups give the same decision under any hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

from iris_cli.core.autoscaling import compute_demand_entries, route_demand
from tests.support.fleet import pending
from tests.support.random_demand import some_groups, some_jobs
from tests.support.random_fleet import NOW, Dice

ROOT = Path(__file__).parents[3]
MODULE = "tests.core.autoscaling.test_determinism"


def report() -> str:
    """Many decisions, in words."""
    random, lines = Random(7), []
    for _ in range(60):
        dice = Dice(random.randbytes(300))
        groups, jobs = some_groups(dice), some_jobs(dice)
        known = {each.id: each for each in jobs}
        decision = route_demand(
            compute_demand_entries(pending(jobs), [], known.get, NOW, groups=groups), groups
        )
        lines.append(
            f"{dict(decision.launch)} {[(each.entry.key, str(each.reason)) for each in decision.unmet]}"
        )
    return "\n".join(lines)


def test_the_hash_seed_changes_nothing() -> None:
    here = report()
    assert len(here) > 2000
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", f"from {MODULE} import report; print(report())"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert done.stdout.rstrip("\n") == here
