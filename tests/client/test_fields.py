"""Every field that a job can have can be said to the client, and goes out of a task as what it is."""

from __future__ import annotations

from typing import Any

import pytest

from iris_cli.client.fields import JobFields, job_request
from iris_cli.config.request_reading import FIELDS, read_request
from iris_cli.config.request_text import write_request
from iris_cli.core.messages.requests import Submit
from iris_cli.core.model.job import JobRequest

MADE_BY_US = frozenset({"workspace", "lines", "memory_default"})
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
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'env_file'"):
        job_request("true", None, {"env_file": ".env"})
