"""Find for each planted mutation the first seed that notices it: `python -m tests.simulation.find_mutants`.

Writes the table of docs/simulation.md anew. Names of mutations as arguments: only shows what finds those.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.mutations import MUTATIONS
from tests.simulation.planting import Mutation
from tests.simulation.scaling_mutations import SCALING_MUTATIONS
from tests.simulation.simulation import run

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"
ALL = (*MUTATIONS, *SCALING_MUTATIONS)
_MOST = 1000
_BEGIN = "| mutation | what is left out | seed | what it breaks |\n|---|---|---|---|\n"
_ROW = re.compile(r"^\| `([a-z-]+)` \| .* \| (\d+) \| .* \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """The first seed that notices, and the first thing that it says."""

    seed: int
    breach: str


def find(mutation: Mutation, seeds: Iterable[int]) -> Found | None:
    """The first of the seeds whose run is in breach of an invariant with this mutation, and only with it."""
    scaling = mutation in SCALING_MUTATIONS
    for seed in seeds:
        with mutation.amid():
            with mutation.plant():
                noticed = run(seed, mutation.faults, scaling=scaling).breaches
            if noticed and not run(seed, mutation.faults, scaling=scaling).breaches:
                return Found(seed, noticed[0])
    return None


def listed() -> dict[str, int]:
    """The seeds in the table, by mutation."""
    return {name: int(seed) for name, seed in _ROW.findall(PAGE.read_text())}


def main(names: list[str]) -> int:
    rows, missing = [], 0
    for mutation in ALL:
        if names and mutation.name not in names:
            continue
        found = find(mutation, range(_MOST))
        missing += found is None
        print(mutation.name, found, flush=True)
        if found is not None:
            said = found.breach.replace("|", "/").splitlines()[0][:140]
            rows.append(f"| `{mutation.name}` | {mutation.breaks} | {found.seed} | {said} |\n")
    if not names:
        head, _, rest = PAGE.read_text().partition(_BEGIN)
        PAGE.write_text(head + _BEGIN + "".join(rows) + _ROW.sub("", rest).lstrip("\n"))
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
