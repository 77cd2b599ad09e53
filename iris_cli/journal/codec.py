"""Events as JSON objects: `{"type": "TaskAssigned", "task": "train/task-0", "attempt": 0, ...}`.

The dataclasses of the core are the schema: how a class is written and read is worked out from its annotations
when it is first met. A field that is equal to its default is left out, so defaults are part of the format.
Reading is strict: what this module would never have written is refused.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from json.encoder import encode_basestring_ascii as quote
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from iris_cli.core.attributes import AttributeValue
from iris_cli.core.dataclass import dataclass, fields, is_dataclass
from iris_cli.core.event import AttemptEvent, Event
from iris_cli.core.ids import (
    AttemptId,
    JobId,
    RequestId,
    TaskId,
    Token,
    WorkerId,
    parse_attempt_id,
    parse_job_id,
    parse_request_id,
    parse_task_id,
    parse_token,
    parse_worker_id,
)
from iris_cli.core.making import maker, teller
from iris_cli.errors import IrisError

R = TypeVar("R")


class BadEventError(ValueError):
    """An event, or a field of one, is not what the format says."""


class UnknownTypeError(Exception):
    """The type of an event, `name`, is one that only a newer program knows."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def events_text(events: Sequence[Event]) -> str:
    """The events as text of a JSON array. Raises BadEventError for one that could not be read back."""
    try:
        told = [_TELLERS[type(event)](event) for event in events]
    except (ValueError, TypeError, OverflowError):
        told = [_told(_TELLERS[type(event)], event) for event in events]  # says which field it is about
    return f"[{','.join(told)}]"


class _Tellers(dict[Any, Callable[[Any], str]]):
    """What writes the events of each type, worked out when it is first met."""

    def __missing__(self, cls: Any) -> Callable[[Any], str]:
        tell = self[cls] = _teller(cls, _kinds_of(cls), f'"type":"{cls.__name__}"')
        return tell


_TELLERS = _Tellers()


def _told(tell: Callable[[Any], str], record: Any) -> str:
    try:
        return tell(record)
    except (ValueError, TypeError, OverflowError) as error:
        writers = {name: kind.encode for name, kind in _kinds_of(type(record)).items()}
        contents = {name: getattr(record, name) for name in writers}
        raise _explained(type(record), writers, contents, error) from error


def encode_event(event: Event) -> dict[str, Any]:
    """The event as a JSON object. Raises BadEventError for one that could not be read back."""
    entry: dict[str, Any] = json.loads(events_text([event]))[0]
    return entry


def decode_event(entry: Any) -> Event | None:
    """The event in a JSON object; None for an unknown one that may be ignored.

    Raises BadEventError and UnknownTypeError.
    """
    try:
        event: Event = _MAKERS[entry["type"]][tuple(entry)](*entry.values())
    except (KeyError, ValueError, TypeError, OverflowError):
        return _new_kind_of_event(entry)
    return event


_MAKERS: dict[str, dict[tuple[str, ...], Callable[..., Any]]] = {}
"""What makes an event of its contents, by its type and the names that stand there: these are always the same few."""


def _new_kind_of_event(entry: Any) -> Event | None:
    """As `decode_event`, for what was not met before, or is wrong."""
    if type(entry) is not dict or type(name := entry.get("type")) is not str:
        raise BadEventError("an event is an object with a type")
    ignorable = "ignorable" in entry
    if ignorable and entry["ignorable"] is not True:
        raise BadEventError(f"{name}: ignorable is true or absent")
    if (cls := Event.TYPES.get(name, AttemptEvent)) is not AttemptEvent:
        decode = _decoder(cls, _kinds_of(cls), _MAKERS.setdefault(name, {}), _NO_FIELDS)
        try:
            event: Event = decode(entry)
        finally:
            if ignorable:
                _MAKERS[name].pop(tuple(entry), None)  # else the word would pass unread
        return event
    if ignorable:
        return None
    raise UnknownTypeError(name)


_NO_FIELDS = frozenset({"type", "ignorable"})


def encode_record(record: Any) -> dict[str, Any]:
    """Any data class of the core as a JSON object. Raises BadEventError for one that could not be read back."""
    cls: Any = type(record)
    entry: dict[str, Any] = json.loads(_told(_kind_of_class(cls).encode, record))
    return entry


def decode_record(cls: type[R], entry: Any) -> R:
    """The object of a data class that `encode_record` wrote. Raises BadEventError."""
    its_class: Any = cls
    record: R = _kind_of_class(its_class).decode(entry)
    return record


@dataclass(frozen=True, slots=True)
class _Kind:
    """One type of value: the way into JSON text, and the strict way back from what JSON makes of it.

    Both raise ValueError or TypeError. What is exactly of one of the types in `same` is the same in JSON; but no
    float that isn't finite is.
    """

    encode: Callable[[Any], str]
    decode: Callable[[Any], Any]
    same: tuple[type, ...] = ()


def _kind_of(hint: Any) -> _Kind:
    """The kind that belongs to an annotation. Raises TypeError for one that the format doesn't know."""
    if known := _SCALARS.get(hint):
        return known
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        return _optional(_kind_of(next(argument for argument in arguments if argument is not NoneType)))
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return _tuple_of(_kind_of(arguments[0]))
    if origin is Mapping:
        return _mapping_to(_kind_of(arguments[0]), _kind_of(arguments[1]))
    if origin is frozenset:
        return _set_of(_kind_of(arguments[0]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return _kind_of_class(hint)
    raise TypeError(f"the event log has no way to write {hint}")


@cache
def _kind_of_class(cls: Any) -> _Kind:
    kinds = _kinds_of(cls)
    tell: Callable[[Any], str] | None = None
    last: tuple[Any, str] = (object(), "")

    def encode(value: Any) -> str:
        nonlocal tell, last
        record, text = last
        if value is not record:  # the end of a task is that of its attempt, and often of its job
            tell = tell or _teller(cls, kinds)  # not for whoever only reads
            text = tell(value)
            last = value, text
        return text

    return _Kind(encode, _decoder(cls, kinds, {}))


def _kinds_of(cls: Any) -> dict[str, _Kind]:
    """The kinds of the fields."""
    written_in = {
        name: base.__module__
        for base in reversed(cls.__mro__)
        for name in vars(base).get("__annotations__", ())
    }
    return {field.name: _kind_called(str(field.type), written_in[field.name]) for field in fields(cls)}


@cache
def _kind_called(annotation: str, module: str) -> _Kind:
    """The kind that belongs to an annotation as it is written in a module: there are few of them."""
    return _kind_of(eval(annotation, vars(sys.modules[module])))  # noqa: S307 - of our own source


def _teller(cls: Any, kinds: Mapping[str, _Kind], tag: str = "") -> Callable[[Any], str]:
    writers = {name: kind.encode for name, kind in kinds.items()}
    numbers = {name: each for name, kind in kinds.items() for each in kind.same if each in (int, float)}
    return teller(cls, writers, numbers, tag)


def _same(kinds: Mapping[str, _Kind]) -> dict[str, tuple[type, ...]]:
    return {name: kind.same for name, kind in kinds.items() if kind.same}


def _decoder(
    cls: Any,
    kinds: Mapping[str, _Kind],
    makers: dict[tuple[str, ...], Callable[..., Any]],
    skipped: frozenset[str] = frozenset(),
) -> Callable[[Any], Any]:
    """What reads objects of the class. The same few fields stand there again and again, in the same order.

    For each such row of fields one function is compiled that reads them and leaves the others at their defaults.
    """
    readers = {name: kind.decode for name, kind in kinds.items()}

    def decode(entry: Any) -> Any:
        if type(entry) is not dict:
            raise BadEventError(f"{cls.__name__} is an object")
        names = tuple(entry)
        try:
            make = makers.get(names)
            if make is None:
                make = makers[names] = maker(cls, names, readers, _same(kinds), skipped)
            return make(*entry.values())
        except KeyError as error:
            raise BadEventError(f"{cls.__name__} has no field {error}") from None
        except (ValueError, TypeError, OverflowError) as error:
            said = {name: content for name, content in entry.items() if name not in skipped}
            raise _explained(cls, readers, said, error) from error

    return decode


def _explained(
    cls: Any, ways: Mapping[str, Callable[[Any], Any]], contents: Mapping[str, Any], error: Exception
) -> BadEventError:
    """The error with the name of the field that it is about."""
    for name, content in contents.items():
        try:
            ways[name](content)
        except (ValueError, TypeError, OverflowError) as its_error:
            return BadEventError(f"{cls.__name__}.{name}: {its_error}")
    return BadEventError(f"{cls.__name__}: {error}")


def _optional(inner: _Kind) -> _Kind:
    return _Kind(
        lambda value: "null" if value is None else inner.encode(value),
        lambda content: None if content is None else inner.decode(content),
        same=(*inner.same, NoneType),
    )


def _tuple_of(item: _Kind) -> _Kind:
    encode, decode = item.encode, item.decode
    return _Kind(
        lambda value: f"[{','.join([encode(each) for each in _expect(tuple, value)])}]",
        lambda content: tuple([decode(each) for each in _expect(list, content)]),
    )


def _set_of(item: _Kind) -> _Kind:
    encode, decode = item.encode, item.decode
    return _Kind(
        lambda value: f"[{','.join([encode(each) for each in sorted(_expect(frozenset, value))])}]",
        lambda content: frozenset([decode(each) for each in _expect(list, content)]),
    )


def _mapping_to(key: _Kind, item: _Kind) -> _Kind:
    """Keys are written as text."""
    write_key, read_key, encode, decode = key.encode, key.decode, item.encode, item.decode
    return _Kind(
        lambda value: f"{{{','.join([f'{write_key(key)}:{encode(each)}' for key, each in value.items()])}}}",
        lambda content: {read_key(key): decode(each) for key, each in _expect(dict, content).items()},
    )


def _enum(cls: type[Enum]) -> _Kind:
    texts = {member: json.dumps(member.value) for member in cls}
    return _Kind(lambda value: texts.get(value) or texts[cls(value)], _Table(cls).__getitem__)


class _Table(dict[str, Any]):
    """What texts mean, each checked once only: ids come back again and again."""

    def __init__(self, parse: Callable[[str], Any]) -> None:
        super().__init__()
        self._parse = parse

    def __missing__(self, text: str) -> Any:
        try:
            value = self[text] = self._parse(_expect(str, text))
        except IrisError as error:
            raise ValueError(error.message) from error
        return value


def _id(parse: Callable[[str], Any]) -> _Kind:
    """An id as it is printed, which must be parsed to the same again."""
    table = _Table(parse)
    return _Kind(_Quoted(table).__getitem__, table.__getitem__)


class _Quoted(dict[Any, str]):
    """Ids as JSON, each checked once only. There is nothing to escape in them."""

    def __init__(self, table: _Table) -> None:
        super().__init__()
        self._table = table

    def __missing__(self, value: Any) -> str:
        if self._table[text := str(value)] != value:
            raise ValueError(f"{value!r} is no id")
        quoted = self[value] = f'"{text}"'
        return quoted


def _expect(cls: type, value: Any) -> Any:
    if type(value) is not cls:
        raise TypeError(f"{value!r:.80} is not of type {cls.__name__}")
    return value


def _only(cls: type) -> Callable[[Any], Any]:
    """As `_expect`, in one call less: most fields are read by this."""

    def check(value: Any) -> Any:
        if type(value) is not cls:
            raise TypeError(f"{value!r:.80} is not of type {cls.__name__}")
        return value

    return check


def _number(value: Any) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is not float and type(value) is not int:
        raise TypeError(f"{value!r:.80} is not a number")
    if not math.isfinite(number := float(value)):
        raise ValueError("a number must be finite")
    return number


def _word(parse: Callable[[str], Any]) -> _Kind:
    """Text that `parse` checks, of which there is no end."""
    return _Kind(lambda value: quote(parse(str(value))), lambda content: parse(_expect(str, content)))


def _attribute(content: Any) -> AttributeValue:
    if type(content) is str:
        known: AttributeValue = _ATTRIBUTES[content]
        return known
    if type(content) is bool:
        raise TypeError("an attribute is text or a number")
    return _integer(content) if type(content) is int else AttributeValue(content)


_integer: Callable[[int], AttributeValue] = cache(AttributeValue)
_ATTRIBUTES = _Table(AttributeValue)  # of text: those of one worker are those of many
_SCALARS: dict[Any, _Kind] = {
    str: _Kind(quote, _only(str), same=(str,)),
    int: _Kind(lambda value: str(_expect(int, value)), _only(int), same=(int,)),
    bool: _Kind(lambda value: "true" if _expect(bool, value) else "false", _only(bool), same=(bool,)),
    float: _Kind(lambda value: repr(_number(value)), _number, same=(float,)),
    JobId: _id(parse_job_id),
    WorkerId: _id(parse_worker_id),
    TaskId: _id(parse_task_id),
    AttemptId: _id(parse_attempt_id),
    Token: _Kind(lambda value: f'"{parse_token(value)}"', parse_token),
    RequestId: _word(parse_request_id),
    Path: _Kind(lambda value: quote(str(value)), lambda content: Path(_expect(str, content))),
    AttributeValue: _Kind(lambda value: json.dumps(_expect(AttributeValue, value).value), _attribute),
}
