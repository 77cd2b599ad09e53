"""Requests and answers as text, for whoever asks: one JSON object each. Cheap to import, also inside a task."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace

from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.messages.requests import FORMAT, MOST_BYTES, OPS, Answer, Refusal, Request, Submit
from iris_cli.core.model.job import JobRequest
from iris_cli.core.model.job_fields import JOB_FIELDS, Kind
from iris_cli.decoding import prepared
from iris_cli.errors import IrisError, UsageError


def write_request(request: Request) -> bytes:
    """The text of a request: what goes into a file of the outbox. Raises UsageError for one that is too large."""
    op = next(word for word, kind in OPS.items() if kind is type(request))
    document: dict[str, Any] = {"v": FORMAT, "op": op}
    if isinstance(request, Submit):
        document["job"] = _job(request.job)
    else:
        said = {name: getattr(request, name) for name in request.__struct_fields__}
        document |= {name: _plain(value) for name, value in said.items() if value is not None}
    raw = _text(document)
    if len(raw) > MOST_BYTES:
        raise UsageError(
            f"the request takes {len(raw)} bytes, more than {MOST_BYTES}", hint="put the data into a file"
        )
    return raw


def digest_of(job: JobRequest) -> str:
    """Tells whether two requests ask for the same job, but for its name. It stays what it is when fields are added."""
    from hashlib import sha256

    said = json.dumps(_job(replace(job, name=None)), sort_keys=True, separators=(",", ":"))
    return sha256(said.encode("ascii")).hexdigest()[:32]


def _job(request: JobRequest) -> dict[str, Any]:
    """The fields of a job file that say the same."""
    said = ((row, getattr(request, row.name)) for row in JOB_FIELDS if not row.into)
    return {row.file_key: _WRITERS.get(row.kind, _plain)(value) for row, value in said if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list) or type(value) is tuple:
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


_WRITERS: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.CONSTRAINTS: lambda constraints: [format_constraint(each) for each in constraints],
    Kind.SIZE: lambda size: f"{size}B",
    Kind.GROUP: lambda attribute: {"group_by": attribute},
    Kind.WORKSPACE: lambda packed: {
        name: getattr(packed, name) for name in ("hash", "size", "files", "name")
    },
}


def write_answer(answer: Answer) -> bytes:
    """The text of an answer, in one line."""
    if isinstance(answer, Refusal):
        return _text({"v": FORMAT, "ok": False, "error": to_builtins(answer)})
    return _text({"v": FORMAT, "ok": True, "result": answer})


def read_answer(raw: bytes) -> Answer:
    """What an answer says. Raises IrisError for what is none, or is of a newer format."""
    try:
        document = json.loads(raw)
        if document["v"] != FORMAT:
            raise IrisError(f"the answer has format {document['v']!r}, not {FORMAT}")
        if document["ok"]:
            return {**document["result"]}
        return convert(document["error"], prepared(Refusal))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise IrisError("the answer to a request can't be read") from error


def _text(document: Mapping[str, Any]) -> bytes:
    """ASCII, in one line that ends."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
