"""Identifiers: one type for each kind of object, and the only module that parses and prints them.

Decoders check ids of jobs, workers, tokens and requests against a pattern. Ids of tasks and attempts are strings with
attributes, such as `index`.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, NewType

from msgspec import Meta

from iris_cli.errors import UsageError

_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_PART = rf"(?!(task|attempt)-[0-9]+(/|$)){_NAME}"
_END = r"$(?!\n)"  # `$` alone also matches before a final newline

JobId = NewType("JobId", Annotated[str, Meta(title="job id", pattern=f"^{_PART}(/{_PART})*{_END}")])
"""The name of a job: `train`, or `train/eval` for a child job."""

WorkerId = NewType("WorkerId", Annotated[str, Meta(title="worker id", pattern=f"^{_NAME}{_END}")])
"""The name of a worker."""

Token = NewType("Token", Annotated[str, Meta(title="token", pattern=f"^[0-9a-f]{{32}}{_END}")])
"""The launch token of one attempt: 128 random bits, 32 hexadecimal digits."""

RequestId = NewType(
    "RequestId",
    Annotated[str, Meta(title="request id", pattern=f"^[A-Za-z0-9_][A-Za-z0-9._-]{{0,63}}{_END}")],
)
"""The id of a request from inside a task. It is the name of the request's file in the attempt's `outbox`."""

if TYPE_CHECKING:
    StoredToken = Token
    StoredWorkerId = WorkerId
else:
    StoredToken = StoredWorkerId = str
"""The types of ids in records. They are not checked, because snapshots have checksums, and a check would take 1 µs."""

_LETTERS_AND_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_NAME_CHARACTERS = _LETTERS_AND_DIGITS + "._-"
_HEX_DIGITS = "0123456789abcdef"
_MAX_NAME = 63
_MAX_REQUEST_ID = 64
_RESERVED = ("task", "attempt")


_new = str.__new__


class _Numbered(str):
    """An id that ends in a number. Ids sort by this number: task-2 comes before task-10."""

    __slots__ = ()

    @property
    def _order(self) -> tuple[str, int]:
        raise NotImplementedError

    def __lt__(self, other: str) -> bool:
        return self._order < other._order if isinstance(other, _Numbered) else NotImplemented

    def __le__(self, other: str) -> bool:
        return self._order <= other._order if isinstance(other, _Numbered) else NotImplemented

    def __gt__(self, other: str) -> bool:
        return self._order > other._order if isinstance(other, _Numbered) else NotImplemented

    def __ge__(self, other: str) -> bool:
        return self._order >= other._order if isinstance(other, _Numbered) else NotImplemented


class TaskId(_Numbered):
    """One replica of a job: `train/task-0`."""

    __slots__ = ("index", "job")
    job: JobId
    index: int  # type: ignore[assignment]  # hides str.index, which is meaningless for an id

    def __new__(cls, job: JobId, index: int) -> "TaskId":
        new = _new(cls, job + f"/task-{index}")
        new.job, new.index = job, index
        return new

    def __getnewargs__(self) -> tuple[JobId, int]:  # type: ignore[override]  # str's has one element
        return self.job, self.index

    @property
    def _order(self) -> tuple[str, int]:
        return self.job, self.index


@lru_cache(maxsize=1024)
def task_ids_of(job: JobId, count: int) -> tuple[TaskId, ...]:
    """Return the ids of the first `count` tasks of a job. Cached: they are needed for every batch of poll answers."""
    prefix, found = job + "/task-", []
    for index in range(count):
        new = _new(TaskId, f"{prefix}{index}")  # a call of TaskId takes twice as long
        new.job, new.index = job, index
        found.append(new)
    return tuple(found)


class AttemptId(_Numbered):
    """One attempt of a task: `train/task-0/attempt-1`. `number` counts from 0 and is never reused."""

    __slots__ = ("number", "task")
    task: TaskId
    number: int

    def __new__(cls, task: TaskId, number: int) -> "AttemptId":
        new = _new(cls, task + f"/attempt-{number}")  # an f-string with both parts takes twice as long
        new.task, new.number = task, number
        return new

    def __getnewargs__(self) -> tuple[TaskId, int]:  # type: ignore[override]  # str's has one element
        return self.task, self.number

    @property
    def _order(self) -> tuple[str, int]:
        return self.task, self.number


def is_name(text: str) -> bool:
    """Return whether `text` may name a worker, a slice, a taint or one part of a job id."""
    # Ids are parsed very often, and a regular expression takes twice as long.
    return 0 < len(text) <= _MAX_NAME and text[0] in _LETTERS_AND_DIGITS and not text.strip(_NAME_CHARACTERS)


def _parse_number(text: str) -> int | None:
    """Return the number in a text of at most nine digits without leading zeros; None for any other text."""
    plain = len(text) <= 9 and text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")
    return int(text) if plain else None


def parse_job_id(text: str) -> JobId:
    """Validate a job id, `name` or `parent/child`. Raises UsageError."""
    for part in text.split("/"):
        if not is_name(part):
            raise UsageError(
                f"{clip(text)!r} is not a job name",
                hint="use 1 to 63 letters, digits, '.', '_' and '-', beginning with a letter or a digit",
            )
        kind, dash, digits = part.partition("-")
        if dash and kind in _RESERVED and digits.isdecimal():
            raise UsageError(
                f"job name {clip(text)!r} would be mistaken for a task or an attempt",
                hint="choose another name",
            )
    return JobId(text)


def parse_worker_id(text: str) -> WorkerId:
    """Validate a worker id. Raises UsageError."""
    if not is_name(text):
        raise UsageError(
            f"{clip(text)!r} is not a worker id",
            hint="use 1 to 63 letters, digits, '.', '_' and '-', beginning with a letter or a digit",
        )
    return WorkerId(text)


def parse_task_id(text: str) -> TaskId:
    """Parse `{job}/task-{index}`. Raises UsageError."""
    job, _, index = text.rpartition("/task-")
    number = _parse_number(index)
    if not job or number is None:
        raise UsageError(
            f"{clip(text)!r} is not a task id", hint="tasks are named JOB/task-INDEX, such as train/task-0"
        )
    return TaskId(parse_job_id(job), number)


def parse_attempt_id(text: str) -> AttemptId:
    """Parse `{task}/attempt-{n}`. Raises UsageError."""
    task, _, digits = text.rpartition("/attempt-")
    number = _parse_number(digits)
    if not task or number is None:
        raise UsageError(
            f"{clip(text)!r} is not an attempt id", hint="attempts are named JOB/task-INDEX/attempt-NUMBER"
        )
    return AttemptId(parse_task_id(task), number)


def is_attempt_name(text: str) -> bool:
    """Return whether the text ends like an attempt id. Ids of jobs and tasks never do."""
    _, separator, number = text.rpartition("/attempt-")
    return bool(separator) and number.isdecimal()


def parse_token(text: object) -> Token:
    """Validate a launch token. Raises ValueError."""
    if not isinstance(text, str) or len(text) != 32 or text.strip(_HEX_DIGITS):
        raise ValueError("a launch token is 32 hexadecimal digits")
    return Token(text)


def is_request_id(text: str) -> bool:
    """Return whether a file of this name in an outbox is a request. Names of incomplete files begin with a dot."""
    return (
        0 < len(text) <= _MAX_REQUEST_ID
        and text[0] in _LETTERS_AND_DIGITS + "_"
        and not text.strip(_NAME_CHARACTERS)
    )


def parse_request_id(text: str) -> RequestId:
    """Validate the id of a request. Raises ValueError."""
    if not is_request_id(text):
        raise ValueError("a request is named by 1 to 64 letters, digits, '.', '_' and '-', no '.' first")
    return RequestId(text)


def parent_of(job: JobId) -> JobId | None:
    """Return the id of a child job's parent, or None for a root job."""
    head, slash, _ = job.rpartition("/")
    return JobId(head) if slash else None


def root_of(job: JobId) -> JobId:
    """Return the outermost ancestor of a job: itself for a root job."""
    return JobId(job.split("/", 1)[0])


def depth_of(job: JobId) -> int:
    """Return 0 for a root job, 1 for its children, and so on."""
    return job.count("/")


def clip(text: str, limit: int = 80) -> str:
    """Shorten untrusted text for an error message."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
