"""What every provider of slices does: one suite for all of them."""

from __future__ import annotations

import threading

import pytest

from iris_cli.capacity.provider import ProviderError
from iris_cli.core.messages.cloud import CloudState, Refusal
from tests.capacity.conftest import Place


def test_nothing_is_there_at_first(place: Place) -> None:
    assert place.provider().list() == ()


def test_what_was_asked_for_is_listed_with_its_group_its_hosts_and_who_it_is(place: Place) -> None:
    place.provider().create("west-1", place.group)
    [there] = place.provider().list()
    assert (there.name, there.group, there.state) == ("west-1", "west", CloudState.READY)
    assert len(there.hosts) == 2
    assert len(set(there.hosts)) == 2
    assert there.incarnation


def test_asking_again_by_the_same_name_makes_nothing_new(place: Place) -> None:
    place.provider().create("west-1", place.group)
    before = place.provider().list()
    place.provider().create("west-1", place.group)
    assert place.provider().list() == before


def test_asked_by_several_at_once_it_is_made_once(place: Place) -> None:
    refused: list[ProviderError] = []

    def ask() -> None:
        try:
            place.provider().create("west-1", place.group)
        except ProviderError as error:
            refused.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []
    assert len(place.provider().list()) == 1


def test_deleted_it_is_gone_and_another_of_that_name_is_another_machine(place: Place) -> None:
    provider = place.provider()
    provider.create("west-1", place.group)
    provider.create("west-2", place.group)
    [first, other] = provider.list()
    provider.delete("west-1")
    assert provider.list() == (other,)
    provider.create("west-1", place.group)
    again = next(each for each in provider.list() if each.name == "west-1")
    assert again.incarnation != first.incarnation


def test_deleting_what_is_not_there_is_fine(place: Place) -> None:
    place.provider().delete("never")
    place.provider().create("west-1", place.group)
    for _ in range(2):
        place.provider().delete("west-1")
    assert place.provider().list() == ()


def test_what_belongs_to_others_is_neither_listed_nor_taken_over_nor_deleted(place: Place) -> None:
    place.provider("them").create("west-1", place.group)
    us = place.provider("us")
    assert us.list() == ()
    us.delete("west-1")
    with pytest.raises(ProviderError) as refused:
        us.create("west-1", place.group)
    assert refused.value.refusal is Refusal.INVALID
    assert [each.name for each in place.provider("them").list()] == ["west-1"]
