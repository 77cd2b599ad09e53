"""The same input gives the same output: in another process, with another hash seed, and twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from iris_cli.core.autoscaling import compute_demand_entries, route_demand
from iris_cli.core.model.worker import Worker
from iris_cli.core.scheduling import SchedulingResult
from tests.support.fleet import busy, cycle, gang, host, job, pending, tainted, tpu_slice, training
from tests.support.random_demand import some_groups, some_jobs
from tests.support.random_fleet import NOW, Dice, a_situation

ROOT = Path(__file__).parents[3]
MODULE = "tests.core.scheduling.test_determinism"


def everything() -> SchedulingResult:
    """A cycle in which every part of the scheduler has something to choose."""
    fleet: list[Worker] = [
        *(
            worker
            for letter in "abcdef"
            for worker in tpu_slice(letter, region="us" if letter < "d" else "eu")
        ),
        *map(training, tpu_slice("x")),
        *(busy(host(f"w{number}", rack=number % 3, pool="p"), f"old{number}") for number in range(9)),
        *(host(f"t{number}", rack=str(number % 3), gpus=4) for number in range(9)),
        tainted(host("spot"), "spot"),
        tainted(host("dirty"), "maintenance"),
    ]
    queue = [
        gang("eu", "~region=eu"),
        gang("two", replicas=8, slices=2),
        gang("never", "region=asia"),
        *(gang(f"late{number}") for number in range(4)),
        *(gang(f"rack{number}", tpu=None, by="rack", replicas=2, cpu=9) for number in range(8)),
        job("many", "~pool=p", cpu=3, replicas=40),
        job("tolerant", "!pool", tolerations=("spot",), cpu=16, replicas=60),
    ]
    return cycle(fleet, *queue, now=1000.0)


def anything() -> list[SchedulingResult]:
    """Cycles over random fleets and queues."""
    random = Random(2026)
    return [a_situation(Dice(random.randbytes(300))).cycle() for _ in range(30)]


def routed() -> Iterator[str]:
    """Decisions of the autoscaler on random groups and jobs, in words."""
    random = Random(7)
    for _ in range(60):
        dice = Dice(random.randbytes(300))
        groups, jobs = some_groups(dice), some_jobs(dice)
        known = {each.id: each for each in jobs}
        entries = compute_demand_entries(pending(jobs), [], known.get, NOW, groups=groups)
        decision = route_demand(entries, groups)
        yield f"{dict(decision.launch)} {[(each.entry.key, str(each.reason)) for each in decision.unmet]}"


def all_reports() -> str:
    return "\n".join((*map(report, [everything(), *anything()]), *routed()))


def report(result: SchedulingResult) -> str:
    lines = [f"{each.task} {each.worker} {each.gpus}" for each in result.assignments]
    for key, reasons in result.waiting.items():
        explanation = result.waiting.explain(key)
        lines.append(f"{key} {[str(reason) for reason in reasons]} {explanation}")
    lines += [f"{job_id} keeps {names}" for job_id, names in result.reservations.items()]
    return "\n".join(lines)


def in_another_process(seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"from {MODULE} import all_reports; print(all_reports())"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.rstrip("\n")


def test_the_hash_seed_changes_nothing() -> None:
    here = all_reports()
    assert len(here.splitlines()) > 200
    assert in_another_process("0") == here  # this process has a random one


def test_a_second_cycle_over_the_same_input_decides_the_same() -> None:
    assert report(everything()) == report(everything())
