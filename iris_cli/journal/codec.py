"""Structs of the core as JSON, and back.

The structs of the core are the schema, and msgspec reads and writes them. A field at its default is left out, so
defaults are part of the format. Reading is strict: what this module would never have written is refused.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from iris_cli.core.structs import plain, typed
from iris_cli.decoding import prepared

T = TypeVar("T")


class BadEventError(ValueError):
    """An event, or a field of one, is not what the format says."""


def encode(value: object) -> bytes:
    """Any struct, or any list of them, as JSON in ASCII. Raises BadEventError."""
    try:
        text = _ENCODER.encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair, from a name that is not UTF-8
        text = b"\xff"
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise BadEventError(str(error)) from error
    if text.isascii():
        return text
    return json.dumps(encode_record(value), separators=(",", ":"), allow_nan=False).encode("ascii")


def decode(kind: type[T], text: bytes) -> T:
    """The value that `encode` wrote. Raises BadEventError."""
    try:
        return _decoder(kind).decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        if b"\\ud" not in text:
            raise BadEventError(str(error)) from error
    return decode_record(kind, loads(text))  # which knows halves of surrogate pairs


def encode_record(record: object) -> Any:
    """A struct as what `json.dumps` takes. Raises BadEventError."""
    try:
        return msgspec.to_builtins(record, str_keys=True, enc_hook=_plain)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise BadEventError(str(error)) from error


def decode_record(kind: type[T], entry: Any) -> T:
    """The struct that `encode_record` took apart. Raises BadEventError."""
    try:
        json.dumps(entry, allow_nan=False)
        return msgspec.convert(entry, prepared(kind), dec_hook=_typed)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise BadEventError(f"{getattr(kind, '__name__', 'JSON')}: {error}") from error


def loads(text: bytes | str) -> Any:
    """JSON with finite numbers only, in which no key stands twice. Raises BadEventError."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_not_a_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise BadEventError(str(error)) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadEventError("a field stands there twice")
    return found


def _not_a_number(constant: str) -> None:
    raise BadEventError(f"{constant} is not a number")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise BadEventError("a number must be finite")
    return number


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else plain(value)


def _typed(kind: type, content: object) -> object:
    return Path(str(content)) if kind is Path else typed(kind, content)


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


_DECODERS: dict[object, msgspec.json.Decoder[Any]] = {}
"""By what they read: to make one takes longer than to use it."""


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    if (decoder := _DECODERS.get(kind)) is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(prepared(kind), dec_hook=_typed)
    return decoder
