"""The simulation finds each mutation of the product, at the seeds that docs/simulation.md lists."""

from __future__ import annotations

import pytest

from iris_cli.core.ids import WorkerId
from iris_cli.core.lifecycle import failure_detection
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.worker import Worker, WorkerCondition
from tests.simulation.find_mutants import ALL, PROMISES, SEARCHED, breach_at, find, listed
from tests.simulation.planting import Mutation
from tests.simulation.second_tries_promises import SECOND_TRIES_PROMISES
from tests.simulation.source_changes import change

# A twelfth of the promises: that they are found says something of the simulation, not of a change of the product.
_SHORT = sorted(mutation.name for mutation in (*PROMISES, *SECOND_TRIES_PROMISES))[::12]
_EACH = pytest.mark.parametrize(
    "mutation",
    [pytest.param(each, id=each.name, marks=() if each.name in _SHORT else pytest.mark.soak) for each in ALL],
)
_PROMISE = pytest.mark.parametrize(
    "mutation", [*PROMISES, *SECOND_TRIES_PROMISES], ids=lambda mutation: mutation.name
)


@_EACH
def test_a_mutation_is_found_at_a_seed_of_the_page(mutation: Mutation) -> None:
    """Without it these seeds were clean when they were listed; `test_seeds` runs the first of them again.

    A change of the product may make other stories of all seeds of a row: then the row needs new ones.
    """
    again = f"python -m tests.simulation.find_mutants {mutation.name}"
    found = any(breach_at(mutation, seed) for seed in listed()[mutation.name])
    assert found, f"search new seeds: {again}"


@pytest.mark.soak
@_PROMISE
def test_a_broken_promise_is_found_within_two_thousand_seeds(mutation: Mutation) -> None:
    assert find(mutation, range(SEARCHED)) is not None, mutation.breaks


def test_the_page_lists_every_mutation_and_no_other() -> None:
    assert list(listed()) == [mutation.name for mutation in ALL]


def test_a_broken_promise_needs_no_weather_of_its_own() -> None:
    assert [mutation.name for mutation in PROMISES if mutation.faults] == []


def test_a_source_change_holds_while_it_is_planted() -> None:
    worker = Worker(id=WorkerId("w"), condition=WorkerCondition.HEALTHY)
    planted = change(
        "iris_cli.core.lifecycle.failure_detection",
        "return _is_healthy(worker) and 0",
        "return not worker and 0",
    )
    assert failure_detection.may_renew_leases(worker, 0.0, Limits())
    with planted():
        assert not failure_detection.may_renew_leases(worker, 0.0, Limits())
    assert failure_detection.may_renew_leases(worker, 0.0, Limits())


@pytest.mark.parametrize("text", ["no such text", "worker"])
def test_a_source_change_needs_a_text_that_is_there_once(text: str) -> None:
    with pytest.raises(LookupError), change("iris_cli.core.lifecycle.failure_detection", text, "")():
        pass
