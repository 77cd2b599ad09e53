"""Prepare structs for decoding in several threads."""

from threading import RLock
from typing import TypeVar

from msgspec.json import Decoder

T = TypeVar("T")

_lock = RLock()
_PREPARED: set[object] = set()


def prepare_type(kind: type[T]) -> type[T]:
    """Prepare a type for decoding in several threads, and return it. Call this for every type that is decoded.

    msgspec reads the annotations of a struct when it first decodes one. If a second thread decodes the same struct at
    the same time, it uses incomplete data, and the interpreter crashes (seen with msgspec 0.22).
    """
    if kind not in _PREPARED:
        with _lock:
            Decoder(kind)
            _PREPARED.add(kind)
    return kind
