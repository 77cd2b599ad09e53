"""`get_job_info`: what a task reads of itself is what iris wrote, and never a guess."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.client import JobInfo, get_job_info
from iris_cli.client.records import read_job_info
from iris_cli.core.constraints import Constraint, ConstraintOp
from iris_cli.errors import UsageError

LEAST = {
    "IRIS_JOB_ID": "train/eval",
    "IRIS_TASK_ID": "train/eval/task-2",
    "IRIS_TASK_INDEX": "2",
    "IRIS_NUM_TASKS": "4",
    "IRIS_ATTEMPT": "1",
    "IRIS_WORKER_ID": "tpu-a-2",
}


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes this process look like a task with these variables, and no others of iris."""

    def become(**variables: str) -> None:
        for name, value in {**LEAST, **variables}.items():
            monkeypatch.setenv(name, value)

    return become


def test_a_process_that_is_no_task_has_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LEAST:
        monkeypatch.delenv(name, raising=False)
    assert get_job_info() is None
    monkeypatch.setenv("IRIS_JOB_ID", "")
    assert get_job_info() is None


def test_a_task_knows_its_place(inside: Callable[..., None]) -> None:
    inside()
    found = get_job_info()
    assert found == JobInfo(
        job_id=found.job_id if found else None,  # type: ignore[arg-type]  # compared below
        task_id="train/eval/task-2",
        task_index=2,
        num_tasks=4,
        attempt=1,
        worker_id=found.worker_id if found else None,  # type: ignore[arg-type]  # compared below
    )
    assert found is not None
    assert (found.job_id, found.worker_id, found.parent_id) == ("train/eval", "tpu-a-2", "train")


def test_a_rank_of_a_gang_knows_its_peers(inside: Callable[..., None]) -> None:
    inside(
        IRIS_JOB_CONSTRAINTS='[{"key":"pool","op":"EQ","value":1},{"key":"spot","op":"NOT_EXISTS"}]',
        IRIS_WORKER_ATTRIBUTES='{"pool":1,"zone":"us-a","load":0.5}',
        IRIS_TASK_DEFAULT_ENV_JSON='{"HF_HOME":"/mnt"}',
        IRIS_SCALE_GROUP="v4",
        IRIS_HOSTS="10.0.0.1,10.0.0.2",
        IRIS_COORDINATOR_ADDRESS="10.0.0.1:8476",
        IRIS_SLICE="tpu-a",
        IRIS_NUM_SLICES="2",
        IRIS_SLICE_INDEX="1",
        IRIS_WORKDIR="/w/work",
        IRIS_OUTPUT_DIR="/w/output",
        IRIS_TASK_DIR="/w",
        IRIS_ARRAY_INDEX="20",
        IRIS_PORT_HTTP="8080",
    )
    found = get_job_info()
    assert found is not None
    assert found.constraints == (
        Constraint.of("pool", ConstraintOp.EQ, 1),
        Constraint.of("spot", ConstraintOp.NOT_EXISTS),
    )
    assert found.worker_attributes == {"pool": 1, "zone": "us-a", "load": 0.5}
    assert found.default_env == {"HF_HOME": "/mnt"}
    assert (found.scale_group, found.hosts) == ("v4", ("10.0.0.1", "10.0.0.2"))
    assert (found.coordinator_address, found.slice) == ("10.0.0.1:8476", "tpu-a")
    assert (found.num_slices, found.slice_index) == (2, 1)
    assert (found.array_index, found.ports) == (20, {"http": 8080})
    assert (found.workdir, found.output_dir, found.task_dir) == (
        Path("/w/work"),
        Path("/w/output"),
        Path("/w"),
    )


@pytest.mark.parametrize("name", sorted(LEAST.keys() - {"IRIS_JOB_ID"}))
@pytest.mark.parametrize("value", [None, ""])
def test_what_is_missing_is_never_taken_for_another_task(name: str, value: str | None) -> None:
    there = {key: text for key, text in LEAST.items() if key != name} | (
        {} if value is None else {name: value}
    )
    found = read_job_info(there)
    assert (found.task_id, found.task_index) == ("train/eval/task-2", 2)
    assert found.num_tasks > 2


def test_the_id_of_a_task_is_enough() -> None:
    """As in a test, or where a wrapper handed on a few variables."""
    found = read_job_info({"IRIS_JOB_ID": "train", "IRIS_TASK_ID": "train/task-3"})
    assert (found.job_id, found.task_id, found.task_index) == ("train", "train/task-3", 3)
    assert (found.num_tasks, found.attempt, found.worker_id, found.task_dir) == (4, 0, "", None)


@pytest.mark.parametrize("index", [{}, {"IRIS_TASK_INDEX": ""}])
def test_a_missing_task_index_is_an_error(index: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="IRIS_TASK_INDEX is not set"):
        read_job_info({"IRIS_JOB_ID": "train", "IRIS_NUM_TASKS": "4", **index})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("IRIS_JOB_ID", "../etc"),
        ("IRIS_JOB_ID", "train"),  # not the job of its task
        ("IRIS_TASK_ID", "train/eval"),
        ("IRIS_TASK_ID", "train/eval/task-3"),
        ("IRIS_TASK_INDEX", "-1"),
        ("IRIS_TASK_INDEX", "٣"),
        ("IRIS_TASK_INDEX", "2.0"),
        ("IRIS_NUM_TASKS", "2"),
        ("IRIS_NUM_TASKS", "9" * 5000),
        ("IRIS_ATTEMPT", "one"),
        ("IRIS_WORKER_ID", "a b"),
        ("IRIS_JOB_CONSTRAINTS", "[" * 100_000),
        ("IRIS_JOB_CONSTRAINTS", '[{"key":"a","op":"LIKE"}]'),
        ("IRIS_JOB_CONSTRAINTS", "pool=1"),
        ("IRIS_WORKER_ATTRIBUTES", '{"a":NaN}'),
        ("IRIS_WORKER_ATTRIBUTES", '{"a":[]}'),
        ("IRIS_WORKER_ATTRIBUTES", '{"a":true}'),
        ("IRIS_WORKER_ATTRIBUTES", "[" * 100_000),
        ("IRIS_TASK_DEFAULT_ENV_JSON", '["a"]'),
        ("IRIS_TASK_DEFAULT_ENV_JSON", '{"a":1}'),
        ("IRIS_SLICE_INDEX", "x"),
        ("IRIS_PORT_HTTP", "http"),
        ("IRIS_ARRAY_INDEX", "-1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_job_info({**LEAST, name: value})
    assert name in refused.value.message or "IRIS_TASK_I" in refused.value.message
    assert len(refused.value.message) < 500


@given(
    st.dictionaries(st.sampled_from([*LEAST, "IRIS_WORKER_ATTRIBUTES", "IRIS_JOB_CONSTRAINTS"]), st.text())
)
def test_nothing_else_is_ever_raised(variables: dict[str, str]) -> None:
    with suppress(UsageError):
        assert read_job_info({**LEAST, **variables}).task_index < 10**9
