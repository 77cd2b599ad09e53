"""Identifiers: one type for each thing that has a name, and the only place that parses or prints them."""

from __future__ import annotations

import re
from typing import NamedTuple, NewType

from iris_cli.errors import UsageError

JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)
Token = NewType("Token", str)
"""The launch token of one attempt: 128 random bits, 32 hexadecimal digits."""
RequestId = NewType("RequestId", str)
"""What a task asked for from inside, by the name of the file in its outbox."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_RESERVED = re.compile(r"(task|attempt)-\d+")
_TASK = re.compile(r"(?P<job>.+)/task-(?P<index>0|[1-9]\d{0,8})")
_ATTEMPT = re.compile(r"(?P<task>.+)/attempt-(?P<number>0|[1-9]\d{0,8})")
_TOKEN = re.compile(r"[0-9a-f]{32}")
_REQUEST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class TaskId(NamedTuple):
    """One replica of a job. Sorts by index, not by text: task-2 comes before task-10."""

    job: JobId
    index: int  # type: ignore[assignment]  # hides tuple.index, which has no meaning for an id

    def __str__(self) -> str:
        return f"{self.job}/task-{self.index}"


class AttemptId(NamedTuple):
    """One try at a task; `number` counts from 0 and is never reused."""

    task: TaskId
    number: int

    def __str__(self) -> str:
        return f"{self.task}/attempt-{self.number}"


def is_name(text: str) -> bool:
    """Whether `text` may name a worker, a slice, a taint or one part of a job id."""
    return _NAME.fullmatch(text) is not None


def parse_job_id(text: str) -> JobId:
    """Check a job id, `name` or `parent/child`. Raises UsageError."""
    if _NAME.fullmatch(text) and not text.startswith(("task-", "attempt-")):
        return JobId(text)  # as nearly all are
    for part in text.split("/"):
        if not is_name(part):
            raise UsageError(
                f"{clip(text)!r} is not a job name",
                hint="use 1 to 63 letters, digits, '.', '_' and '-', beginning with a letter or a digit",
            )
        if _RESERVED.fullmatch(part):
            raise UsageError(
                f"job name {clip(text)!r} would be mistaken for a task or an attempt",
                hint="choose another name",
            )
    return JobId(text)


def parse_worker_id(text: str) -> WorkerId:
    """Check a worker id. Raises UsageError."""
    if not is_name(text):
        raise UsageError(
            f"{clip(text)!r} is not a worker id",
            hint="use 1 to 63 letters, digits, '.', '_' and '-', beginning with a letter or a digit",
        )
    return WorkerId(text)


def parse_task_id(text: str) -> TaskId:
    """Read `{job}/task-{index}`. Raises UsageError."""
    match = _TASK.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{clip(text)!r} is not a task id", hint="tasks are named JOB/task-INDEX, such as train/task-0"
        )
    return TaskId(parse_job_id(match["job"]), int(match["index"]))


def parse_attempt_id(text: str) -> AttemptId:
    """Read `{task}/attempt-{n}`. Raises UsageError."""
    match = _ATTEMPT.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{clip(text)!r} is not an attempt id", hint="attempts are named JOB/task-INDEX/attempt-NUMBER"
        )
    return AttemptId(parse_task_id(match["task"]), int(match["number"]))


def parse_token(text: str) -> Token:
    """Check a launch token. Raises ValueError."""
    if _TOKEN.fullmatch(text) is None:
        raise ValueError("a launch token is 32 hexadecimal digits")
    return Token(text)


def is_request_id(text: str) -> bool:
    """Whether a file of that name in an outbox is a request. Those that are being written begin with a dot."""
    return _REQUEST.fullmatch(text) is not None


def parse_request_id(text: str) -> RequestId:
    """Check the id of a request. Raises ValueError."""
    if not is_request_id(text):
        raise ValueError("a request is named by 1 to 64 letters, digits, '.', '_' and '-', no '.' first")
    return RequestId(text)


def parent_of(job: JobId) -> JobId | None:
    """The id of the job that a child job belongs to, or None for a root job."""
    head, slash, _ = job.rpartition("/")
    return JobId(head) if slash else None


def root_of(job: JobId) -> JobId:
    """The outermost ancestor of a job: itself for a root job."""
    return JobId(job.split("/", 1)[0])


def depth_of(job: JobId) -> int:
    """0 for a root job, 1 for its children, and so on."""
    return job.count("/")


def clip(text: str, limit: int = 80) -> str:
    """Text from outside, short enough for an error message."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
