"""Every struct that is stored comes back as it was: from the log, from a snapshot, from the books of notices."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import Struct

from iris_cli import core, journal
from iris_cli.core.messages.notices import NoticeState
from iris_cli.core.model.cluster import Announced
from iris_cli.core.structs import Record, Value
from iris_cli.journal.codec import BadEventError, decode, encode
from tests.journal.test_codec import values_of

for package in (core, journal):  # a class is known once its module is loaded, which other tests may do or not
    for module in walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)


def below(cls: type[Struct]) -> Iterator[type[Struct]]:
    for each in cls.__subclasses__():
        yield each
        yield from below(each)


STORED = sorted({*below(Value), *below(Record)}, key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", STORED, ids=lambda cls: cls.__name__)
def test_any_value_and_record_comes_back(cls: type[Struct]) -> None:
    @settings(max_examples=5, deadline=None)
    @given(values_of(cls))
    def comes_back(value: Any) -> None:
        text = encode(value)
        assert text.isascii()
        assert decode(cls, text) == value

    comes_back()


def test_these_are_all_that_is_stored() -> None:
    assert {Announced, NoticeState} <= set(STORED)
    assert len(STORED) > 25


def test_no_struct_that_is_stored_takes_an_unknown_key() -> None:
    for cls in STORED:
        with pytest.raises(BadEventError):
            decode(cls, b'{"colour":"red"}')
