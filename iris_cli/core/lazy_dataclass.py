"""What `core/dataclass.py` is at run time: data classes that are cheap to define.

`dataclasses` compiles up to eight methods for each class as soon as it is defined, and brings in `inspect`: for the
hundred classes of a command that took longer than all that the command does. Here only `__init__` is compiled, and
only for a class of which several objects are made; the other methods need no compiling. What the library's own
functions look for (`dataclasses.fields`, `asdict`, ...) is there as soon as they look.

No `order`, `InitVar`, `KW_ONLY` or `metadata`: nobody here needs them. Annotations are text (PEP 563).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MemberDescriptorType
from typing import Any, TypeVar

T = TypeVar("T")
MISSING: Any = object()
FIELDS = "__lazy_fields__"
COPY = "__lazy_copy__"
FEW = 3
"""Objects of a class that are made without compiling anything: to compile takes as long as to make twenty."""


class Field:
    """One field; the attributes are those of `dataclasses.Field`."""

    __slots__ = ("compare", "default", "default_factory", "init", "kw_only", "name", "repr", "type")

    def __init__(self, default: Any, default_factory: Any, init: bool, repr: bool, compare: bool) -> None:  # noqa: A002 - as the standard library calls it
        self.name, self.type, self.kw_only = "", "", False  # the class says
        self.default, self.default_factory = default, default_factory
        self.init, self.repr, self.compare = init, repr, compare

    @property
    def has_default(self) -> bool:
        """Whether the field may be left out when an object is made."""
        return self.default is not MISSING or self.default_factory is not MISSING


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
    return tuple(getattr(record, FIELDS).values())


def is_dataclass(value: object) -> bool:
    """Whether it is a data class, or an object of one."""
    return hasattr(value, FIELDS)


def replace(record: T, /, **changes: Any) -> T:
    """A new object with other values in some fields."""
    copy = type(record).__dict__.get(COPY)
    if copy is None:
        given = (each.name for each in fields(record) if each.init)
        return type(record)(**{**{name: getattr(record, name) for name in given}, **changes})
    try:
        copied: T = copy(record, changes)
    except KeyError as error:
        raise TypeError(f"{type(record).__name__} has no field {error}") from None
    return copied


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
        every: dict[str, Field] = {**getattr(cls, FIELDS, {}), **own}
        if slots:
            cls = _slotted(cls, own)
        by_position = tuple(name for name, each in every.items() if each.init and not each.kw_only)
        methods: dict[str, Any] = {"__repr__": _repr(every), "__match_args__": by_position}
        if init:
            methods["__init__"] = _Init(cls, every, frozen)
        if eq:
            methods |= _equality(every, frozen)
        if frozen:
            methods |= {"__setattr__": refuse, "__delattr__": refuse}
        if frozen and slots:
            methods["__setstate__"] = _set_state
        for name, method in methods.items():
            if cls.__dict__.get(name) is None:  # `__hash__` is None where only `__eq__` was written
                setattr(cls, name, method)
        setattr(cls, FIELDS, every)
        if (
            frozen
            and _is_only_its_slots(cls, every)
            and cls.__dict__.get("__init__") is methods.get("__init__")
        ):
            setattr(cls, COPY, _first_copy)
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
    """An `__init__` that is compiled when there are more than a few objects, or somebody looks at it."""

    def __init__(self, cls: type, every: Mapping[str, Field], frozen: bool) -> None:
        self._cls, self._every, self._frozen = cls, every, frozen
        self._made = 0

    def __get__(self, instance: object, owner: type) -> Any:
        self._made += 1
        # For the parameters of a class, newer versions of Python bind to the class itself.
        if instance is None or instance is self._cls or self._made > FEW:
            return self._compiled().__get__(instance, owner)
        return lambda *given, **named: self._fill(instance, given, named)

    def _compiled(self) -> Any:
        compiled = _compiled_init(self._cls, self._every, self._frozen)
        self._cls.__init__ = compiled  # type: ignore[misc]  # that is the point
        return compiled

    def _fill(self, record: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        """What the compiled one does, which also has the words for what is wrong."""
        wanted = {name: each for name, each in self._every.items() if each.init}
        values = dict(zip((name for name, each in wanted.items() if not each.kw_only), given, strict=False))
        values |= named
        needed = {name for name, each in wanted.items() if not each.has_default}
        if len(values) != len(given) + len(named) or not needed <= values.keys() <= wanted.keys():
            self._compiled()(record, *given, **named)
            return
        put = object.__setattr__ if self._frozen else setattr
        for name, each in self._every.items():
            if name in values:
                put(record, name, values[name])
            elif each.has_default:
                put(record, name, each.default if each.default is not MISSING else each.default_factory())
        if hasattr(self._cls, "__post_init__"):
            record.__post_init__()


def _compiled_init(cls: type, every: Mapping[str, Field], frozen: bool) -> Callable[..., None]:
    setters = slots(cls, every)
    scope = {
        "_set": object.__setattr__,
        "_MISSING": MISSING,
        **{f"_set_{name}": setters[name] for name in setters},
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
            lines.append(
                f"_set_{name}(self, {value})" if name in setters else f"_set(self, {name!r}, {value})"
            )
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    signature = ", ".join(["self", *parameters[False], *(parameters[True] if parameters[True][1:] else ())])
    init = compiled("__init__", signature, lines, scope)
    init.__qualname__ = f"{cls.__qualname__}.__init__"  # for the words of a TypeError
    return init


def _first_copy(record: Any, changes: Mapping[str, Any]) -> Any:
    """A copy with some changes: often the only one. Raises KeyError."""
    cls = type(record)
    contents = {name: getattr(record, name) for name in getattr(cls, FIELDS)}
    for name in changes:
        contents[name]  # else there is no such field
    copy = cls(**{**contents, **changes})
    setattr(cls, COPY, _second_copy)
    return copy


def _second_copy(record: Any, changes: Mapping[str, Any]) -> Any:
    """The same; compiles what makes the next ones."""
    from iris_cli.core.making import copier

    cls = type(record)
    copy = copier(cls)
    setattr(cls, COPY, copy)
    return copy(record, changes)


def _is_only_its_slots(cls: Any, every: Mapping[str, Field]) -> bool:
    """Whether a copy of the fields is a copy of the object, and what the class would have made of them."""
    return cls.__dictoffset__ == 0 and all(each.init for each in every.values())


def slots(cls: type, every: Iterable[str]) -> dict[str, Any]:
    """What sets each field that has a slot, past `__setattr__` and much faster than the one of `object`."""
    found = {name: getattr(cls, name, None) for name in every}
    return {name: slot.__set__ for name, slot in found.items() if isinstance(slot, MemberDescriptorType)}


def compiled(name: str, parameters: str, lines: Iterable[str], scope: dict[str, Any]) -> Callable[..., Any]:
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


def refuse(_: Any, name: str, *value: object) -> None:
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
