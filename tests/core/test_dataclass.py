"""Our data classes are the standard library's, but for the time that it takes to define them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, ClassVar

import pytest

from iris_cli.core import lazy_dataclass
from iris_cli.core.dataclass import dataclass
from iris_cli.core.making import maker

LIBRARIES: Any = (dataclasses, lazy_dataclass)
OPTIONS = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"eq": False},
]


def points(library: Any, **options: bool) -> Any:
    """A class with all that a class of ours has."""

    @library.dataclass(**options)
    class Point:
        """Where it is."""

        SPACE: ClassVar[str] = "flat"
        x: float
        y: float = 0.0
        names: list[str] = library.field(default_factory=list)
        note: str = library.field(default="", compare=False, repr=False)
        length: float = library.field(default=7.0, init=False)
        area: float = library.field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "area", self.x * self.y)

        @property
        def far(self) -> bool:
            return self.x > 10

    @library.dataclass(**options)
    class Named(Point):
        y: float = 5.0
        label: str = "here"

    return Named


def outcome(act: Callable[[], Any]) -> object:
    """What an act gives; of an error only its type: its words name the class in other ways."""
    try:
        return act()
    except Exception as error:
        return type(error)


def words(act: Callable[[], Any]) -> str:
    try:
        return repr(act())
    except (AttributeError, TypeError) as error:
        return str(error)


ACTS: dict[str, Callable[[Any], Any]] = {
    "made by position": lambda cls: repr(cls(1.0, 2.0, ["a"])),
    "made by name": lambda cls: repr(cls(x=1.0, y=2.0, note="n", label="there")),
    "made with defaults": lambda cls: repr(cls(x=1.0)),
    "made without what it needs": lambda cls: cls(),
    "made with too much": lambda cls: cls(1, 2, [], "", "", 6),
    "made with a strange name": lambda cls: cls(x=1, z=1),
    "made with what is not for the caller": lambda cls: cls(x=1, length=1),
    "defaults are not shared": lambda cls: cls(x=1).names is cls(x=1).names,
    "equal": lambda cls: (
        cls(x=1) == cls(x=1),
        cls(x=1) == cls(x=2),
        cls(x=1, note="a") == cls(x=1, note="b"),
    ),
    "equal to nothing else": lambda cls: (cls(x=1) == cls.__mro__[1](x=1, y=5.0), cls(x=1) == 1),
    "in a set": lambda cls: len({cls(x=1, names=()), cls(x=1, names=(), note="other")}),
    "in a set, with what can change": lambda cls: len({cls(x=1, names=[])}),
    "set": lambda cls: words(lambda: setattr(cls(x=1), "x", 2)),
    "delete": lambda cls: words(lambda: delattr(cls(x=1), "x")),
    "a dictionary of its own": lambda cls: hasattr(cls(x=1), "__dict__"),
    "attributes of the class": lambda cls: (cls.SPACE, cls(x=11).far, cls(x=1).length, cls(x=2, y=3).area),
    "names": lambda cls: (cls.__name__, cls.__qualname__, cls.__module__, cls.__mro__[1].__doc__),
    "copied": lambda cls: repr(copy.deepcopy(cls(x=1, names=["a"]))),
    "replaced by the standard library": lambda cls: repr(dataclasses.replace(cls(x=1), y=3)),
    "taken apart by the standard library": lambda cls: dataclasses.asdict(cls(x=1)),
    "fields, for the standard library": lambda cls: [
        (each.name, each.type, each.default, each.default_factory, each.init, each.compare, each.kw_only)
        for each in dataclasses.fields(cls)
    ],
    "a data class, for the standard library": dataclasses.is_dataclass,
    "matched by position": lambda cls: (cls.__match_args__, cls.__mro__[1].__match_args__),
    "asked for its parameters": lambda cls: [
        (each.name, each.kind) for each in inspect.signature(cls).parameters.values()
    ],
    "the words about what is missing": lambda cls: words(cls),
    "the words about a strange name": lambda cls: words(lambda: cls(x=1, z=1)),
}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_both_libraries_do_the_same(options: dict[str, bool]) -> None:
    """The first objects of a class are made without compiled code, later ones with it."""
    for name, act in ACTS.items():
        theirs, ours, compiled = (points(library, **options) for library in (*LIBRARIES, lazy_dataclass))
        make_many(compiled)
        expected = outcome(partial(act, theirs))
        assert outcome(partial(act, ours)) == outcome(partial(act, compiled)) == expected, name


def make_many(cls: Any) -> None:
    for number in range(lazy_dataclass.FEW + 1):
        cls(x=number)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_both_have_the_same_fields_and_replace_alike(options: dict[str, bool]) -> None:
    theirs, ours = (points(library, **options) for library in LIBRARIES)
    assert [each.name for each in lazy_dataclass.fields(ours)] == [
        each.name for each in dataclasses.fields(theirs)
    ]
    assert repr(lazy_dataclass.replace(ours(x=1), y=3)) == repr(dataclasses.replace(theirs(x=1), y=3))
    assert lazy_dataclass.is_dataclass(ours)
    assert not lazy_dataclass.is_dataclass(3)
    with pytest.raises(TypeError):
        lazy_dataclass.replace(ours(x=1), strange=3)


def plain_points(library: Any, **options: bool) -> Any:
    """A class that makes nothing of its fields: a copy of them is a copy of the object."""

    @library.dataclass(**options)
    class Point:
        x: float
        names: list[str] = library.field(default_factory=list)

    @library.dataclass(**options)
    class Named(Point):
        label: str = "here"

    return Named


class Undecorated(plain_points(lazy_dataclass, frozen=True, slots=True)):  # type: ignore[misc]  # made by a function
    """Not a data class itself."""


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    "changes", [{}, {"x": 3}, {"label": "there", "names": ["b"]}, {"strange": 1}], ids=str
)
def test_both_replace_alike_where_an_object_is_its_fields(
    options: dict[str, bool], changes: dict[str, Any]
) -> None:
    theirs, ours = (plain_points(library, **options)(x=1, names=["a"]) for library in LIBRARIES)
    for _ in range(3):  # what is compiled at the second call does the same as the first, and at the third
        assert outcome(lambda: repr(lazy_dataclass.replace(ours, **changes))) == outcome(
            lambda: repr(dataclasses.replace(theirs, **changes))
        )
    assert repr(ours) == repr(theirs)
    assert lazy_dataclass.replace(ours).names is ours.names


def test_an_object_of_a_class_beneath_stays_one_of_it() -> None:
    replaced = lazy_dataclass.replace(Undecorated(x=1), x=2)
    assert (type(replaced), replaced.x) == (Undecorated, 2)


def test_a_class_with_an_init_of_its_own_is_asked_about_what_is_new() -> None:
    own = written_by_hand(lazy_dataclass)
    assert lazy_dataclass.replace(own("a"), text=" b ").text == "b"


def written_by_hand(library: Any) -> Any:
    @library.dataclass(frozen=True, slots=True, init=False)
    class Own:
        text: str

        def __init__(self, text: str) -> None:
            object.__setattr__(self, "text", text.strip())

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.text.lower() == other.text.lower()

        def __hash__(self) -> int:
            return hash(self.text.lower())

        def __repr__(self) -> str:
            return f"<{self.text}>"

    return Own


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__)
def test_what_a_class_writes_itself_stays(library: Any) -> None:
    own = written_by_hand(library)
    assert own(" A ") == own("a")
    assert len({own("A"), own("a")}) == 1
    assert repr(own(" A ")) == "<A>"
    with pytest.raises(AttributeError):
        own("a").text = "b"


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__)
def test_a_default_that_all_objects_would_share_is_refused(library: Any) -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @library.dataclass
        class _Shared:
            names: list[str] = []  # noqa: RUF012 - what is to be refused


@dataclass(frozen=True, slots=True)
class Kept:
    text: str = "a"
    parts: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Counted:
    number: int

    @cached_property
    def twice(self) -> int:
        return 2 * self.number


def test_objects_go_through_pickle() -> None:
    assert pickle.loads(pickle.dumps(Kept("b"))) == Kept("b")


def test_an_object_without_slots_keeps_what_it_worked_out() -> None:
    assert (Counted(2).twice, Counted(2).twice) == (4, 4)


def test_nothing_is_compiled_for_a_class_with_few_objects() -> None:
    @dataclass(frozen=True)
    class Rare:
        number: int = 1

    for number in range(lazy_dataclass.FEW):
        assert Rare(number).number == number
        assert not hasattr(Rare.__dict__["__init__"], "__code__")
    assert Rare(7).number == 7
    assert Rare.__dict__["__init__"].__code__.co_filename == "<string>"


def test_what_is_made_faster_is_of_its_class_and_frozen_like_any_other() -> None:
    """It was made as an object of an open twin of the class, which nobody meets."""
    cls = plain_points(lazy_dataclass, frozen=True, slots=True)
    copied = lazy_dataclass.replace(cls(x=1), x=2)
    made = maker(cls, ("x",), {"x": float}, {})("3")
    assert made == cls(x=3.0)
    for point in (copied, made):
        assert type(point) is cls
        with pytest.raises(dataclasses.FrozenInstanceError):
            point.x = 5
        with pytest.raises(dataclasses.FrozenInstanceError):
            del point.x
        assert copy.deepcopy(point) == point
