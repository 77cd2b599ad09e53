"""Records that are open: assigned to, and closed again."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from iris_cli.core.cluster import Cluster
from iris_cli.core.dataclass import dataclass
from iris_cli.core.evolve.records import Records, is_open
from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.making import beginner, opener
from iris_cli.core.task import Task, TaskState
from iris_cli.core.worker import Worker

TASK = Task(id=TaskId(JobId("train"), 0))


@dataclass(frozen=True, slots=True)
class Checked:
    text: str = ""

    def __post_init__(self) -> None:
        """Not asked for an object that is only assigned to."""


def test_what_is_changed_is_a_copy_that_stands_in_the_table_and_is_frozen_at_the_end() -> None:
    table, records = {TASK.id: TASK}, Records()
    opened = records.of(table, TASK.id)
    assert [id(table[TASK.id]), id(records.of(table, TASK.id))] == [id(opened)] * 2
    opened.state, opened.failures = TaskState.RUNNING, 2
    assert (TASK.state, TASK.failures) == (TaskState.PENDING, 0)
    assert opened.current is None  # it has what its class has
    assert is_open(opened)
    records.close()
    assert {type(opened)} == {Task}
    assert opened == Task(id=TASK.id, state=TaskState.RUNNING, failures=2)
    with pytest.raises(FrozenInstanceError):
        opened.state = TaskState.FAILED
    assert records.of(table, TASK.id) is not opened


def test_a_new_record_has_its_defaults_and_lacks_what_has_none() -> None:
    records = Records()
    begun = records.new(Task)
    with pytest.raises(AttributeError):
        _ = begun.id
    begun.id = TASK.id
    records.close()
    assert begun == TASK


def test_a_field_that_the_class_does_not_have_cannot_be_assigned_to() -> None:
    opened = Records().copy(TASK)
    with pytest.raises(AttributeError):
        opened.colour = "red"


def test_the_claims_of_an_open_worker_are_its_own() -> None:
    worker = Worker(id=WorkerId("w0"))
    cluster, records = Cluster(workers={worker.id: worker}), Records()
    records.worker(cluster, worker.id).claims["an attempt"] = "a claim"
    assert not worker.claims
    assert records.worker(cluster, worker.id).claims == {"an attempt": "a claim"}


@pytest.mark.parametrize("make", [opener, beginner])
def test_a_class_that_checks_what_its_objects_are_made_of_has_no_open_ones(make: Any) -> None:
    with pytest.raises(TypeError, match="more than what is assigned"):
        make(Checked)
