"""The simulation bites: each rule that is left out is noticed, at the seed that docs/simulation.md names."""

from __future__ import annotations

import pytest

from tests.simulation.find_mutants import ALL, find, listed
from tests.simulation.planting import Mutation

_FURTHER = 300
"""Other changes make other runs of the same seeds: so many more are tried before a mutation counts as unnoticed."""


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_a_rule_that_is_left_out_is_noticed(mutation: Mutation) -> None:
    first = listed()[mutation.name]
    assert find(mutation, range(first, first + _FURTHER)) is not None, mutation.breaks


def test_the_page_lists_every_mutation_and_no_other() -> None:
    assert list(listed()) == [mutation.name for mutation in ALL]
