"""Encode structs of the core as JSON, and decode them.

The types of the structs are the schema. Fields at their default are omitted, so defaults are part of the format.
Decoding rejects everything that `encode` never writes.
"""

import json
import math
from typing import Any, TypeVar

import msgspec

from iris_cli.core.structs import from_json_value, to_json_value
from iris_cli.decoding import prepare_type

T = TypeVar("T")


class BadEventError(ValueError):
    """An event or one of its fields violates the format."""


def encode(value: object) -> bytes:
    """Encode a struct, or a list of structs, as ASCII JSON. Raises BadEventError."""
    try:
        text = _ENCODER.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, from a name that is not UTF-8
        text = b"\xff"
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise BadEventError(str(error)) from error
    if text.isascii():
        return text
    return json.dumps(encode_record(value), separators=(",", ":"), allow_nan=False).encode("ascii")


def decode(kind: type[T], text: bytes) -> T:
    """Decode a value written by `encode`. Raises BadEventError."""
    try:
        return _decoder(kind).decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        if b"\\ud" not in text:
            raise BadEventError(str(error)) from error
    return decode_record(kind, loads(text))  # `loads` also decodes lone surrogates


def encode_record(record: object) -> Any:
    """Convert a struct to values for `json.dumps`. Raises BadEventError."""
    try:
        return msgspec.to_builtins(record, str_keys=True, enc_hook=to_json_value)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise BadEventError(str(error)) from error


def decode_record(kind: type[T], entry: Any) -> T:
    """Convert the result of `encode_record` to a struct. Raises BadEventError."""
    try:
        json.dumps(entry, allow_nan=False)
        return msgspec.convert(entry, prepare_type(kind), dec_hook=from_json_value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise BadEventError(f"{getattr(kind, '__name__', 'JSON')}: {error}") from error


def loads(text: bytes | str) -> Any:
    """Parse JSON with finite numbers and without duplicate keys. Raises BadEventError."""
    try:
        return json.loads(
            text, object_pairs_hook=_reject_duplicates, parse_constant=_reject_nan, parse_float=_parse_finite
        )
    except (ValueError, RecursionError) as error:
        raise BadEventError(str(error)) from error


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadEventError("a field occurs twice")
    return found


def _reject_nan(constant: str) -> None:
    raise BadEventError(f"{constant} is not a number")


def _parse_finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise BadEventError("a number must be finite")
    return number


_ENCODER = msgspec.json.Encoder(enc_hook=to_json_value)

_DECODERS: dict[object, msgspec.json.Decoder[Any]] = {}
"""Decoders by type. They are kept, because creating a decoder takes longer than using it."""


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    if (decoder := _DECODERS.get(kind)) is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(prepare_type(kind), dec_hook=from_json_value)
    return decoder
