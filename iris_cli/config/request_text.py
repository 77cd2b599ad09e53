"""Encode and decode requests and answers as JSON. This module is fast to import."""

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace

from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.messages.requests import FORMAT, MAX_REQUEST_BYTES, Answer, Refusal, Request, Submit
from iris_cli.core.model.job import JobRequest
from iris_cli.core.model.job_fields import JOB_FIELDS, Kind
from iris_cli.decoding import prepare_type
from iris_cli.errors import IrisError, UsageError


def write_request(request: Request) -> bytes:
    """Encode a request for a file of the outbox. Raises UsageError if the request is too large."""
    document: dict[str, Any] = {"v": FORMAT, "op": request.__struct_config__.tag}
    if isinstance(request, Submit):
        document["job"] = _job_document(request.job)
    else:
        fields = {name: getattr(request, name) for name in request.__struct_fields__}
        document |= {name: _plain_value(value) for name, value in fields.items() if value is not None}
    raw = _json_line(document)
    if len(raw) > MAX_REQUEST_BYTES:
        raise UsageError(
            f"the request takes {len(raw)} bytes, more than {MAX_REQUEST_BYTES}",
            hint="put the data into a file",
        )
    return raw


def digest_of(job: JobRequest) -> str:
    """Return a digest of a job without its name. Equal jobs have equal digests.

    Fields that are not set do not change the digest. So a new field in a later release does not change old digests.
    """
    from hashlib import sha256

    text = json.dumps(_job_document(replace(job, name=None)), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("ascii")).hexdigest()[:32]


def _job_document(request: JobRequest) -> dict[str, Any]:
    """Return the request as the fields of a job file."""
    fields = ((row, getattr(request, row.name)) for row in JOB_FIELDS if not row.into)
    return {
        row.file_key: _WRITERS.get(row.kind, _plain_value)(value)
        for row, value in fields
        if value is not None
    }


def _plain_value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain_value(each) for key, each in value.items()}
    if isinstance(value, list) or type(value) is tuple:
        return [_plain_value(each) for each in value]
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
    if isinstance(answer, Refusal):
        return _json_line({"v": FORMAT, "ok": False, "error": to_builtins(answer)})
    return _json_line({"v": FORMAT, "ok": True, "result": answer})


def read_answer(raw: bytes) -> Answer:
    """Decode an answer. Raises IrisError if it is malformed or has a newer format."""
    try:
        document = json.loads(raw)
        if document["v"] != FORMAT:
            raise IrisError(f"the answer has format {document['v']!r}, not {FORMAT}")
        if document["ok"]:
            return {**document["result"]}
        return convert(document["error"], prepare_type(Refusal))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise IrisError("the answer to a request can't be read") from error


def _json_line(document: Mapping[str, Any]) -> bytes:
    """Return the document as one line of JSON in ASCII, with a newline."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
