"""Find for each mutation the first seeds that notice it: `python -m tests.simulation.find_mutants [NAME...]`.

Writes their rows of the tables in docs/simulation.md; without names all rows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tests.simulation.lifecycle_promises import LIFECYCLE_PROMISES
from tests.simulation.mutations import MUTATIONS
from tests.simulation.placement_promises import PLACEMENT_PROMISES
from tests.simulation.planting import Mutation
from tests.simulation.scaling_mutations import SCALING_MUTATIONS
from tests.simulation.second_tries_promises import SECOND_TRIES_PROMISES
from tests.simulation.simulation import run

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"
PROMISES = (*LIFECYCLE_PROMISES, *PLACEMENT_PROMISES)
"""Each is found in the weather of every run."""
TABLES = (PROMISES, SECOND_TRIES_PROMISES, (*MUTATIONS, *SCALING_MUTATIONS))
"""The mutations of each table of the page."""
ALL = tuple(mutation for table in TABLES for mutation in table)
SEARCHED = 2000
"""Seeds within which each broken promise must be found."""

_LISTED = 3  # seeds of each row: when the product changes, a seed may become another story
_FURTHER = 60  # seeds behind the first one that are searched for the others
_BEGIN = "| mutation | changed behaviour | seeds | first breach |\n|---|---|---|---|\n"
_ROW = re.compile(r"^\| `([a-z-]+)` \| .* \| ([\d, ]+) \| .* \|\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """A seed that notices, and the first breach that it reports."""

    seed: int
    breach: str


def found_in(mutation: Mutation, seeds: Iterable[int]) -> Iterator[Found]:
    """The seeds whose run is in breach of an invariant with this mutation, and only with it."""
    for seed in seeds:
        noticed = breach_at(mutation, seed)
        if noticed is not None and not _run(mutation, seed):
            yield Found(seed, noticed)


def breach_at(mutation: Mutation, seed: int) -> str | None:
    """The first breach of the run of a seed with this mutation."""
    return next(iter(_run(mutation, seed, planted=True)), None)


def _run(mutation: Mutation, seed: int, *, planted: bool = False) -> list[str]:
    with mutation.amid(), mutation.plant() if planted else nullcontext():
        return run(
            seed,
            mutation.faults,
            scaling=mutation in SCALING_MUTATIONS,
            retrying=mutation in SECOND_TRIES_PROMISES,
        ).breaches


def find(mutation: Mutation, seeds: Iterable[int]) -> Found | None:
    """The first of the seeds that notices a mutation."""
    return next(found_in(mutation, seeds), None)


def listed() -> dict[str, list[int]]:
    """The seeds in the tables, by mutation."""
    return {name: [int(seed) for seed in seeds.split(",")] for name, seeds in _ROW.findall(PAGE.read_text())}


def main(names: list[str]) -> int:
    """Search, write the page, and return how many mutations no seed notices."""
    rows = {match[1]: match[0] for match in _ROW.finditer(PAGE.read_text())}
    missing = 0
    for mutation in ALL:
        if names and mutation.name not in names:
            continue
        first = find(mutation, range(SEARCHED))
        missing += first is None
        print(mutation.name, first, flush=True)
        if first is None:
            continue
        further = islice(found_in(mutation, range(first.seed + 1, first.seed + _FURTHER)), _LISTED - 1)
        seeds = ", ".join(str(found.seed) for found in (first, *further))
        said = first.breach.replace("|", "/").splitlines()[0][:140]
        rows[mutation.name] = f"| `{mutation.name}` | {mutation.breaks} | {seeds} | {said} |\n"
        _write(rows)
    return missing


def _write(rows: dict[str, str]) -> None:
    head, *rest = _ROW.sub("", PAGE.read_text()).split(_BEGIN)
    written = [
        _BEGIN + "".join(rows.get(mutation.name, "") for mutation in table) + text
        for table, text in zip(TABLES, rest, strict=True)
    ]
    PAGE.write_text("".join((head, *written)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
