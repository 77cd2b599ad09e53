"""Run seeds by hand: `python -m tests.simulation [--scaling|--retrying] SEED [COUNT]`. One seed prints its story."""

from __future__ import annotations

import sys
import time

from tests.simulation.simulation import run


def main(first: int, count: int, *, scaling: bool = False, retrying: bool = False) -> int:
    failed, wasted, spent_on_slices = 0, 0.0, 0.0
    began = time.process_time()
    for seed in range(first, first + count):
        result = run(seed, scaling=scaling, retrying=retrying)
        if result.ledger is not None:
            wasted += result.ledger.wasted
            spent_on_slices += result.ledger.spent
        failed += bool(result.breaches)
        if count == 1:
            print(result.report())
        elif result.breaches:
            print(f"seed {seed}: {result.breaches[0]}", flush=True)
    spent = time.process_time() - began
    print(f"{count} seeds, {failed} failed, {spent / count:.3f} s of CPU each")
    if scaling:
        print(f"after healing {wasted:.0f} of {spent_on_slices:.0f} slice-seconds were wasted")
    return 1 if failed else 0


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if not word.startswith("--")] or [0]
    sys.exit(
        main(
            numbers[0],
            numbers[1] if len(numbers) > 1 else 1,
            scaling="--scaling" in sys.argv,
            retrying="--retrying" in sys.argv,
        )
    )
