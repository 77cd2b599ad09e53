"""Names are few and plain; whatever else comes from outside is refused in one line."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core.ids import (
    AttemptId,
    JobId,
    TaskId,
    depth_of,
    parent_of,
    parse_attempt_id,
    parse_job_id,
    parse_request_id,
    parse_task_id,
    parse_token,
    parse_worker_id,
    root_of,
)
from iris_cli.errors import UsageError

HOSTILE = [
    "",
    " ",
    "a b",
    "a\0",
    "a\n",
    "é",
    "\ud800",
    "-a",
    ".a",
    "_a",
    "a$(id)",
    "a;b",
    "a'b",
    "../a",
    "x" * 64,
]


@pytest.mark.parametrize(
    "name", ["a", "A9", "0", "train", "a.b_c-d", "x" * 63, "task", "task-x", "attempt", "tasks-1"]
)
def test_good_names_are_names_of_jobs_and_workers(name: str) -> None:
    assert parse_job_id(name) == name
    assert parse_worker_id(name) == name


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_names_are_refused_in_one_short_line(name: str) -> None:
    for parse in (parse_job_id, parse_worker_id):
        with pytest.raises(UsageError) as refused:
            parse(name)
        assert "\n" not in refused.value.message
        assert len(refused.value.message) < 200
        assert "1 to 63 letters" in refused.value.hint


@pytest.mark.parametrize("name", ["task-0", "task-007", "attempt-3", "train/task-0", "task-1/child"])
def test_names_that_would_be_mistaken_for_tasks_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="would be mistaken for a task or an attempt"):
        parse_job_id(name)


@pytest.mark.parametrize("name", ["a/", "/a", "a//b", "a/b/"])
def test_every_part_of_a_child_has_a_name(name: str) -> None:
    with pytest.raises(UsageError):
        parse_job_id(name)


def test_the_name_of_a_child_tells_its_ancestors() -> None:
    child = parse_job_id("a/b/c")
    assert (parent_of(child), root_of(child), depth_of(child)) == ("a/b", "a", 2)
    assert (parent_of(JobId("a")), root_of(JobId("a")), depth_of(JobId("a"))) == (None, "a", 0)


def test_tasks_sort_by_index_and_not_by_text() -> None:
    train = JobId("train")
    assert sorted([TaskId(train, 10), TaskId(train, 2)]) == [TaskId(train, 2), TaskId(train, 10)]
    assert str(AttemptId(TaskId(train, 10), 3)) == "train/task-10/attempt-3"


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,10}", fullmatch=True).filter(
    lambda name: not name.startswith(("task-", "attempt-"))
)


@given(st.lists(names, min_size=1, max_size=4).map("/".join), st.integers(0, 10**8), st.integers(0, 10**8))
def test_what_is_printed_is_read_again(job: str, index: int, number: int) -> None:
    attempt = AttemptId(TaskId(JobId(job), index), number)
    assert parse_attempt_id(str(attempt)) == attempt
    assert parse_task_id(str(attempt.task)) == attempt.task


@pytest.mark.parametrize(
    "text",
    ["train", "train/task-", "train/task-01", "train/task--1", "train/task-1 ", "/task-1", "train/task-٣"],
)
def test_what_is_no_task_id(text: str) -> None:
    with pytest.raises(UsageError):
        parse_task_id(text)


@pytest.mark.parametrize("text", ["train/task-0", "train/task-0/attempt-00", "train/attempt-0", "attempt-0"])
def test_what_is_no_attempt_id(text: str) -> None:
    with pytest.raises(UsageError):
        parse_attempt_id(text)


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 33, "G" * 32, "A" * 32, "0" * 32 + "\n"])
def test_a_token_is_32_hexadecimal_digits(text: str) -> None:
    assert parse_token("0123456789abcdef" * 2)
    with pytest.raises(ValueError, match="32 hexadecimal digits"):
        parse_token(text)


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge])
def test_tasks_and_attempts_sort_by_their_numbers(compare: Callable[[Any, Any], bool]) -> None:
    two, ten = (TaskId(JobId("a"), index) for index in (2, 10))
    assert compare(two, ten) is compare(2, 10)
    assert compare(AttemptId(ten, 0), AttemptId(two, 5)) is compare(10, 2)
    assert compare(AttemptId(two, 10), AttemptId(two, 9)) is compare(10, 9)


@pytest.mark.parametrize("text", ["", ".a", "a/b", "a" * 65, "a\n"])
def test_what_is_no_name_of_a_request(text: str) -> None:
    assert parse_request_id("_a.B-1") == "_a.B-1"
    with pytest.raises(ValueError, match="a request is named by"):
        parse_request_id(text)


@given(st.text())
def test_any_text_is_an_id_or_refused(text: str) -> None:
    for parse in (parse_job_id, parse_worker_id, parse_task_id, parse_attempt_id):
        with suppress(UsageError):
            assert str(parse(text)) == text
