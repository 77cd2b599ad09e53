"""The client inside a task. It writes requests to the task's outbox, and the cluster's cycles execute them."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, convert, field
from msgspec.structs import replace

from iris_cli.client.records import BOTH, Endpoint, JobStatus, TaskStatus
from iris_cli.client.request_channel import RequestChannel, unanswered_error
from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.core import AttemptId, JobId, JobRequest, JobState, Limits, RequestId, parse_task_id
from iris_cli.core.messages import requests as messages
from iris_cli.decoding import prepare_type
from iris_cli.errors import IrisError, NotFoundError, NotWritableError, UsageError
from iris_cli.ops.logs.log_reading import LineCutter, LogLine, LogText

T = TypeVar("T")
Sink = Callable[[LogLine], None]

_MAX_READ_BACK = 4 << 20  # bytes read from the end of a log to find its last lines
_PAUSE = 0.5  # seconds between two reads while output is streamed


class Outbox:
    """The operations of a client inside a task. A task has access to its own job, and to the jobs that it submitted."""

    def __init__(self, task_dir: Path, answer_timeout: float | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._task_dir = task_dir
        self._channel = RequestChannel(task_dir, clock)
        self._answer_timeout = answer_timeout

    def submit(self, request: JobRequest, *, request_id: str | None, schedule: bool) -> JobId:  # noqa: ARG002 - as in StateDirectory
        return JobId(self.submit_job(request, request_id)["job"])

    def submit_job(self, request: JobRequest, request_id: str | None = None) -> Mapping[str, Any]:
        """Submit a job, and return the answer. Pack the files to ship into the outbox. A cycle fetches them.

        If the request is refused or not answered, the packed file stays, because the program may repeat the request.
        """
        if request.again is not None:
            raise UsageError("--again is not available inside a task", hint="iris launch --help")
        if request.workdir is None and request.job_script is None:
            return self.ask(messages.Submit(job=request), request_id)
        from iris_cli.journal.files.workspaces import Workspaces
        from iris_cli.ops.workspace.pack import pack_files, tar_chunks

        store = Workspaces(self._task_dir / "outbox" / ".packed")
        workspace, _ = pack_files(
            request,
            lambda found: store.put(tar_chunks(found)),
            limit=Limits().workspace_size,
            own_paths=(self._task_dir.resolve(),),
        )
        packed = replace(request, workdir=None, job_script=None, workspace=workspace)
        answer = self.ask(messages.Submit(job=packed), request_id)
        with suppress(NotWritableError):  # the file is then deleted with the task's directory
            store.remove(workspace.hash)
        return answer

    def ask(self, request: messages.Request, request_id: str | None = None) -> Mapping[str, Any]:
        """Return the answer to a request as decoded JSON. Raises the error in the answer, or UnansweredError."""
        return self._channel.ask(request, self._answer_timeout, request_id)

    def check_no_deadlock(self, job: str) -> None:
        """Raise UsageError if this task's job is `job` or its descendant, because `job` can't end before this task."""
        messages.check_no_deadlock(os.environ.get("IRIS_JOB_ID", ""), job)

    def wait_all(self, jobs: Sequence[JobId], timeout: float | None) -> list[JobState | None]:
        found = self.final_answers(jobs, timeout)
        return [None if each is None else job_status(each).state for each in found]

    def final_answers(self, jobs: Sequence[JobId], timeout: float | None) -> list[Mapping[str, Any] | None]:
        """Wait for jobs. Return the final status of each job; None if the job is open after `timeout` seconds."""
        for job in jobs:
            self.check_no_deadlock(job)
        return self._channel.ask_all(
            [messages.Wait(job=job) for job in jobs], self._channel.deadline(timeout)
        )

    def status(self, job: str) -> JobStatus:
        return job_status(self.ask(messages.Status(job=JobId(job))))

    def wait(
        self, job: str, timeout: float | None, follow: Sequence[int] | None, sink: Sink
    ) -> JobState | None:
        if follow is None:
            return self.wait_all([JobId(job)], timeout)[0]
        self.check_no_deadlock(job)
        return self._follow(JobId(job), self._channel.deadline(timeout), follow, sink)

    def _follow(self, job: JobId, until: float | None, ranks: Sequence[int], sink: Sink) -> JobState | None:
        """Stream output until the job has ended. Return None if the time `until` is reached before.

        Each turn of the loop reads the status BEFORE the output. So the turn that sees the job ended reads all output.
        """
        streamed: list[StreamedTask] | None = None
        while True:
            (answer,) = self._channel.ask_all([messages.Status(job=job)], until)
            if answer is None:
                return None
            status = job_status(answer)
            if streamed is None:
                streamed = [StreamedTask(self._channel, task.id) for task in tasks_of(status, ranks)]
            for each in streamed:
                each.ask(status.tasks[parse_task_id(each.task).index])
            try:
                if not all(each.receive(until, sink) for each in streamed):
                    return None
            finally:
                for each in streamed:
                    each.drop_requests()
            if status.state.terminal and all(each.done for each in streamed):
                return status.state
            clock = self._channel.clock
            clock.sleep(_PAUSE if until is None else max(0.0, min(_PAUSE, until - clock.monotonic())))

    def pull(self, job: JobId, directory: Path) -> Path:  # noqa: ARG002 - as in StateDirectory
        raise UsageError(
            "files are pulled to the operator's machine, not into a task",
            hint="write them to storage that both tasks can read",
        )

    def logs(
        self, what: str, *, tail: int | None, attempt: int | None, streams: tuple[str, ...]
    ) -> list[LogLine]:
        if "/task-" not in what:
            tasks = [each for each in self.status(what).tasks if each.attempt is not None]
            return [
                line
                for each in with_attempt(tasks, attempt)
                for line in self.logs(
                    each.id, tail=tail, attempt=each.attempt if attempt is None else attempt, streams=streams
                )
            ]
        task = parse_task_id(what)
        if attempt is None:
            attempt = tasks_of(self.status(task.job), [task.index])[0].attempt
        if attempt is None:
            return []
        cursors = [Cursor(self._channel, what, attempt, stream) for stream in streams]
        return [line for cursor in cursors for line in self._read(cursor, tail)]

    def _read(self, cursor: Cursor, tail: int | None) -> list[LogLine]:
        """Return the last `tail` lines (None: all lines). If possible, read only the end of a long file."""
        lines: list[LogLine] = []
        if tail is not None:
            cursor.offset = -messages.MAX_LOG_PIECE
            lines = self._read_pieces(cursor)
            if cursor.first_offset and len(lines) <= tail:
                cursor, lines = cursor.at_offset(max(0, cursor.size - _MAX_READ_BACK)), []
        while not cursor.at_end:
            lines += self._read_pieces(cursor)
        lines = [*lines, *cursor.rest()][1 if cursor.first_offset else 0 :]
        return lines if tail is None else lines[-tail or sys.maxsize :]

    def _read_pieces(self, cursor: Cursor) -> list[LogLine]:
        cursor.ask()
        found = cursor.receive(self._channel.deadline(self._answer_timeout))
        if found is None:
            raise unanswered_error(self._answer_timeout)
        if cursor.refusal is not None:
            raise cursor.refusal
        return found

    def cancel(self, job: str, reason: str) -> bool:
        return bool(self.ask(messages.Cancel(job=JobId(job), reason=reason))["cancelled"])

    def retry(self, what: str) -> int:
        raise UsageError(
            f"{what[:80]!r}: retry is not available inside a task",
            hint="exit with an error; max_retries_failure retries it",
        )

    def endpoints(self, job: str | None) -> tuple[Endpoint, ...]:
        asked = messages.Endpoints(job=None if job is None else JobId(job))
        return tuple(map(endpoint, self.ask(asked)["endpoints"]))

    def register_endpoint(self, name: str, port: int, metadata: Mapping[str, str]) -> None:
        self.ask(messages.RegisterEndpoint(name=name, port=port, metadata=metadata))

    def remove_endpoint(self, name: str) -> bool:
        return bool(self.ask(messages.RemoveEndpoint(name=name))["removed"])

    def close(self) -> None:
        """Do nothing, because this client has no connections."""


def tasks_of(status: JobStatus, ranks: Sequence[int]) -> Sequence[TaskStatus]:
    """Return the tasks of these ranks; all tasks if `ranks` is empty. Raises NotFoundError."""
    unknown = [rank for rank in ranks if rank >= len(status.tasks)]
    if unknown:
        raise NotFoundError(
            f"{status.id} has no rank {unknown[0]}", hint=f"the ranks are 0 to {len(status.tasks) - 1}"
        )
    return [status.tasks[rank] for rank in ranks] if ranks else status.tasks


def with_attempt(tasks: Sequence[TaskStatus], attempt: int | None) -> Sequence[TaskStatus]:
    """Return the tasks that have this attempt; all tasks if none has it, so that a request gets the error."""
    return [each for each in tasks if each.attempt is not None and each.attempt >= (attempt or 0)] or tasks


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert decoding errors to IrisError, because another version of iris may have written the answer."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise IrisError(
            "the answer to a request can't be understood",
            hint="use the same version of iris in the task and on the operator's machine",
        ) from error


@_convert_errors()
def decode_answer(raw: Mapping[str, Any], kind: type[T]) -> T:
    """Decode an answer as `kind`, a type of `core/messages/requests.py`. Unknown fields are ignored."""
    return convert(raw, prepare_type(kind))


@_convert_errors()
def job_status(raw: Mapping[str, Any]) -> JobStatus:
    """Decode the status of a job."""
    return convert(
        {**_add_display(raw["job"]), "tasks": list(map(_add_display, raw["tasks"]))},
        prepare_type(JobStatus),
    )


def _add_display(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields, with the state as `display` if an older version of iris has omitted `display`."""
    return {"display": raw["state"], **raw}


@_convert_errors()
def endpoint(raw: Mapping[str, Any]) -> Endpoint:
    """Decode an endpoint."""
    return convert({**raw, "host": raw["address"]}, prepare_type(Endpoint))


# Read the output of a task from inside another task. An answer arrives after the next poll. With cron this may take a
# minute, so the client requests several pieces of each file at a time.


_MAX_REFUSALS = 10
"""Maximum number of refused reads in a row, after the attempt has ended. Then the rest of its output is skipped."""

AHEAD = 4
"""Number of pieces of a file that are requested at a time."""


class Cursor(Struct):
    """A read position in one output file of one attempt."""

    channel: RequestChannel
    task: str
    attempt: int
    stream: str
    offset: int = 0  # offset of the next piece; a negative offset counts from the end
    first_offset: int = 0  # offset of the first byte read
    size: int = 0  # size of the file, according to the last answer
    at_end: bool = False  # True if the last read reached the end
    refusal: IrisError | None = None  # the error if the last read was refused
    _cutter: LineCutter = field(default_factory=LineCutter)
    _requests: list[RequestId] = field(default_factory=list)

    def at_offset(self, offset: int) -> Cursor:
        """Return a cursor for the same file at another offset."""
        return Cursor(self.channel, self.task, self.attempt, self.stream, offset, offset, self.size)

    def ask(self) -> None:
        """Request the next pieces: at most AHEAD pieces up to the known size, and one piece if the size is unknown."""
        end = max(self.size, self.offset + 1) if self.offset >= 0 else self.offset + 1
        starts = range(self.offset, end, messages.MAX_LOG_PIECE)
        task = parse_task_id(self.task)
        self._requests = [
            self.channel.put(messages.Logs(task=task, stream=self.stream, offset=start, attempt=self.attempt))
            for start in starts[:AHEAD]
        ]

    def receive(self, until: float | None) -> list[LogLine] | None:
        """Return the lines in the answers; None if an answer is missing at `until`. Then call `ask` again."""
        self.at_end, self.refusal = False, None
        data = b""
        for name in self._requests:
            (answer,) = self.channel.wait([name], until)
            if answer is None:
                self.drop_requests()
                return None
            if isinstance(answer, messages.Refusal):
                self.refusal = answer.error()
                break
            piece = base64.b64decode(answer["data"], validate=True)
            self.size = int(answer["size"])
            if self.offset < 0:
                self.offset = self.first_offset = int(answer["offset"])
            data += piece
            self.at_end = self.offset + len(data) >= self.size
            if self.at_end or len(piece) < messages.MAX_LOG_PIECE:
                break  # a short piece leaves a gap before the next piece
        self.drop_requests()
        self.offset += len(data)
        return self.lines(self._cutter.feed(data))

    def drop_requests(self) -> None:
        """Delete pending requests and their answers."""
        for name in self._requests:
            self.channel.drop(name)
        self._requests = []

    def rest(self) -> list[LogLine]:
        """Return the unfinished last line at the end of the output."""
        return self.lines(self._cutter.rest())

    def lines(self, text: str) -> list[LogLine]:
        """Return these complete lines, each with a line feed, as LogLines."""
        return LogText(AttemptId(parse_task_id(self.task), self.attempt), self.stream, text).lines()


class StreamedTask:
    """Streams the output of one task, from attempt to attempt, until the task has ended."""

    def __init__(self, channel: RequestChannel, task: str) -> None:
        self.task = task
        self.done = False
        self._channel = channel
        self._attempt = -1
        self._cursors: list[Cursor] = []
        self._refusals = 0  # consecutive refused reads
        self._has_ended = False  # True if the attempt had ended before this read

    def ask(self, status: TaskStatus) -> None:
        """Request new output. `status`: the task's status, read immediately before."""
        last = -1 if status.attempt is None else status.attempt
        if not self._cursors and self._attempt < last:
            self._attempt += 1
            self._cursors = [Cursor(self._channel, self.task, self._attempt, name) for name in BOTH]
        self._has_ended = status.state.terminal or self._attempt < last
        self.done = not self._cursors and status.state.terminal and self._attempt == last
        for cursor in self._cursors:
            cursor.ask()

    def receive(self, until: float | None, sink: Sink) -> bool:
        """Wait for the requested output, and pass its lines to `sink`. Return False if `until` is reached."""
        for cursor in self._cursors:
            if (lines := cursor.receive(until)) is None:
                return False
            for line in lines:
                sink(line)
        refusal = [cursor for cursor in self._cursors if cursor.refusal is not None]
        self._refusals = self._refusals + 1 if refusal else 0
        is_gone = all(isinstance(cursor.refusal, NotFoundError) for cursor in refusal)
        must_stop = is_gone or self._refusals > _MAX_REFUSALS
        all_read = all(cursor.at_end or (cursor in refusal and must_stop) for cursor in self._cursors)
        if self._cursors and self._has_ended and all_read:
            for cursor in self._cursors:
                for line in cursor.rest():
                    sink(line)
            self._cursors = []
        return True

    def drop_requests(self) -> None:
        for cursor in self._cursors:
            cursor.drop_requests()
