"""Requests from inside a task: what may be said comes through unchanged, whatever else is there is refused in words."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from iris_cli.config.request_reading import FIELDS, read_request
from iris_cli.config.request_text import read_answer, write_answer, write_request
from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.ids import JobId, TaskId, is_request_id
from iris_cli.core.messages.requests import (
    OPS,
    Answer,
    Cancel,
    Endpoints,
    Logs,
    Refusal,
    RegisterEndpoint,
    RemoveEndpoint,
    Request,
    Status,
    Submit,
    Tasks,
    Wait,
    refusal_of,
)
from iris_cli.core.model.job import EnvPreset, JobRequest, Priority, ReplaceLost, Workspace
from iris_cli.errors import ExitCode, IrisError, NotFoundError, UsageError

JOB = JobId("train/eval")

EVERYTHING: dict[str, Any] = {
    "name": "eval",
    "command": ("python", "eval.py", "", "two words", "a\nb", "ä"),
    "tpu": "v5litepod-16",
    "cpu": 0.5,
    "memory": 1000,
    "replicas": 8,
    "slices": 2,
    "spread": True,
    "keep_going": False,
    "constraints": tuple(
        map(parse_constraint, ("region=us-west4", '~pool="1"', "tpu-worker-id>=1", "!spot"))
    ),
    "tolerate": ("spot",),
    "group_by": "rack",
    "env": {"A": "", "B": "x=y\n$HOME"},
    "secrets": ("HF_TOKEN",),
    "setup": "pip install .",
    "env_preset": EnvPreset.TORCHRUN,
    "priority": Priority.HIGH,
    "max_retries_failure": 1,
    "max_retries_preemption": 2,
    "max_task_failures": 0,
    "scheduling_timeout": 1.5,
    "timeout": 3600.0,
    "setup_timeout": 60.0,
    "grace": 0.0,
    "lease": 900.0,
    "silent_after": 0.0,
    "replace_lost": ReplaceLost.ALWAYS,
    "labels": {"user": "me"},
    "after": ("train/prep",),
    "image": "ghcr.io/lab/train:3",
    "force": True,
    "each_line": ("first", "", "tab\tä"),
    "workspace": Workspace(hash="0" * 64, size=10, files=2, name="my code"),
}
REQUESTS: list[Request] = [
    Submit(job=JobRequest(**EVERYTHING)),
    Submit(job=JobRequest(command=("true",), constraints=())),
    Submit(job=JobRequest(command=("true",), setup="")),
    Submit(job=JobRequest(command=("true",), gpu="h100:8")),
    Cancel(job=JOB, reason="no longer needed"),
    Status(),
    Status(job=JOB),
    Tasks(job=JOB),
    Wait(job=JOB),
    Logs(task=TaskId(JOB, 3), stream="err", offset=-100, limit=10, attempt=2),
    Endpoints(),
    RegisterEndpoint(name="http", port=8080, metadata={"path": "/metrics"}),
    RemoveEndpoint(name="http"),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_what_is_written_is_read_as_the_same(request_: Request) -> None:
    raw = write_request(request_)
    assert raw.isascii()
    assert raw.count(b"\n") == 1
    assert read_request(raw) == request_


def test_every_kind_of_request_is_among_them() -> None:
    assert {type(each) for each in REQUESTS} == set(OPS.values())


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_text_comes_through(text: str) -> None:
    wanted = Submit(job=JobRequest(command=("echo", text), env={"TEXT": text}))
    assert read_request(write_request(wanted)) == wanted


HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not JSON"),
    "no JSON": (b"submit", "not JSON"),
    "two objects": (b'{"v":1,"op":"status"}{}', "not JSON"),
    "cut off": (b'{"v":1,"op":"sta', "not JSON"),
    "NUL bytes": (b"\0" * 100, "not JSON"),
    "no UTF-8": (b'{"v":1,"op":"\xff"}', "UTF-8"),
    "too large": (b'{"v":1,"op":"status","x":"' + b"x" * 65536 + b'"}', "at most 65536 bytes"),
    "deep lists": (b"[" * 60_000, "nested deeper"),
    "deep objects": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "nested deeper"),
    "nine levels": (b'{"v":1,"op":"status","x":' + b"[" * 9 + b"]" * 9 + b"}", "nested deeper"),
    "many values": (b"[" + b"1," * 25_000 + b"1]", "more than 20000 values"),
    "a list": (b"[]", "a request is a JSON object"),
    "a number": (b"1", "a request is a JSON object"),
    "null": (b"null", "a request is a JSON object"),
    "a key twice": (b'{"v":1,"v":1,"op":"status"}', "the same key twice"),
    "NaN": (b'{"v":NaN,"op":"status"}', "NaN"),
    "Infinity": (b'{"v":1,"op":"submit","job":{"command":["a"],"cpu":Infinity}}', "Infinity"),
    "a number too large for a float": (b'{"v":1,"op":"submit","job":{"command":["a"],"cpu":1e999}}', "cpu"),
    "a number of 5000 digits": (b'{"v":' + b"9" * 5000 + b',"op":"status"}', "not JSON"),
    "half a character": (b'{"v":1,"op":"submit","job":{"command":["\\ud800"]}}', "surrogate"),
    "half a character as a key": (b'{"v":1,"\\ud800":1}', "surrogate"),
    "no version": (b'{"op":"status"}', "'v' is missing"),
    "a newer version": (b'{"v":2,"op":"status"}', "v: must be between 1 and 1"),
    "a version that is true": (b'{"v":true,"op":"status"}', "v: must be a whole number"),
    "no op": (b'{"v":1}', "'op' is missing"),
    "an unknown op": (b'{"v":1,"op":"shutdown"}', "must be submit or cancel"),
    "an op that is a list": (b'{"v":1,"op":["status"]}', "op: must be text"),
    "an unknown key": (b'{"v":1,"op":"status","jbo":"a"}', "jbo: unknown key"),
    "no job": (b'{"v":1,"op":"submit"}', "'job' is missing"),
    "a job that is a text": (b'{"v":1,"op":"submit","job":"true"}', "job: must be a mapping"),
    "a job that is a list": (b'{"v":1,"op":"submit","job":[]}', "job: must be a mapping"),
    "an unknown field": (b'{"v":1,"op":"submit","job":{"comand":["a"]}}', "job.comand: unknown key"),
    "a file of the operator": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"env_file":"/etc/passwd"}}',
        "job.env_file: not available inside a task",
    ),
    "a directory of the operator": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"workdir":"/root"}}',
        "job.workdir: not available inside a task",
    ),
    "lines of a file of the operator": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"each_line":"/etc/shadow"}}',
        "job.each_line: must be a list",
    ),
    "a line with a line break": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"each_line":["a\\nb"]}}',
        "job.each_line[0]: a line has a line break",
    ),
    "no lines at all": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"each_line":[]}}',
        "job.each_line: 0 lines; a job has",
    ),
    "a directory without a hash": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"workspace":{"hash":"../x","size":1}}}',
        "job.workspace.hash: '../x' is not a SHA-256",
    ),
    "a directory of no size": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"workspace":{"hash":"%s","size":-1}}}' % (b"0" * 64),
        "job.workspace.size: must be between",
    ),
    "a command for a shell": (
        b'{"v":1,"op":"submit","job":{"command":"a | b"}}',
        "has a meaning only in a shell",
    ),
    "a NUL in an argument": (b'{"v":1,"op":"submit","job":{"command":["a\\u0000"]}}', "NUL"),
    "an argument that is an object": (
        b'{"v":1,"op":"submit","job":{"command":[{}]}}',
        "command[0]: must be text",
    ),
    "command and script": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"script":"a"}}',
        "a command is already given",
    ),
    "a name with an escape": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"name":"\\u001b[2J"}}',
        r"'\x1b[2J'",
    ),
    "a name with dots": (b'{"v":1,"op":"submit","job":{"command":["a"],"name":"../x"}}', "'../x'"),
    "a name like a task": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"name":"task-0"}}',
        "mistaken for a task",
    ),
    "replicas in words": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"replicas":"many"}}',
        "replicas: must be",
    ),
    "too many replicas": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"replicas":1e30}}',
        "replicas: must be",
    ),
    "a variable of ours": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"env":{"IRIS_X":"1"}}}',
        "set by iris",
    ),
    "a constraint that is an object": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"constraints":[{}]}}',
        "text",
    ),
    "a constraint of nonsense": (
        b'{"v":1,"op":"submit","job":{"command":["a"],"constraints":["=="]}}',
        "constraint",
    ),
    "no job to cancel": (b'{"v":1,"op":"cancel"}', "'job' is missing"),
    "a job id of nonsense": (b'{"v":1,"op":"cancel","job":"a//b"}', "'a//b' is not a job name"),
    "a job id that is a number": (b'{"v":1,"op":"wait","job":{"id":1}}', "job: must be text"),
    "a long reason": (b'{"v":1,"op":"cancel","job":"a","reason":"' + b"x" * 201 + b'"}', "at most 200"),
    "no task": (b'{"v":1,"op":"logs"}', "'task' is missing"),
    "a task that is none": (b'{"v":1,"op":"logs","task":"a/task-x"}', "not a task id"),
    "a stream of the host": (
        b'{"v":1,"op":"logs","task":"a/task-0","stream":"../env"}',
        "must be out or err",
    ),
    "an offset beyond everything": (b'{"v":1,"op":"logs","task":"a/task-0","offset":1e400}', "offset"),
    "a limit below nothing": (b'{"v":1,"op":"logs","task":"a/task-0","limit":-1}', "must be between"),
    "a limit too large": (b'{"v":1,"op":"logs","task":"a/task-0","limit":65537}', "must be between"),
    "no port": (b'{"v":1,"op":"register_endpoint","name":"a"}', "'port' is missing"),
    "port 0": (b'{"v":1,"op":"register_endpoint","name":"a","port":0}', "must be between 1 and 65535"),
    "a port in quotes": (
        b'{"v":1,"op":"register_endpoint","name":"a","port":"80"}',
        "port: must be a whole number",
    ),
    "an endpoint without a name": (
        b'{"v":1,"op":"register_endpoint","name":"","port":1}',
        "name of an endpoint",
    ),
    "an endpoint with a path": (b'{"v":1,"op":"remove_endpoint","name":"../a"}', "name of an endpoint"),
    "metadata in depth": (
        b'{"v":1,"op":"register_endpoint","name":"a","port":1,"metadata":{"a":{}}}',
        "metadata.a: must be text",
    ),
    "much metadata": (
        b'{"v":1,"op":"register_endpoint","name":"a","port":1,"metadata":{'
        + b",".join(b'"k%d":"v"' % number for number in range(33))
        + b"}}",
        "at most 32",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_can_not_be_meant_is_refused_in_printable_words(name: str) -> None:
    raw, words = HOSTILE[name]
    with pytest.raises(UsageError) as error:
        read_request(raw)
    assert words in error.value.message
    assert error.value.message.isprintable()
    assert len(error.value.message) < 500
    answer = refusal_of(error.value)
    assert read_answer(write_answer(answer)) == answer


@given(st.binary(max_size=200))
def test_bytes_are_a_request_or_refused(raw: bytes) -> None:
    with suppress(UsageError):
        read_request(raw)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FIELDS, "x"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(st.sampled_from([*OPS, "x"]), st.dictionaries(st.sampled_from(["job", "task", "name", "port"]), _JSON))
def test_any_values_are_a_request_or_refused(op: str, rest: dict[str, Any]) -> None:
    with suppress(UsageError):
        read_request(json.dumps({"v": 1, "op": op, **rest}).encode())


@pytest.mark.parametrize(("text", "is_id"), [
    ("0001.submit", True), ("a", True), ("_", True), ("x" * 64, True), ("x" * 65, False), ("", False),
    (".tmp", False), ("-rf", False), ("a/b", False), ("a b", False), ("a\n", False), ("ä", False), ("..", False),
])  # fmt: skip
def test_request_ids_are_safe_names_of_files(text: str, is_id: bool) -> None:
    assert is_request_id(text) is is_id


ANSWERS: list[Answer] = [
    {"job": "train/eval", "created": True},
    {},
    Refusal(kind="not_found", message="no such job", hint="look again", exit_code=ExitCode.NOT_FOUND),
    Refusal(kind="refused", message='\x1b[2J"\n'),
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_is_one_line_and_is_read_as_the_same(answer: Answer) -> None:
    raw = write_answer(answer)
    assert raw.count(b"\n") == 1
    assert read_answer(raw) == answer


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"v":1}',
        b'{"v":1,"ok":true}',
        b'{"v":1,"ok":false,"error":{}}',
        b'{"v":2,"ok":true}',
    ],
)
def test_a_malformed_answer_is_rejected(raw: bytes) -> None:
    with pytest.raises(IrisError):
        read_answer(raw)


def test_a_refusal_becomes_the_error_that_it_was() -> None:
    error = refusal_of(NotFoundError("no such job", hint="h")).error()
    assert (type(error), error.message, error.hint) == (NotFoundError, "no such job", "h")
    assert refusal_of(IrisError("too many")).kind == "refused"


def test_what_is_too_large_is_not_written() -> None:
    with pytest.raises(UsageError):
        write_request(Submit(job=JobRequest(command=("a", "x" * 70_000))))


def test_every_field_of_a_job_can_be_asked_for_or_is_named_as_one_that_can_not() -> None:
    elsewhere = {
        "workdir",
        "workspace",
        "each_line",
        "lines",
        "group_by",
        "inherit_constraints",
        "again",
        "failed",
        "client",  # of the terminal of `iris run`
        "job_script",
        "memory_default",
        "max_task_failures_default",
    }
    unknown = {item.name for item in fields(JobRequest)} - FIELDS - elsewhere
    assert not unknown, f"decide whether a task may ask for {unknown}"
