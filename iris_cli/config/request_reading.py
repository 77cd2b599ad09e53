"""Parse requests from inside tasks. The text of a request is untrusted.

A request to submit a job has the fields of a job file, except fields that read the operator's files or environment.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from iris_cli.config import reading
from iris_cli.config.job_file import job_request
from iris_cli.config.reading import Section, Setting
from iris_cli.config.yaml_source import Node, Report
from iris_cli.core import JobId, JobRequest, TaskId, Workspace, clip, count, parse_job_id, parse_task_id
from iris_cli.core.messages import requests
from iris_cli.core.messages.requests import Request
from iris_cli.core.model.array import MAX_INDEXES, check_line
from iris_cli.core.model.job_fields import JOB_FIELDS
from iris_cli.core.text import did_you_mean
from iris_cli.errors import UsageError

MAX_DEPTH = 8
MAX_NODES = 20_000
MAX_REASON = 200
MAX_METADATA_ENTRIES = 32
MAX_FILES = 200_000
_MAX_SIZE = 1 << 40
_MAX_NAME = 255
MAX_METADATA_LENGTH = 256


def read_request(raw: bytes) -> Request:
    """Parse a request of a task. Raises UsageError with the first problem."""
    if len(raw) > requests.MAX_REQUEST_BYTES:
        raise UsageError(
            f"a request takes at most {requests.MAX_REQUEST_BYTES} bytes", hint="put the data into a file"
        )
    report = Report(Path("request"))
    try:
        root = _NodeBuilder().node(_parse_json(raw), 1)
        request = Setting(root, "", report).read(_request)
    except RecursionError:
        raise UsageError(f"the request is nested deeper than {MAX_DEPTH} levels") from None
    if report.problems or request is None:
        raise _refusal(report)
    return request


def _refusal(report: Report) -> UsageError:
    first = report.problems[0]
    more = f" (and {count(len(report.problems) - 1, 'more problem')})" if len(report.problems) > 1 else ""
    where = f"{first.path}: " if first.path else ""
    return UsageError(f"{where}{first.message}{more}", hint=first.hint)


# From text to nodes


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UsageError("the request has the same key twice")
    return found


def _parse_json(raw: bytes) -> Any:
    try:
        return json.loads(
            raw.decode("utf-8"), object_pairs_hook=_reject_duplicates, parse_constant=_reject_constant
        )
    except UsageError:
        raise
    except UnicodeDecodeError:
        raise UsageError("the request is not UTF-8 text") from None
    except ValueError:  # not JSON, or a number with thousands of digits
        raise UsageError("the request is not JSON") from None


def _reject_constant(word: str) -> Any:
    raise UsageError(f"{word} is not JSON")


class _NodeBuilder:
    """Converts JSON values to nodes, and checks the limits."""

    def __init__(self) -> None:
        self._count = 0

    def node(self, value: Any, depth: int) -> Node:
        self._count += 1
        if depth > MAX_DEPTH:
            raise UsageError(f"the request is nested deeper than {MAX_DEPTH} levels")
        if self._count > MAX_NODES:
            raise UsageError(f"the request has more than {MAX_NODES} values")
        if isinstance(value, dict):
            return Node(1, {_valid_text(key): self.node(each, depth + 1) for key, each in value.items()})
        if isinstance(value, list):
            return Node(1, tuple(self.node(each, depth + 1) for each in value))
        if isinstance(value, str):
            return Node(1, _valid_text(value), value)
        if isinstance(value, bool) or value is None:
            return Node(1, value, "" if value is None else str(value).lower())
        return Node(1, value, repr(value))


def _valid_text(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise UsageError("the request has a lone surrogate")
    return text


# From nodes to requests


def _request(setting: Setting) -> Request:
    if not isinstance(setting.node.value, dict):
        raise UsageError('a request is a JSON object, such as {"v": 1, "op": "status"}')
    with reading.section(setting) as entry:
        entry.require("v", reading.integer(requests.FORMAT, requests.FORMAT), requests.FORMAT)
        op = entry.require("op", reading.word_of(list(requests.OPS)), "")
        if not op:
            raise UsageError("op is missing")
        return _READERS[op](entry)


_job_id = reading.parsed(parse_job_id)


def _text_up_to(limit: int) -> Callable[[Setting], str]:
    def read(setting: Setting) -> str:
        found = reading.scalar_text(setting)
        if len(found) > limit:
            raise UsageError(f"takes at most {limit} characters")
        return found

    return read


def _metadata(setting: Setting) -> Mapping[str, str]:
    found = reading.mapping_of(reading.scalar_text)(setting)
    if len(found) > MAX_METADATA_ENTRIES or any(
        len(text) > MAX_METADATA_LENGTH for text in (*found, *found.values())
    ):
        raise UsageError(
            f"takes at most {MAX_METADATA_ENTRIES} entries, each of at most {MAX_METADATA_LENGTH} characters"
        )
    return found


def _job(setting: Setting) -> JobRequest:
    """Parse a job in the format of a job file. Unlike in a job file, `setup: ""` disables the set-up of the parent."""
    known, entries = {}, setting.entries()
    for key, found in entries.items():
        if key in FIELDS:
            known[key] = found.node
        elif key in _REQUEST_FIELDS:
            continue
        elif key in _REJECTED_FIELDS:
            found.problem("not available inside a task", _REJECTED_FIELDS[key])
        else:
            found.problem("unknown key", did_you_mean(clip(key), FIELDS))
    if "secrets" in known:
        setting.child("secrets").read(reading.list_of(_reject_secret_file))
    no_setup = "setup" in known and known["setup"].value == ""
    if no_setup:
        del known["setup"]
    extra: dict[str, Any] = {
        name: entries[name].read(read)
        for name, read in _REQUEST_FIELDS.items()
        if name in entries and entries[name].node.value is not None
    }
    request = job_request(replace(setting, node=replace(setting.node, value=known)))
    return replace(request, **(extra | ({"setup": ""} if no_setup else {})))


def _reject_secret_file(setting: Setting) -> None:
    """Reject a secret from a file, because iris would read the file on the operator's machine."""
    if "=" in reading.scalar_text(setting):
        raise UsageError("write only the name of a secret")


def _lines(setting: Setting) -> tuple[str, ...]:
    found = reading.list_of(_line_text)(setting)
    if not 0 < len(found) <= MAX_INDEXES:
        raise UsageError(f"{len(found)} lines; a job has 1 to {MAX_INDEXES}")
    return found


def _line_text(setting: Setting) -> str:
    line = reading.scalar_text(setting)
    check_line("a line", line.encode())
    return line


def _workspace(setting: Setting) -> Workspace | None:
    """Parse the description of a workspace that was packed inside the task. The cycle fetches the workspace itself."""
    with reading.section(setting) as entry:
        found = entry.require("hash", _sha256, "")
        size = entry.require("size", reading.integer(0, _MAX_SIZE), 0)
        files = entry.get("files", reading.integer(0, MAX_FILES), 0)
        name = entry.get("name", _text_up_to(_MAX_NAME), "")
        return Workspace(hash=found, size=size, files=files, name=name) if found else None


_sha256 = reading.matching_text(re.compile("[0-9a-f]{64}"), "a SHA-256", "64 hexadecimal digits")

_REQUEST_FIELDS: Mapping[str, Callable[[Setting], Any]] = {
    "each_line": _lines,
    "workspace": _workspace,
    "inherit_constraints": reading.boolean,
}
"""Readers of fields that job files do not have, and of `each_line`, which has lines instead of a path."""
_REJECTED_FIELDS = {row.file_key: row.not_inside for row in JOB_FIELDS if row.not_inside}
"""Fields that would read files of the operator's machine, and hints for their users. Requests must not have them."""
FIELDS = frozenset(row.file_key for row in JOB_FIELDS) - _REQUEST_FIELDS.keys() - _REJECTED_FIELDS.keys()
"""The fields of a job file that a task may use."""


_endpoint_name = reading.matching_text(
    reading.NAME, "the name of an endpoint", "use letters, digits, '.', '_' and '-'"
)

_READERS: Mapping[str, Callable[[Section], Request]] = {
    "submit": lambda entry: requests.Submit(job=entry.require("job", _job, JobRequest())),
    "cancel": lambda entry: requests.Cancel(
        job=entry.require("job", _job_id, JobId("")), reason=entry.get("reason", _text_up_to(MAX_REASON), "")
    ),
    "status": lambda entry: requests.Status(job=entry.get("job", _job_id)),
    "tasks": lambda entry: requests.Tasks(job=entry.get("job", _job_id)),
    "wait": lambda entry: requests.Wait(job=entry.require("job", _job_id, JobId(""))),
    "logs": lambda entry: requests.Logs(
        task=entry.require("task", reading.parsed(parse_task_id), TaskId(JobId(""), 0)),
        stream=entry.get("stream", reading.word_of(("out", "err")), "out"),
        offset=entry.get("offset", reading.integer(-(1 << 50), 1 << 50), 0),
        limit=entry.get("limit", reading.integer(0, requests.MAX_LOG_PIECE), requests.MAX_LOG_PIECE),
        attempt=entry.get("attempt", reading.integer(0)),
    ),
    "endpoints": lambda entry: requests.Endpoints(job=entry.get("job", _job_id)),
    "register_endpoint": lambda entry: requests.RegisterEndpoint(
        name=entry.require("name", _endpoint_name, ""),
        port=entry.require("port", reading.integer(1, 65535), 0),
        metadata=entry.get("metadata", _metadata, {}),
    ),
    "remove_endpoint": lambda entry: requests.RemoveEndpoint(name=entry.require("name", _endpoint_name, "")),
}
