"""Events as JSON: `{"type": "TaskAssigned", "task": "train/task-0", "attempt": 0, ...}`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args

from iris_cli.core.events.events import AnyEvent, Event
from iris_cli.journal.codec import BadEventError, decode, decode_record, encode


class UnknownTypeError(Exception):
    """The type of an event, `name`, is one that only a newer program knows."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


EVENT_TYPES: dict[str, type[Event]] = {cls.__name__: cls for cls in get_args(AnyEvent)}
"""By the names that stand in the log."""


def encode_events(events: Sequence[Event]) -> bytes:
    """The events as a JSON array in ASCII. Raises BadEventError for one that could not be read back.

    So it is read back: the library writes NaN as null, and text where a number belongs, without a word.
    """
    text = encode(events)
    if decode(tuple[AnyEvent, ...], text) != tuple(events):
        raise BadEventError(f"{text[:400].decode('ascii')} does not read back as what was to be written")
    return text


def encode_event(event: Event) -> dict[str, Any]:
    """The event as a JSON object. Raises BadEventError for one that could not be read back."""
    entry: dict[str, Any] = json.loads(encode_events([event]))[0]
    return entry


def decode_event(entry: Any) -> Event | None:
    """The event in a JSON object, read by the standard library; None for an unknown one that may be ignored.

    Raises BadEventError and UnknownTypeError.
    """
    if type(entry) is not dict or type(name := entry.get("type")) is not str:
        raise BadEventError("an event is an object with a type")
    ignorable = "ignorable" in entry
    if ignorable and entry["ignorable"] is not True:
        raise BadEventError(f"{name}: ignorable is true or absent")
    if name in EVENT_TYPES:
        return decode_record(EVENT_TYPES[name], {key: entry[key] for key in entry if key != "ignorable"})
    if ignorable:
        return None
    raise UnknownTypeError(name)
