"""`python -m bench`: measure, print a table, write `bench/results.json`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from bench import (
    autoscaling,
    background_loop,
    commands,
    gang_failure,
    journal,
    log_follow,
    result,
    scheduler,
    short_tasks,
    ssh_fan_out,
    ssh_one_host,
    worker_side,
)
from bench.result import FULL, TINY, Row, Scale

Group = Callable[[Scale], Iterator[Row]]

GROUPS: tuple[tuple[frozenset[int], Group], ...] = (
    (frozenset({0}), autoscaling.rows),
    (frozenset({1, 2, 3}), scheduler.rows),
    (frozenset({4}), commands.status_rows),
    (frozenset({5}), commands.history_rows),
    (frozenset({5}), commands.large_rows),
    (frozenset({6}), commands.past_rows),
    (frozenset({5}), journal.snapshot_rows),
    (frozenset({6, 7}), journal.rows),
    (frozenset({8}), commands.idle_rows),
    (frozenset({8}), background_loop.rows),
    (frozenset({9, 10}), ssh_one_host.rows),
    (frozenset({11}), ssh_fan_out.rows),
    (frozenset({12}), gang_failure.rows),
    (frozenset({13}), log_follow.rows),
    (frozenset({14}), commands.memory_rows),
    (frozenset({15}), commands.submit_rows),
    (frozenset({16}), worker_side.rows),
    (frozenset({17}), short_tasks.rows),
)
"""The targets that each group measures."""


def main() -> int:
    """Run the benchmarks. Return 1 if a target was missed and `--check` was given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="targets, with commas between them: 8,9")
    parser.add_argument("--tiny", action="store_true", help="as little as possible: does the machinery work?")
    parser.add_argument("--check", action="store_true", help="fail if a target was missed")
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("results.json"))
    given = parser.parse_args()
    wanted = {int(word.rstrip("b")) for word in given.only.split(",") if word}
    rows = measure(wanted, TINY if given.tiny else FULL)
    result.write(rows, given.results, datetime.now(UTC).isoformat(timespec="seconds"), os.getloadavg())
    print(result.table(rows))
    return int(given.check and not all(row.ok for row in rows))


def measure(wanted: set[int], scale: Scale) -> list[Row]:
    """Return the rows of the wanted targets, or of all."""
    rows = []
    for targets, group in GROUPS:
        if wanted and not wanted & targets:
            continue
        print(f"target {', '.join(map(str, sorted(targets)))} ...", file=sys.stderr, flush=True)
        rows += [row for row in group(scale) if not wanted or row.target in wanted]
    return rows


if __name__ == "__main__":
    sys.exit(main())
