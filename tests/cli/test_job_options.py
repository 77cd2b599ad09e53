"""Every option of `iris launch` says what the field of the same name says in a job file, and wins over it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iris_cli.cli.app import run

CLUSTER = """cluster: {name: lab}
slices:
  - {name: a, type: v4-16, hosts: [h0, h1], region: us-west4}
  - {name: b, type: v4-16, hosts: [h2, h3]}
workers:
  - {id: cpu-0, host: h4, cpu: 64, memory: 512GB, gpu: "h100:8", attributes: {rack: r1}}
"""
CASES: list[tuple[str, list[str]]] = [
    ("tpu: v4-16\nslices: 2", ["--tpu", "v4-16", "--slices", "2"]),
    ("gpu: h100:2", ["--gpu", "h100:2"]),
    ("cpu: 2.5\nmemory: 3GiB", ["--cpu", "2.5", "--memory", "3GiB"]),
    ("replicas: 7", ["--replicas", "7"]),
    ("constraints: [region=us-west4, '!pool']", ["-c", "region=us-west4", "-c", "!pool"]),
    ("prefer: [rack=r1]", ["--prefer", "rack=r1"]),
    ("tolerate: [old]", ["--tolerate", "old"]),
    ("coscheduling: {group_by: rack}\nreplicas: 2", ["--group-by", "rack", "--replicas", "2"]),
    ("env: {A: '1', B: x y}", ["-e", "A=1", "--env", "B=x y"]),
    ("env_file: given.env", ["--env-file", "given.env"]),
    ("secrets: [TOKEN]", ["--secret", "TOKEN"]),
    ("workdir: src", ["--workdir", "src"]),
    ("setup: make", ["--setup", "make"]),
    ("env_preset: torchrun", ["--env-preset", "torchrun"]),
    ("priority: high", ["--priority", "high"]),
    ("max_retries_failure: 3", ["--max-retries-failure", "3"]),
    ("max_retries_preemption: 4", ["--max-retries-preemption", "4"]),
    ("max_task_failures: 1", ["--max-task-failures", "1"]),
    ("scheduling_timeout: 1h", ["--scheduling-timeout", "1h"]),
    ("timeout: 10m\nsignal: USR1@120", ["--timeout", "10m", "--signal", "USR1@120"]),
    ("setup_timeout: 90s", ["--setup-timeout", "90s"]),
    ("grace: 5s", ["--grace", "5s"]),
    ("lease: 1h", ["--lease", "1h"]),
    ("replace_lost: never", ["--replace-lost", "never"]),
    ("labels: {team: nlp}", ["--label", "team=nlp"]),
    ("after: [first]", ["--after", "first"]),
    ("ports: [http, metrics]", ["--ports", "http,metrics"]),
    ("array: 0-9,20%4", ["--array", "0-9,20%4"]),
    ("each_line: given.lines", ["--each-line", "given.lines"]),
    ("tpu: v6e-64\nforce: true", ["--tpu", "v6e-64", "--force"]),
]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("IRIS_CONFIG", "IRIS_STATE_DIR", "IRIS_TASK_DIR", "IRIS_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "given.env").write_text("C=3\n")
    (tmp_path / "given.lines").write_text("a b\nc\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("pass\n")
    assert run(["launch", "--name", "first", "--no-schedule", "--", "true"]) == 0
    return tmp_path


def submitted(directory: Path, *words: str) -> dict[str, Any]:
    """The job that the log has after a launch, without what tells one submission from another."""
    assert run(["launch", "--no-schedule", *words]) == 0, words
    last = json.loads((directory / "state" / "events.jsonl").read_text().splitlines()[-1])
    (event,) = last["events"]
    return {key: value for key, value in event["job"].items() if key not in ("id", "submitted_at")}


@pytest.mark.parametrize(("field", "options"), CASES, ids=[field.partition(":")[0] for field, _ in CASES])
def test_an_option_says_what_the_field_of_a_job_file_says(
    directory: Path, field: str, options: list[str]
) -> None:
    (directory / "field.yaml").write_text(f"command: [echo, hi]\n{field}\n")
    (directory / "plain.yaml").write_text("command: [echo, hi]\n")
    by_file = submitted(directory, "field.yaml")
    assert by_file == submitted(directory, *options, "--", "echo", "hi")
    assert by_file != submitted(directory, "plain.yaml"), "the field changes nothing"


def test_an_option_wins_over_the_file(directory: Path) -> None:
    (directory / "job.yaml").write_text("command: [echo, hi]\nreplicas: 2\npriority: low\n")
    job = submitted(directory, "job.yaml", "--replicas", "3")
    assert (job["replicas"], job["priority"]) == (3, "low")


def test_every_field_of_a_job_file_is_tried() -> None:
    from iris_cli.config.job_file import _READERS

    tried = {line.partition(":")[0] for field, _ in CASES for line in field.splitlines()}
    assert set(_READERS) - tried - {"name"} == set()
