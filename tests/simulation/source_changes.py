"""Change one piece of the product's source for as long as a test wants it: a mutation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, cached_property
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any


def change(module: str, old: str, new: str) -> Callable[[], AbstractContextManager[None]]:
    """Return what replaces `old`, which must occur once in the functions of the module, by `new`.

    The functions keep their identity, so the change also reaches modules that imported them by name.
    """
    return lambda: _changed(module, old, new)


@contextmanager
def _changed(module: str, old: str, new: str) -> Iterator[None]:
    replaced = [(function, function.__code__) for function, _ in _changes(module, old, new)]
    for function, code in _changes(module, old, new):
        function.__code__ = code
    try:
        yield
    finally:
        for function, code in replaced:
            function.__code__ = code


@cache
def _changes(name: str, old: str, new: str) -> list[tuple[FunctionType, CodeType]]:
    """The functions that differ, with their changed code. Raises LookupError if the text is not there once."""
    module = import_module(name)
    source, file = inspect.getsource(module), inspect.getfile(module)
    if source.count(old) != 1:
        raise LookupError(f"{name} has {source.count(old)} places that read {old!r}, not 1")
    before, after = (
        compile(text, file, "exec", dont_inherit=True) for text in (source, source.replace(old, new))
    )
    found = [(_function(module, code.co_qualname), code) for code in _differing(before, after)]
    if not found:
        raise LookupError(f"{name}: {old!r} is in no function")
    return found


def _differing(before: CodeType, after: CodeType) -> Iterator[CodeType]:
    """The code of the outermost functions that differ; classes are looked into."""
    for one, other in zip(_inner(before), _inner(after), strict=True):
        if one == other or other.co_name == "<lambda>":  # the number of its first line is part of its code
            continue
        if other.co_flags & inspect.CO_OPTIMIZED:
            yield other
        else:
            yield from _differing(one, other)


def _inner(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _function(module: object, qualified_name: str) -> FunctionType:
    found: Any = module
    for part in qualified_name.split("."):
        found = inspect.getattr_static(found, part)
        if isinstance(found, staticmethod | classmethod):
            found = found.__func__
        elif isinstance(found, property):
            found = found.fget
        elif isinstance(found, cached_property):
            found = found.func
        if callable(found) and not isinstance(found, type):
            found = inspect.unwrap(found)
    assert isinstance(found, FunctionType), qualified_name
    return found
