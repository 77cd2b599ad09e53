"""What every provider of slices does: one suite for all of them."""

from __future__ import annotations

import threading

import pytest

from iris_cli.capacity.provider import ProviderError
from iris_cli.core.messages.cloud import CloudState, Refusal
from tests.capacity.conftest import Place


def test_what_was_asked_for_is_listed_and_asking_again_by_its_name_makes_nothing_new(place: Place) -> None:
    assert place.provider().list() == ()
    place.provider().create("west-1", place.group)
    [there] = before = place.provider().list()
    assert (there.name, there.group, there.state) == ("west-1", "west", CloudState.READY)
    assert len(there.hosts) == 2
    assert len(set(there.hosts)) == 2
    assert there.incarnation
    place.provider().create("west-1", place.group)
    assert place.provider().list() == before


def test_asked_by_several_at_once_it_is_made_once(place: Place) -> None:
    refused: list[ProviderError] = []

    def ask() -> None:
        try:
            place.provider().create("west-1", place.small_group)
        except ProviderError as error:
            refused.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []
    assert len(place.provider().list()) == 1


def test_deleted_once_or_twice_it_is_gone_and_another_of_that_name_is_another_machine(place: Place) -> None:
    provider = place.provider()
    provider.create("west-1", place.small_group)
    provider.create("west-2", place.small_group)
    [first, other] = provider.list()
    for name in ("west-1", "west-1", "never"):
        provider.delete(name)
    assert provider.list() == (other,)
    provider.create("west-1", place.small_group)
    again = next(each for each in provider.list() if each.name == "west-1")
    assert again.incarnation != first.incarnation


def test_what_belongs_to_others_is_neither_listed_nor_taken_over_nor_deleted(place: Place) -> None:
    place.provider("them").create("west-1", place.small_group)
    us = place.provider("us")
    assert us.list() == ()
    us.delete("west-1")
    with pytest.raises(ProviderError) as refused:
        us.create("west-1", place.small_group)
    assert refused.value.refusal is Refusal.INVALID
    assert [each.name for each in place.provider("them").list()] == ["west-1"]
