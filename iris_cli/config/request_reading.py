"""Parse requests from inside tasks. Their text is untrusted.

A task may request whatever a job file may contain, except access to the operator's machine: no file there is read, and
no variable of the operator's environment is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from iris_cli.config.job_file import job_request
from iris_cli.config.reading import (
    Place,
    Section,
    boolean,
    integer,
    list_of,
    mapping_of,
    matching,
    section,
    word_of,
    written,
)
from iris_cli.config.yaml_source import Node, Report
from iris_cli.core import JobId, JobRequest, TaskId, Workspace, clip, count, parse_job_id, parse_task_id
from iris_cli.core.messages.requests import (
    FORMAT,
    MAX_LOG_PIECE,
    MOST_BYTES,
    OPS,
    Cancel,
    Endpoints,
    Logs,
    RegisterEndpoint,
    RemoveEndpoint,
    Request,
    Status,
    Submit,
    Tasks,
    Wait,
)
from iris_cli.core.model.array import MAX_INDEXES
from iris_cli.core.model.job_fields import JOB_FIELDS
from iris_cli.core.text import did_you_mean
from iris_cli.errors import UsageError

DEEPEST = 8
MOST_NODES = 20_000
LONGEST_REASON = 200
MOST_METADATA = 32
MOST_FILES = 200_000
_MOST_SIZE = 1 << 40
_LONGEST_NAME = 255
LONGEST_METADATA = 256

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def read_request(raw: bytes) -> Request:
    """Parse a request of a task. Raises UsageError with the first problem for invalid text or values."""
    if len(raw) > MOST_BYTES:
        raise UsageError(f"a request takes at most {MOST_BYTES} bytes", hint="put the data into a file")
    report = Report(Path("request"))
    try:
        root = _Nodes().node(_parsed(raw), 1)
        request = Place(root, "", report).read(_request)
    except RecursionError:
        raise UsageError(f"the request is nested deeper than {DEEPEST} levels") from None
    if report.problems or request is None:
        raise _refusal(report)
    return request


def _refusal(report: Report) -> UsageError:
    first = report.problems[0]
    more = f" (and {count(len(report.problems) - 1, 'more problem')})" if len(report.problems) > 1 else ""
    where = f"{first.path}: " if first.path else ""
    return UsageError(f"{where}{first.message}{more}", hint=first.hint)


# From text to nodes


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UsageError("the request has the same key twice")
    return found


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except UsageError:
        raise
    except UnicodeDecodeError:
        raise UsageError("the request is not UTF-8 text") from None
    except ValueError:  # also raised for a number with thousands of digits
        raise UsageError("the request is not JSON") from None


def _no_constant(word: str) -> Any:
    raise UsageError(f"{word} is not JSON")


class _Nodes:
    """Converts JSON values to nodes and counts them."""

    def __init__(self) -> None:
        self._count = 0

    def node(self, value: Any, depth: int) -> Node:
        self._count += 1
        if depth > DEEPEST:
            raise UsageError(f"the request is nested deeper than {DEEPEST} levels")
        if self._count > MOST_NODES:
            raise UsageError(f"the request has more than {MOST_NODES} values")
        if isinstance(value, dict):
            return Node(1, {_checked(key): self.node(each, depth + 1) for key, each in value.items()})
        if isinstance(value, list):
            return Node(1, tuple(self.node(each, depth + 1) for each in value))
        if isinstance(value, str):
            return Node(1, _checked(value), value)
        if isinstance(value, bool) or value is None:
            return Node(1, value, "" if value is None else str(value).lower())
        return Node(1, value, repr(value))


def _checked(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise UsageError("the request has a lone surrogate")
    return text


# From nodes to requests


def _request(place: Place) -> Request:
    if not isinstance(place.node.value, dict):
        raise UsageError('a request is a JSON object, such as {"v": 1, "op": "status"}')
    with section(place) as entry:
        entry.need("v", integer(FORMAT, FORMAT), FORMAT)
        op = entry.need("op", word_of(list(OPS)), "")
        if not op:
            raise UsageError("op is missing")
        return _OF[op](entry)


def _job_id(place: Place) -> JobId:
    return parse_job_id(written(place))


def _task_id(place: Place) -> TaskId:
    return parse_task_id(written(place))


def _short(place: Place) -> str:
    found = written(place)
    if len(found) > LONGEST_REASON:
        raise UsageError(f"takes at most {LONGEST_REASON} characters")
    return found


def _metadata(place: Place) -> Mapping[str, str]:
    found = mapping_of(written)(place)
    if len(found) > MOST_METADATA or any(len(text) > LONGEST_METADATA for text in (*found, *found.values())):
        raise UsageError(
            f"takes at most {MOST_METADATA} entries, each of at most {LONGEST_METADATA} characters"
        )
    return found


def _submit(entry: Section) -> Submit:
    return Submit(job=entry.need("job", _job, JobRequest()))


def _job(place: Place) -> JobRequest:
    """Parse a job as in a job file; `setup: ""` means no set-up for this child job."""
    known, entries = {}, place.entries()
    for key, found in entries.items():
        if key in FIELDS:
            known[key] = found.node
        elif key in _READ_INSIDE:
            continue
        elif key in _ELSEWHERE:
            found.problem("not available inside a task", _ELSEWHERE[key])
        else:
            found.problem("unknown key", did_you_mean(clip(key), FIELDS))
    if "secrets" in known:
        place.down("secrets").read(list_of(_reject_secret_file))
    no_setup = "setup" in known and known["setup"].value == ""
    if no_setup:
        del known["setup"]
    own: dict[str, Any] = {
        name: place.down(name).read(read) for name, read in _READ_INSIDE.items() if _is_given(entries, name)
    }
    request = job_request(replace(place, node=replace(place.node, value=known)))
    return replace(request, **(own | ({"setup": ""} if no_setup else {})))


def _is_given(entries: Mapping[str, Place], name: str) -> bool:
    return name in entries and entries[name].node.value is not None


def _reject_secret_file(place: Place) -> None:
    """Reject a secret from a file: the file would be on the operator's machine."""
    if "=" in written(place):
        raise UsageError("write only the name of a secret")


def _lines(place: Place) -> tuple[str, ...]:
    found = list_of(_line_text)(place)
    if not 0 < len(found) <= MAX_INDEXES:
        raise UsageError(f"{len(found)} lines; a job has 1 to {MAX_INDEXES}")
    return found


def _line_text(place: Place) -> str:
    line = written(place)
    if "\0" in line or "\n" in line:
        raise UsageError("a line has a NUL character or a line break")
    return line


def _workspace(place: Place) -> Workspace | None:
    """Parse the description of a workspace packed inside the task. Its content is fetched separately."""
    with section(place) as entry:
        found = entry.need("hash", _sha256, "")
        size = entry.need("size", integer(0, _MOST_SIZE), 0)
        files, name = entry.get("files", integer(0, MOST_FILES), 0), entry.get("name", _directory_name, "")
        return Workspace(hash=found, size=size, files=files, name=name) if found else None


def _directory_name(place: Place) -> str:
    found = written(place)
    if len(found) > _LONGEST_NAME:
        raise UsageError(f"takes at most {_LONGEST_NAME} characters")
    return found


_sha256 = matching(re.compile("[0-9a-f]{64}"), "a SHA-256", "64 hexadecimal digits")

_READ_INSIDE: Mapping[str, Callable[[Place], Any]] = {
    "each_line": _lines,
    "workspace": _workspace,
    "inherit_constraints": boolean,
}
"""Readers of fields that only child jobs have, and of fields that named files inside the task."""
_ELSEWHERE = {row.file_key: row.not_inside for row in JOB_FIELDS if row.not_inside}
"""Fields that would read files of the operator's machine, and the hint for rejecting them."""
FIELDS = frozenset(row.file_key for row in JOB_FIELDS) - _READ_INSIDE.keys() - _ELSEWHERE.keys()
"""The fields of a job file that a task may use."""


def _logs(entry: Section) -> Logs:
    return Logs(
        task=entry.need("task", _task_id, TaskId(JobId(""), 0)),
        stream=entry.get("stream", word_of(("out", "err")), "out"),
        offset=entry.get("offset", integer(-(1 << 50), 1 << 50), 0),
        limit=entry.get("limit", integer(0, MAX_LOG_PIECE), MAX_LOG_PIECE),
        attempt=entry.get("attempt", integer(0)),
    )


def _register(entry: Section) -> RegisterEndpoint:
    return RegisterEndpoint(
        name=entry.need("name", _endpoint_name, ""),
        port=entry.need("port", integer(1, 65535), 0),
        metadata=entry.get("metadata", _metadata, {}),
    )


_endpoint_name = matching(_NAME, "the name of an endpoint", "use letters, digits, '.', '_' and '-'")

_OF: Mapping[str, Callable[[Section], Request]] = {
    "submit": _submit,
    "cancel": lambda entry: Cancel(
        job=entry.need("job", _job_id, JobId("")), reason=entry.get("reason", _short, "")
    ),
    "status": lambda entry: Status(job=entry.get("job", _job_id)),
    "tasks": lambda entry: Tasks(job=entry.get("job", _job_id)),
    "wait": lambda entry: Wait(job=entry.need("job", _job_id, JobId(""))),
    "logs": _logs,
    "endpoints": lambda entry: Endpoints(job=entry.get("job", _job_id)),
    "register_endpoint": _register,
    "remove_endpoint": lambda entry: RemoveEndpoint(name=entry.need("name", _endpoint_name, "")),
}
