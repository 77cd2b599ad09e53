"""Every field that a job can have can be said to the client, and goes out of a task as what it is."""

from __future__ import annotations

from typing import Any

import pytest

from iris_cli.client.fields import JobFields, job_request
from iris_cli.config.request_reading import FIELDS, read_request
from iris_cli.config.request_text import write_request
from iris_cli.core.messages.requests import Submit
from iris_cli.core.model.job import JobRequest
from iris_cli.errors import UsageError

MADE_BY_US = frozenset({"workspace", "lines", "memory_default", "max_task_failures_default"})
"""What becomes of `workdir` and `each_line` on the way, and of the defaults of a configuration."""

SAID: dict[str, Any] = {
    "name": "eval",
    "tpu": "v5litepod-16",
    "cpu": 0.5,
    "memory": "3GiB",
    "replicas": 8,
    "slices": 2,
    "prefer": ["pool"],
    "tolerate": ["spot"],
    "group_by": "rack",
    "env": {"A": "ä\n"},
    "secrets": ["HF"],
    "setup": "make",
    "env_preset": "jax",
    "priority": "high",
    "max_retries_failure": 1,
    "max_retries_preemption": 2,
    "max_task_failures": 3,
    "scheduling_timeout": "1m",
    "timeout": "2h",
    "setup_timeout": 1,
    "grace": 0,
    "lease": "1d",
    "silent_after": "45m",
    "replace_lost": "always",
    "labels": {"team": "vision"},
    "after": ["train/prep"],
    "ports": ["http"],
    "signal": "USR1@120",
    "array": "0-9%4",
    "spread": True,
    "keep_going": False,
    "image": "ghcr.io/lab/train:3",
    "force": True,
}


def test_the_client_has_a_name_for_every_field() -> None:
    known = {*JobFields.__annotations__} - {"prefer"} | {"command", "constraints", "inherit_constraints"}
    known |= {"again", "failed", "client", "job_script"}
    assert known == set(JobRequest.__struct_fields__) - MADE_BY_US


def test_what_is_said_inside_a_task_is_what_arrives() -> None:
    assert SAID.keys() | {"gpu"} >= FIELDS & JobFields.__annotations__.keys()
    request = job_request(["python", "x.py"], ["region=us-west4"], SAID)
    assert read_request(write_request(Submit(job=request))) == Submit(job=request)
    gpus = job_request("true", None, {"gpu": 2})
    assert read_request(write_request(Submit(job=gpus))) == Submit(job=gpus)


def test_a_misspelt_keyword_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'replica': did you mean 'replicas'\?"):
        job_request("true", None, {"replica": 2})
    with pytest.raises(TypeError, match=r"'constraint': did you mean 'constraints'\?"):
        job_request("true", None, {"constraint": ["pool"]})
    with pytest.raises(TypeError, match=r"'coscheduling': did you mean 'group_by'\?"):
        job_request("true", None, {"coscheduling": {"group_by": "rack"}})
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'env_file'"):
        job_request("true", None, {"env_file": ".env"})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("cpu", "2", "cpu: must be a number, not '2'"),
        ("cpu", True, "cpu: must be a number, not True"),
        ("replicas", "2", "replicas: must be a whole number, not '2'"),
        ("replicas", True, "replicas: must be a whole number, not True"),
        ("max_retries_failure", 1.5, "max_retries_failure: must be a whole number, not 1.5"),
        ("gpu", 1.5, "gpu: must be a whole number, not 1.5"),
        ("force", "no", "force: must be True or False, not 'no'"),
        ("spread", 1, "spread: must be True or False, not 1"),
        ("name", 3, "name: must be text, not 3"),
        ("tpu", ["v4-8"], r"tpu: must be text, not \['v4-8'\]"),
        ("setup", b"make", "setup: must be text, not b'make'"),
        ("array", 9, "array: must be text, not 9"),
        ("signal", 10, "signal: must be text, not 10"),
        ("group_by", {"group_by": "rack"}, "group_by: must be text, not"),
        ("workdir", b"src", "workdir: must be text, not b'src'"),
        ("workdir", 3, "workdir: .*not int"),
        ("workdir", "", "workdir: must not be blank"),
        ("secrets", "HF", r"secrets: must be a list, not str$"),
        ("prefer", "pool", r"prefer: must be a list, not str$"),
        ("prefer", [3], "prefer: a constraint must be text, not 3"),
        ("each_line", [], "each_line: 0 lines; a job has 1 to"),
        ("each_line", ["a\nb"], "each_line: line 1 has a line break"),
        ("each_line", ["a", "b\0"], "each_line: line 2 has a NUL byte"),
        ("each_line", ["a", "\ud800"], "each_line: .*surrogates not allowed"),
        ("each_line", ["x" * 200_000], "each_line: line 1 has 200000 bytes, more than a variable can hold"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_the_name_of_its_field(
    field: str, value: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        job_request("true", None, {field: value})


def test_a_constraint_of_the_wrong_type_is_refused() -> None:
    cases: list[tuple[Any, str]] = [
        ([3], "a constraint must be text, not 3"),
        ("pool", "must be a list, not str"),
    ]
    for wrong, words in cases:
        with pytest.raises(UsageError, match=f"^constraints: {words}"):
            job_request("true", wrong, {})
