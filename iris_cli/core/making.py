"""Objects of data classes made, copied and taken apart by the thousand: one function is compiled for each way.

A frozen object can only be set through what its class has for each slot, one call a field. An object of an open twin
of the class, with the same slots, is assigned to at a quarter of that; then it becomes one of its own class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from math import inf
from types import MemberDescriptorType
from typing import Any

from iris_cli.core.lazy_dataclass import COPY, FIELDS, MISSING, Field, compiled, is_dataclass, refuse, slots

CLOSED = "__lazy_closed__"
"""The attribute of an open twin that names its class."""


def copier(cls: Any) -> Callable[[Any, Mapping[str, Any]], Any]:
    """What copies an object with some changes, many times faster than `__init__` would. Raises KeyError."""
    every = getattr(cls, FIELDS)
    scope: dict[str, Any] = {"_slots": slots(cls, every)}
    lines = [
        *_making(cls, {name: f"record.{name}" for name in every}, scope),
        "for name in changes: _slots[name](made, changes[name])",
        *_finish(cls),
        "return made",
    ]
    return compiled("copy", "record, changes", lines, scope)


@cache
def opener(cls: Any) -> Callable[[Any], Any]:
    """What copies an object of the class as one that may be assigned to, for whoever holds the only reference to it.

    Assigning `getattr(copy, CLOSED)` to the copy's `__class__` makes it what others are. For classes whose objects are
    no more than their slots, and which check nothing when an object is made.
    """
    values = {name: f"record.{name}" for name in getattr(cls, FIELDS)}
    return compiled("opened", "record", *_left_open(cls, values, {}))


@cache
def beginner(cls: Any) -> Callable[[], Any]:
    """As `opener`, for a new object: nothing is in its fields that have no default."""
    scope: dict[str, Any] = {}
    every: dict[str, Field] = getattr(cls, FIELDS)
    values = {name: _default(each, scope) for name, each in every.items() if each.has_default}
    return compiled("begun", "", *_left_open(cls, values, scope))


def _left_open(
    cls: Any, values: Mapping[str, str], scope: dict[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    if COPY not in cls.__dict__ or _finish(cls):
        raise TypeError(f"objects of {cls.__name__} are more than what is assigned to their fields")
    return [*_making(cls, values, scope)[:-1], "return made"], scope


def maker(
    cls: Any,
    names: Sequence[str],
    readers: Mapping[str, Callable[[Any], Any]],
    as_they_are: Mapping[str, tuple[type, ...]],
    skipped: Collection[str] = (),
) -> Callable[..., Any]:
    """What makes an object of the contents of these fields, in this order; the others get their defaults.

    A content goes through the reader of its field, if there are readers, unless it is of exactly one of the types in
    `as_they_are`, and finite if it is a float. Those under names that are `skipped` are ignored. Raises KeyError for
    any other name that is no field, TypeError where a field is missing.
    """
    every: dict[str, Field] = getattr(cls, FIELDS)
    scope: dict[str, Any] = {"_cls": cls}
    values = {}
    for name in names:
        if name in skipped:
            continue
        if not readers:
            values[name] = name
            continue
        scope[f"_read_{name}"] = readers[name]
        values[name] = f"_read_{name}({name})"
        if name in as_they_are:
            values[name] = f"{name} if {_is_one_of(name, as_they_are[name], scope)} else {values[name]}"
    if COPY not in cls.__dict__:
        lines = [f"return _cls({', '.join(f'{name}={value}' for name, value in values.items())})"]
    else:
        values = {name: values.get(name) or _default(each, scope) for name, each in every.items()}
        lines = [*_making(cls, values, scope), *_finish(cls), "return made"]
    return compiled("make", ", ".join(names), lines, scope)


def _is_one_of(name: str, types: Iterable[type], scope: dict[str, Any]) -> str:
    """The expression that says whether what has this name is of one of these types, and finite if it is a float."""
    tests = []
    for each in types:
        scope |= {f"_{each.__name__}": each, "_inf": inf, "_type": type}
        also = f" and -_inf < {name} < _inf" if each is float else ""
        tests.append(f"_type({name}) is _{each.__name__}{also}")
    return " or ".join(tests)


def _default(each: Field, scope: dict[str, Any]) -> str:
    """The expression for the value of a field that isn't given. Raises TypeError if it has none."""
    if not each.has_default:
        raise TypeError(f"the field {each.name!r} is missing")
    if each.default is not MISSING:
        scope[f"_default_{each.name}"] = each.default
    elif _is_frozen(each.default_factory):
        scope[f"_default_{each.name}"] = each.default_factory()  # one for all
    else:
        scope[f"_make_{each.name}"] = each.default_factory
        return f"_make_{each.name}()"
    return f"_default_{each.name}"


def _is_frozen(factory: Any) -> bool:
    return is_dataclass(factory) and factory.__setattr__ is refuse


def teller(
    cls: Any, writers: Mapping[str, Callable[[Any], str]], numbers: Mapping[str, type], tag: str = ""
) -> Callable[[Any], str]:
    """What writes an object as JSON: behind the `tag`, what isn't equal to its default.

    Each field has a writer, which gives JSON. What is exactly of the type in `numbers`, int or float, and finite is
    written as it is. Raises TypeError for an object of another class.
    """
    scope: dict[str, Any] = {"_cls": cls, "_type": type}
    every: dict[str, Field] = getattr(cls, FIELDS)
    always, lines = [], []
    for name, each in every.items():
        scope[f"_write_{name}"] = writers[name]
        value = f"_write_{name}(record.{name})"
        if name in numbers:
            plain = _is_one_of("value", (numbers[name],), scope).replace(
                "value", f"value := record.{name}", 1
            )
            value = f"value if {plain} else {value}"
        if not each.has_default:
            always.append(f',"{name}":{{{value}}}')
            continue
        default = f"_default_{name}"
        scope[default] = each.default if each.default is not MISSING else each.default_factory()
        lines.append(f"if record.{name} is not {default} and record.{name} != {default}:")
        lines.append(f" told += f',\"{name}\":{{{value}}}'")
    lines = [
        "if _type(record) is not _cls: raise TypeError(f'{record!r} is not of type {_cls.__name__}')",
        f"told = f'{''.join(always)}'",
        *lines,
        f"return f'{{{{{tag}{{told}}}}}}'" if tag else "return f'{{{told[1:]}}}'",
    ]
    return compiled("tell", "record", lines, scope)


def _making(cls: Any, values: Mapping[str, str], scope: dict[str, Any]) -> list[str]:
    """The lines that make an object `made` of the class, with these expressions as the contents of its slots."""
    scope |= {"_cls": cls, "_new": object.__new__}
    scope["_twin"] = _open_twin(cls)
    assigned = (f"made.{name} = {value}" for name, value in values.items())
    return ["made = _new(_twin)", *assigned, "made.__class__ = _cls"]  # which `_left_open` leaves out


@cache
def _open_twin(cls: Any) -> type:
    """A class with the same slots that may be assigned to: that is many times faster than to set a frozen object's.

    An object is made as one of these, and then becomes what it is to be.
    """
    body = {
        name: value for name, value in cls.__dict__.items() if not isinstance(value, MemberDescriptorType)
    }
    body |= {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__, CLOSED: cls}
    twin: type = type(cls)(cls.__name__, cls.__bases__, body)
    return twin


def _finish(cls: type) -> list[str]:
    return ["made.__post_init__()"] if hasattr(cls, "__post_init__") else []
