"""Logs of other tasks, read from inside a task: whole, once, through retries, and no longer than is asked for."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from iris_cli.client import JobState, LogLine
from iris_cli.core.messages.requests import Answer, Logs, Refusal, Request, Status
from iris_cli.errors import NotFoundError
from tests.client.operator_thread import OperatorThread
from tests.client.test_outbox import JOB, PATIENCE, TASK, client_of, task_dir, waiting

__all__ = ["task_dir"]


class Told:
    """A job whose task writes, is retried and ends: one step each time that its status is asked for."""

    def __init__(self, *steps: tuple[int, str, str, bytes]) -> None:
        self.steps = list(steps)
        self.files: dict[int, bytes] = {}
        self.now = (0, "RUNNING", "RUNNING", b"")

    def __call__(self, request: Request) -> Answer:
        if isinstance(request, Logs):
            data = self.files.get(request.attempt or 0, b"") if request.stream == "out" else b""
            start = request.offset if request.offset >= 0 else max(0, len(data) + request.offset)
            piece = data[start : start + request.limit]
            return {"offset": start, "size": len(data), "data": base64.b64encode(piece).decode()}
        if self.steps:
            self.now = self.steps.pop(0)
        attempt, job, task, written = self.now
        self.files[attempt] = self.files.get(attempt, b"") + written
        self.now = (*self.now[:3], b"")
        return {
            "job": {**JOB, "state": job},
            "tasks": [{**TASK, "state": task, "attempt": attempt if attempt >= 0 else None}],
        }


def test_logs_are_streamed_through_retries_whole_and_once(task_dir: Path) -> None:
    big = b"".join(b"%d\n" % number for number in range(60_000))
    told = Told(
        (-1, "PENDING", "PENDING", b""),
        (0, "RUNNING", "RUNNING", b"one\ntw"),
        (0, "RUNNING", "RUNNING", b"o\nunfinished"),
        (1, "RUNNING", "RUNNING", big),
        (1, "SUCCEEDED", "SUCCEEDED", b"last"),
    )
    lines: list[LogLine] = []
    with OperatorThread(task_dir, told):
        job = client_of(task_dir).job("train/eval")
        assert job.wait(stream_logs_from=0, on_line=lines.append) is JobState.SUCCEEDED
    assert [line.text for line in lines if line.attempt == 0] == ["one", "two", "unfinished"]
    assert [line.text for line in lines if line.attempt == 1] == [*map(str, range(60_000)), "last"]
    assert waiting(task_dir) == []
    assert list((task_dir / "inbox").iterdir()) == []


def test_lines_of_a_retry_come_while_it_runs(task_dir: Path) -> None:
    told = Told((0, "RUNNING", "RUNNING", b"one\n"), (1, "RUNNING", "RUNNING", b"two\n"))
    lines: list[str] = []

    def take(line: LogLine) -> None:
        lines.append(line.text)
        if line.text == "two":
            told.steps.append((1, "SUCCEEDED", "SUCCEEDED", b""))

    with OperatorThread(task_dir, told):
        assert client_of(task_dir).job("train/eval").wait(PATIENCE, 0, take) is JobState.SUCCEEDED
    assert lines == ["one", "two"]


def test_the_time_is_over_while_streaming(task_dir: Path) -> None:
    with pytest.raises(TimeoutError):
        client_of(task_dir).job("train/eval").wait(timeout=0.05, stream_logs_from="all")
    told = Told((0, "RUNNING", "RUNNING", b"one\n"))
    lines: list[LogLine] = []
    with OperatorThread(task_dir, told), pytest.raises(TimeoutError):
        client_of(task_dir).job("train/eval").wait(2.0, "all", lines.append)
    assert [line.text for line in lines] in (["one"], [])  # a slow machine may not get that far
    assert waiting(task_dir) == []


@pytest.mark.parametrize("tail", [None, 0, 3, 70_000, 10**6])
def test_the_last_lines_of_a_log(tail: int | None, task_dir: Path) -> None:
    texts = [f"line {number}" for number in range(80_000)]
    told = Told((0, "RUNNING", "RUNNING", "\n".join(texts).encode()))
    with OperatorThread(task_dir, told):
        found = client_of(task_dir).task_logs("train/eval/task-0", tail=tail)
    assert [line.text for line in found] == (texts if tail is None else texts[max(0, 80_000 - tail) :])


def test_the_logs_of_a_job_ask_for_its_status_once(task_dir: Path) -> None:
    with OperatorThread(task_dir, Told((3, "RUNNING", "RUNNING", b"one\n"))) as operator:
        (line,) = client_of(task_dir).logs("train/eval", streams="out")
    assert (line.attempt, line.text) == (3, "one")
    assert [type(request) for request in operator.asked] == [Status, Logs]


def test_the_logs_of_an_attempt_are_those_of_the_tasks_that_have_it(task_dir: Path) -> None:
    tasks = [{**TASK, "id": f"train/eval/task-{index}", "attempt": index} for index in range(2)]

    def decide(request: Request) -> Answer:
        if not isinstance(request, Logs):
            return {"job": JOB, "tasks": tasks}
        if request.attempt not in range(request.task.index + 1):
            return Refusal(kind="not_found", message=f"{request.task} has no attempt {request.attempt} yet")
        return {"offset": 0, "size": 2, "data": base64.b64encode(b"a\n").decode()}

    with OperatorThread(task_dir, decide):
        (line,) = client_of(task_dir).logs("train/eval", attempt=1, streams="out")
        assert line.task == "train/eval/task-1"
        with pytest.raises(NotFoundError, match="has no attempt 2"):
            client_of(task_dir).logs("train/eval", attempt=2)


def test_a_worker_that_is_silent_for_a_while_loses_no_lines(task_dir: Path) -> None:
    told = Told((0, "SUCCEEDED", "SUCCEEDED", b"one\ntwo\n"))
    silent = iter([True] * 6)

    def decide(request: Request) -> Answer:
        if isinstance(request, Logs) and next(silent, False):
            return Refusal(kind="unreachable", message="no answer from worker w")
        return told(request)

    lines: list[LogLine] = []
    with OperatorThread(task_dir, decide):
        client_of(task_dir).job("train/eval").wait(PATIENCE, 0, lines.append)
    assert [line.text for line in lines] == ["one", "two"]


def test_logs_that_are_gone_end_the_stream(task_dir: Path) -> None:
    told = Told((0, "SUCCEEDED", "SUCCEEDED", b""))
    gone = Refusal(kind="not_found", message="it is no longer there")
    with OperatorThread(task_dir, lambda request: gone if isinstance(request, Logs) else told(request)):
        state = client_of(task_dir).job("train/eval").wait(PATIENCE, "all", lambda _: None)
    assert state is JobState.SUCCEEDED


def test_the_logs_of_a_task_that_is_not_there_are_not_found(task_dir: Path) -> None:
    told = Told((0, "RUNNING", "RUNNING", b""))
    with OperatorThread(task_dir, told), pytest.raises(NotFoundError):
        client_of(task_dir).task_logs("train/eval/task-9")


def test_the_logs_of_a_task_that_never_ran_are_empty(task_dir: Path) -> None:
    with OperatorThread(task_dir, Told((-1, "PENDING", "PENDING", b""))):
        assert client_of(task_dir).task_logs("train/eval/task-0") == []
