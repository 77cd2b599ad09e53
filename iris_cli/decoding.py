"""Decode structs in several threads."""

from __future__ import annotations

from threading import RLock
from typing import TypeVar

from msgspec.json import Decoder

T = TypeVar("T")

_preparing = RLock()
_PREPARED: set[object] = set()


def prepared(kind: type[T]) -> type[T]:
    """Return the type, prepared for decoding in several threads. Call this for every decoded type.

    msgspec reads the annotations of a struct when it first decodes one. If a second thread decodes the same struct at
    the same time, it uses incomplete data, and the interpreter crashes (seen with msgspec 0.22).
    """
    if kind not in _PREPARED:
        with _preparing:
            Decoder(kind)
            _PREPARED.add(kind)
    return kind
