"""Objects of JSON in which no key stands twice: of such a one, readers choose different values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def unique_keys(refusal: Callable[[], Exception]) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """An `object_pairs_hook` for `json`, which raises what `refusal` makes."""

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise refusal()
        return found

    return read
