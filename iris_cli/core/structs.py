"""Base classes of stored structs, and the JSON form of ids and attribute values.

Values never change. Records are the entries of the cluster's tables; only `evolve` changes records. Values and records
are decoded strictly. They are encoded without the fields that have their default value, so the defaults are part of the
format.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

from msgspec import Struct

from iris_cli.core.attributes import AttributeValue, interned
from iris_cli.core.ids import AttemptId, TaskId, parse_attempt_id, parse_task_id
from iris_cli.errors import IrisError


class Value(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of an event or a record."""


class Record(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An entry of the cluster's tables. Copies of a cluster share entries, so `evolve` changes a copy of an entry."""


def to_json_value(value: object) -> object:
    """Return the JSON form of an id or an attribute value. Hook of msgspec's encoders; raises TypeError."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, AttributeValue):
        return value.value
    raise TypeError(f"{value!r:.80} can't be written as JSON")


def from_json_value(kind: type, content: object) -> object:
    """Return the id or attribute value for its JSON form. Hook of msgspec's decoders; raises ValueError, TypeError."""
    if kind is AttributeValue:
        return _attribute(content)
    if type(content) is not str:
        raise TypeError(f"{content!r:.80} is not the text of an id")
    try:
        return _PARSERS[kind](content)
    except IrisError as error:
        raise ValueError(error.message) from error


def _attribute(content: object) -> AttributeValue:
    if type(content) is str or type(content) is int or type(content) is float:
        return interned(content)
    raise TypeError("an attribute is text or a number")


_MAX_CACHED = 1 << 14  # maximum number of ids of each kind, because a long log has very many
_PARSERS: Mapping[type, Callable[[str], object]] = {
    TaskId: lru_cache(_MAX_CACHED)(parse_task_id),
    AttemptId: lru_cache(_MAX_CACHED)(parse_attempt_id),
}
