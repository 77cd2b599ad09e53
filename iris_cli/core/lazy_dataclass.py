"""What `core/dataclass.py` is at run time: data classes that are cheap to define.

`dataclasses` compiles up to eight methods for each class as soon as it is defined, and brings in `inspect`: for the
hundred classes of a command that took longer than all that the command does. Here only `__init__` is compiled, and
only for a class of which an object is made; the other methods need no compiling. What the library's own functions
look for (`dataclasses.fields`, `asdict`, ...) is there as soon as they look.

No `order`, `InitVar`, `KW_ONLY` or `metadata`: nobody here needs them. Annotations are text (PEP 563).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from types import MemberDescriptorType
from typing import Any, TypeVar

T = TypeVar("T")
MISSING: Any = object()
_FIELDS = "__lazy_fields__"
_COPY = "__lazy_copy__"
CLOSED = "__lazy_closed__"  # of a class that may be assigned to: the frozen one


class Field:
    """One field; the attributes are those of `dataclasses.Field`."""

    __slots__ = ("compare", "default", "default_factory", "init", "kw_only", "name", "repr", "type")

    def __init__(self, default: Any, default_factory: Any, init: bool, repr: bool, compare: bool) -> None:  # noqa: A002 - as the standard library calls it
        self.name, self.type, self.kw_only = "", "", False  # the class says
        self.default, self.default_factory = default, default_factory
        self.init, self.repr, self.compare = init, repr, compare


def field(
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    init: bool = True,
    repr: bool = True,  # noqa: A002 - as the standard library calls it
    compare: bool = True,
) -> Any:
    """As `dataclasses.field`."""
    return Field(default, default_factory, init, repr, compare)


def fields(record: Any) -> tuple[Field, ...]:
    """The fields of a data class, or of an object of one, in order."""
    return tuple(getattr(record, _FIELDS).values())


def is_dataclass(value: object) -> bool:
    """Whether it is a data class, or an object of one."""
    return hasattr(value, _FIELDS)


def replace(record: T, /, **changes: Any) -> T:
    """A new object with other values in some fields."""
    copy = type(record).__dict__.get(_COPY)
    if copy is None:
        given = (each.name for each in fields(record) if each.init)
        return type(record)(**{**{name: getattr(record, name) for name in given}, **changes})
    try:
        copied: T = copy(record, changes)
    except KeyError as error:
        raise TypeError(f"{type(record).__name__} has no field {error}") from None
    return copied


@cache
def opener(cls: Any) -> Callable[[Any], Any]:
    """What copies an object of the class as one that may be assigned to, for whoever holds the only reference to it.

    Assigning `getattr(copy, CLOSED)` to the copy's `__class__` makes it what others are. For classes whose objects are
    no more than their slots, and which check nothing when an object is made.
    """
    values = {name: f"record.{name}" for name in getattr(cls, _FIELDS)}
    return _compiled("opened", "record", *_left_open(cls, values, {}))


@cache
def beginner(cls: Any) -> Callable[[], Any]:
    """As `opener`, for a new object: nothing is in its fields that have no default."""
    scope: dict[str, Any] = {}
    every: dict[str, Field] = getattr(cls, _FIELDS)
    values = {name: _default(each, scope) for name, each in every.items() if has_default(each)}
    return _compiled("begun", "", *_left_open(cls, values, scope))


def _left_open(cls: Any, values: Mapping[str, str], scope: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    lines = _making(cls, values, scope)
    if "_twin" not in scope or not _is_only_its_slots(cls, getattr(cls, _FIELDS)) or _finish(cls):
        raise TypeError(f"objects of {cls.__name__} are more than what is assigned to their fields")
    return [*lines[:-1], "return made"], scope


def maker(
    cls: Any,
    names: Sequence[str],
    readers: Mapping[str, Callable[[Any], Any]],
    as_they_are: Mapping[str, type],
) -> Callable[..., Any]:
    """What makes an object of the contents of these fields, in this order; the others get their defaults.

    A content goes through the reader of its field, unless it is of exactly the type in `as_they_are`. Raises KeyError
    for a field that the class doesn't have, TypeError where one is missing.
    """
    every: dict[str, Field] = getattr(cls, _FIELDS)
    scope: dict[str, Any] = {"_cls": cls}
    values = {}
    for name in names:
        scope[f"_read_{name}"] = readers[name]
        values[name] = f"_read_{name}({name})"
        if name in as_they_are:
            scope[f"_type_{name}"] = as_they_are[name]
            values[name] = f"{name} if type({name}) is _type_{name} else {values[name]}"
    if _COPY not in cls.__dict__:
        lines = [f"return _cls({', '.join(f'{name}={value}' for name, value in values.items())})"]
    else:
        values = {name: values.get(name) or _default(each, scope) for name, each in every.items()}
        lines = [*_making(cls, values, scope), *_finish(cls), "return made"]
    return _compiled("make", ", ".join(names), lines, scope)


def _default(each: Field, scope: dict[str, Any]) -> str:
    """The expression for the value of a field that isn't given. Raises TypeError if it has none."""
    if not has_default(each):
        raise TypeError(f"the field {each.name!r} is missing")
    if each.default is not MISSING:
        scope[f"_default_{each.name}"] = each.default
    elif _is_frozen(each.default_factory):
        scope[f"_default_{each.name}"] = each.default_factory()  # one for all
    else:
        scope[f"_make_{each.name}"] = each.default_factory
        return f"_make_{each.name}()"
    return f"_default_{each.name}"


def has_default(each: Field) -> bool:
    """Whether the field may be left out when an object is made."""
    return each.default is not MISSING or each.default_factory is not MISSING


def _is_frozen(factory: Any) -> bool:
    return is_dataclass(factory) and factory.__setattr__ is _refuse


def taker(
    cls: Any, writers: Mapping[str, Callable[[Any], Any]], as_they_are: Mapping[str, type]
) -> Callable[[Any], dict[str, Any]]:
    """What takes an object apart: contents through their writers, without those that are equal to their defaults."""
    scope: dict[str, Any] = {}
    lines = ["taken = {}"]
    every: dict[str, Field] = getattr(cls, _FIELDS)
    for name, each in every.items():
        scope[f"_write_{name}"] = writers[name]
        take = f"taken[{name!r}] = _write_{name}(value)"
        if name in as_they_are:
            scope[f"_type_{name}"] = as_they_are[name]
            take = f"taken[{name!r}] = value if type(value) is _type_{name} else _write_{name}(value)"
        lines.append(f"value = record.{name}")
        if has_default(each):
            scope[f"_default_{name}"] = (
                each.default if each.default is not MISSING else each.default_factory()
            )
            take = f"if value is not _default_{name} and value != _default_{name}: {take}"
        lines.append(take)
    return _compiled("take", "record", [*lines, "return taken"], scope)


def dataclass(
    cls: type | None = None,
    /,
    *,
    init: bool = True,
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
) -> Any:
    """As `dataclasses.dataclass`."""

    def define(cls: type) -> type:
        own = _own_fields(cls, kw_only)
        every: dict[str, Field] = {**getattr(cls, _FIELDS, {}), **own}
        if slots:
            cls = _slotted(cls, own)
        by_position = tuple(name for name, each in every.items() if each.init and not each.kw_only)
        methods: dict[str, Any] = {"__repr__": _repr(every), "__match_args__": by_position}
        if init:
            methods["__init__"] = _Init(cls, every, frozen)
        if eq:
            methods |= _equality(every, frozen)
        if frozen:
            methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
        if frozen and slots:
            methods["__setstate__"] = _set_state
        for name, method in methods.items():
            if cls.__dict__.get(name) is None:  # `__hash__` is None where only `__eq__` was written
                setattr(cls, name, method)
        setattr(cls, _FIELDS, every)
        if (
            frozen
            and _is_only_its_slots(cls, every)
            and cls.__dict__.get("__init__") is methods.get("__init__")
        ):
            setattr(cls, _COPY, _copy(cls, every))
        for name in ("__dataclass_fields__", "__dataclass_params__"):
            setattr(cls, name, _Standard(name, cls, every, frozen))
        return cls

    return define if cls is None else define(cls)


def _own_fields(cls: type, kw_only: bool) -> dict[str, Field]:
    own = {}
    for name, hint in cls.__annotations__.items():
        if hint.startswith("ClassVar"):
            continue
        given = cls.__dict__.get(name, MISSING)
        each = own[name] = given if isinstance(given, Field) else field(default=given)
        each.name, each.type, each.kw_only = name, hint, kw_only
        if isinstance(given, Field):
            delattr(cls, name)
        if isinstance(each.default, list | dict | set):
            raise ValueError(
                f"{cls.__name__}.{name}: all objects would share that default; use default_factory"
            )
    return own


def _slotted(cls: type, own: Mapping[str, Field]) -> type:
    """The same class once more: slots can't be added to one that exists."""
    dropped = {*own, "__dict__", "__weakref__"}
    body = {name: value for name, value in cls.__dict__.items() if name not in dropped}
    body |= {"__slots__": tuple(own), "__qualname__": cls.__qualname__}
    return type(cls)(cls.__name__, cls.__bases__, body)


class _Init:
    """An `__init__` that is compiled when somebody looks for it: when the first object is made."""

    def __init__(self, cls: type, every: Mapping[str, Field], frozen: bool) -> None:
        self._cls, self._every, self._frozen = cls, every, frozen

    def __get__(self, instance: object, owner: type) -> Any:
        compiled = _compiled_init(self._cls, self._every, self._frozen)
        self._cls.__init__ = compiled  # type: ignore[misc]  # that is the point
        return compiled.__get__(instance, owner)


def _compiled_init(cls: type, every: Mapping[str, Field], frozen: bool) -> Callable[..., None]:
    slots = _slots(cls, every)
    scope = {
        "_set": object.__setattr__,
        "_MISSING": MISSING,
        **{f"_set_{name}": slots[name] for name in slots},
    }
    parameters: dict[bool, list[str]] = {False: [], True: ["*"]}
    lines = []
    for each in every.values():
        name = value = each.name
        parameter = name
        if each.default_factory is not MISSING:
            scope[f"_make_{name}"] = each.default_factory
            parameter = f"{name}=_MISSING"
            value = f"_make_{name}() if {name} is _MISSING else {name}" if each.init else f"_make_{name}()"
        elif each.default is not MISSING:
            scope[f"_default_{name}"] = each.default
            parameter = f"{name}=_default_{name}"
            value = name if each.init else f"_default_{name}"
        elif not each.init:
            continue  # `__post_init__` sets it
        if each.init:
            parameters[each.kw_only].append(parameter)
        if not frozen:
            lines.append(f"self.{name} = {value}")
        else:
            lines.append(f"_set_{name}(self, {value})" if name in slots else f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    signature = ", ".join(["self", *parameters[False], *(parameters[True] if parameters[True][1:] else ())])
    compiled = _compiled("__init__", signature, lines, scope)
    compiled.__qualname__ = f"{cls.__qualname__}.__init__"  # for the words of a TypeError
    return compiled


def _copy(cls: type, every: Mapping[str, Field]) -> Callable[[Any, Mapping[str, Any]], Any]:
    """What makes a copy with some changes, many times faster than `__init__` would. Raises KeyError."""

    def copy(record: Any, changes: Mapping[str, Any]) -> Any:
        scope: dict[str, Any] = {"_slots": _slots(cls, every)}
        lines = [
            *_making(cls, {name: f"record.{name}" for name in every}, scope),
            "for name in changes: _slots[name](made, changes[name])",
            *_finish(cls),
            "return made",
        ]
        compiled = _compiled("copy", "record, changes", lines, scope)
        setattr(cls, _COPY, compiled)
        return compiled(record, changes)

    return copy


def _making(cls: Any, values: Mapping[str, str], scope: dict[str, Any]) -> list[str]:
    """The lines that make an object `made` of the class, with these expressions as the contents of its slots."""
    scope |= {"_cls": cls, "_new": object.__new__}
    twin = _open_twin(cls)
    if twin is None:
        scope |= {f"_set_{name}": slot for name, slot in _slots(cls, values).items()}
        return ["made = _new(_cls)", *(f"_set_{name}(made, {value})" for name, value in values.items())]
    scope["_twin"] = twin
    assigned = (f"made.{name} = {value}" for name, value in values.items())
    return ["made = _new(_twin)", *assigned, "made.__class__ = _cls"]  # which `_left_open` leaves out


@cache
def _open_twin(cls: Any) -> type | None:
    """A class with the same slots that may be assigned to: that is many times faster than to set a frozen object's.

    An object is made as one of these, and then becomes what it is to be. None for a class that counts its subclasses.
    """
    if any("__init_subclass__" in base.__dict__ for base in cls.__mro__[:-1]):
        return None
    body = {name: value for name, value in cls.__dict__.items() if not isinstance(value, MemberDescriptorType)}
    body |= {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__, CLOSED: cls}
    return type(cls)(cls.__name__, cls.__bases__, body)


def _finish(cls: type) -> list[str]:
    return ["made.__post_init__()"] if hasattr(cls, "__post_init__") else []


def _is_only_its_slots(cls: Any, every: Mapping[str, Field]) -> bool:
    """Whether a copy of the fields is a copy of the object, and what the class would have made of them."""
    return cls.__dictoffset__ == 0 and all(each.init for each in every.values())


def _slots(cls: type, every: Iterable[str]) -> dict[str, Any]:
    """What sets each field that has a slot, past `__setattr__` and much faster than the one of `object`."""
    found = {name: getattr(cls, name, None) for name in every}
    return {name: slot.__set__ for name, slot in found.items() if isinstance(slot, MemberDescriptorType)}


def _compiled(name: str, parameters: str, lines: Iterable[str], scope: dict[str, Any]) -> Callable[..., Any]:
    body = "".join(f" {line}\n" for line in lines) or " pass"
    exec(f"def {name}({parameters}):\n{body}", scope)  # noqa: S102 - the names are identifiers of our own source
    compiled: Callable[..., Any] = scope[name]
    return compiled


def _repr(every: Mapping[str, Field]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:  # noqa: N807 - it is one
        shown = (f"{name}={getattr(self, name)!r}" for name, each in every.items() if each.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    return __repr__


def _equality(every: Mapping[str, Field], frozen: bool) -> dict[str, Any]:
    """Equal are objects of the same class with equal fields; only those that can't change have a hash."""
    content = _contents([name for name, each in every.items() if each.compare])

    def __eq__(self: Any, other: object) -> Any:  # noqa: N807 - it is one
        return content(self) == content(other) if type(other) is type(self) else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807 - it is one
        return hash(content(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


def _contents(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives an object's contents of these fields."""
    if len(names) == 1:
        return lambda record: (getattr(record, names[0]),)
    return attrgetter(*names) if names else lambda _: ()


def _refuse(_: Any, name: str, *value: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _set_state(self: Any, state: tuple[None, Mapping[str, Any]]) -> None:
    """For `copy` and `pickle`: the default would assign to fields."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)


class _Standard:
    """An attribute that the standard library's data classes have. It is made when somebody looks."""

    def __init__(self, name: str, cls: type, every: Mapping[str, Field], frozen: bool) -> None:
        self._name, self._cls, self._every, self._frozen = name, cls, every, frozen

    def __get__(self, instance: object, owner: type) -> Any:
        import dataclasses

        def same(each: Field) -> Any:
            given = {
                name: getattr(each, name)
                for name in ("default", "default_factory")
                if getattr(each, name) is not MISSING
            }
            return dataclasses.field(
                init=each.init, repr=each.repr, compare=each.compare, kw_only=each.kw_only, **given
            )

        parts = [(name, each.type, same(each)) for name, each in self._every.items()]
        twin = dataclasses.make_dataclass(self._cls.__name__, parts, frozen=self._frozen)
        made = getattr(twin, self._name)
        setattr(self._cls, self._name, made)
        return made
