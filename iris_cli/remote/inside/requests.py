"""Requests of a task and their answers: files in outbox/ and inbox/. A part of the `iris` inside tasks."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Sequence

from iris_cli.core.messages.requests import FORMAT, MAX_REQUEST_BYTES, MAX_WAITS
from iris_cli.errors import ExitCode, IrisError, UsageError

READ_ONLY = ("status", "wait", "logs")
ANSWER_TIMEOUT = 300.0  # seconds
MAX_ANSWER = 16 << 20  # bytes: the status of a job may have thousands of tasks
FIRST_PAUSE, MAX_PAUSE = 0.02, 0.5  # seconds between two checks for an answer
Json = Dict[str, Any]


class Failure(IrisError):  # noqa: N818 - the base class is named Error
    """An error with an exit code, also an error that an answer reports."""

    def __init__(self, message: str, hint: str, code: ExitCode) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = code


class OtherRequestError(Exception):
    """The outbox contains a different request with the same name."""


class RequestFiles:
    """The files in outbox/ and inbox/ of a task. A request and its answer have the same name."""

    def __init__(self, task_dir: str) -> None:
        self.outbox, self.inbox = os.path.join(task_dir, "outbox"), os.path.join(task_dir, "inbox")

    def write(self, name: str, raw: bytes) -> None:
        """Write a request atomically and durably, unless it has an answer. Raises OSError, OtherRequestError."""
        if os.path.exists(os.path.join(self.inbox, name)):
            return
        path = os.path.join(self.outbox, name)
        with suppress(FileNotFoundError), open(path, "rb") as file:
            if file.read() != raw:
                raise OtherRequestError
            return
        # A poll skips names that begin with a dot.
        draft = os.path.join(self.outbox, f".{name}.{os.getpid()}.{threading.get_ident()}")
        try:
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(fd)
            os.rename(draft, path)
            fd = os.open(self.outbox, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError:
            remove(draft)
            raise

    def answer(self, name: str) -> bytes | None:
        """Return the first MAX_ANSWER bytes of an answer; None if it has not arrived. Raises OSError."""
        try:
            with open(os.path.join(self.inbox, name), "rb") as file:
                return file.read(MAX_ANSWER)
        except FileNotFoundError:
            return None

    def drop(self, name: str, *, keep_answer: bool = False) -> None:
        """Delete a request, and also its answer unless `keep_answer`."""
        remove(os.path.join(self.outbox, name))
        if not keep_answer:
            remove(os.path.join(self.inbox, name))


def remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def wait_for_answers(
    names: Sequence[str],
    until: float | None,
    look: Callable[[Any], Any],
    is_refusal: Callable[[Any], bool],
    clock: Any = time,
) -> list[Any]:
    """Wait for the answers to requests. Return None in place of each answer that is missing at the time `until`.

    `look` returns the answer to a name, or None. An answer for which `is_refusal` is true ends the wait. `clock` has
    the functions `monotonic`, which `until` refers to, and `sleep`.
    """
    found: dict[str, Any] = {}
    pause = FIRST_PAUSE
    while True:
        remaining = pause if until is None else until - clock.monotonic()
        for name in names:
            if name not in found and (answer := look(name)) is not None:
                found[name] = answer
        if len(found) == len(names) or any(map(is_refusal, found.values())) or remaining <= 0:
            return [found.get(name) for name in names]
        clock.sleep(min(pause, remaining))
        pause = min(pause * 1.5, MAX_PAUSE)


class TaskRequests(RequestFiles):
    """The requests of this task."""

    def __init__(self) -> None:
        task_dir = os.environ.get("IRIS_TASK_DIR", "")
        super().__init__(task_dir)
        if not (task_dir and os.path.isdir(self.outbox) and os.path.isdir(self.inbox)):
            hint = "this iris works only inside a task"
            raise UsageError("IRIS_TASK_DIR is not the directory of a task", hint=hint)

    def ask(self, op: str, fields: Json, name: str | None = None) -> Json:
        """Send a request and return its result. A request with a `name` can be sent again, so its answer is kept."""
        request_name = name or new_name()
        answer = None
        try:
            self.put(request_name, op, fields)
            (answer,) = self._wait([request_name], time.monotonic() + ANSWER_TIMEOUT)
        finally:
            # If a request that changes something has no answer, it stays in the outbox. A cycle may still execute it.
            if answer is not None or op in READ_ONLY:
                self.drop(request_name, keep_answer=name is not None)
        if answer is None:
            waits = "" if op in READ_ONLY else "; the request stays queued"
            hint = f"run `iris loop start` on the operator's machine{waits}"
            raise Failure("no answer for 5m: no cycles are running", hint, ExitCode.UNREACHABLE)
        return result_of(answer)

    def put(self, name: str, op: str, fields: Json) -> None:
        """Write a request; omit fields that are None."""
        request = {"v": FORMAT, "op": op, **{key: each for key, each in fields.items() if each is not None}}
        try:
            raw = json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            if len(raw) > MAX_REQUEST_BYTES:
                problem = f"the request takes {len(raw)} bytes, more than {MAX_REQUEST_BYTES}"
                raise UsageError(problem, hint="put the data into a file")
            self.write(name, raw)
        except UnicodeEncodeError as error:
            raise UsageError("an argument is not UTF-8 text") from error
        except OtherRequestError as error:
            problem = f"request id {name} belongs to another request"
            raise UsageError(problem, hint="use a different id for each request") from error
        except OSError as error:
            problem = f"can't write to {self.outbox}: {error.strerror}"
            raise Failure(problem, f"df -h {self.outbox}", ExitCode.NOT_WRITABLE) from error

    def wait_for_jobs(self, jobs: Sequence[str], timeout: float | None) -> list[Json | None]:
        """Wait until jobs have ended. Return the final status of each; None if it has none after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        found: list[Json | None] = []
        for start in range(0, len(jobs), MAX_WAITS):  # iris refuses more waits at a time
            names = {new_name(): job for job in jobs[start : start + MAX_WAITS]}
            try:
                for name, job in names.items():
                    self.put(name, "wait", {"job": job})
                found += [answer and result_of(answer) for answer in self._wait(list(names), until)]
            finally:
                for name in names:
                    self.drop(name)
        return found

    def _wait(self, names: Sequence[str], until: float | None) -> list[Json | None]:
        return wait_for_answers(names, until, self._look, lambda answer: not answer["ok"])

    def _look(self, name: str) -> Json | None:
        try:
            raw = self.answer(name)
            answer: Json | None = None if raw is None else json.loads(raw)
            if answer is None:
                return None
            if answer["v"] == FORMAT and isinstance(answer["result" if answer["ok"] else "error"], dict):
                return answer
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            pass  # reported below like any other malformed answer
        raise IrisError("the answer to a request can't be read")


def new_name() -> str:
    """Return a unique name. Requests are executed in the order of their names."""
    return f"{time.time_ns():020d}-{os.urandom(8).hex()}"


def result_of(answer: Json) -> Json:
    """Return the result in an answer, or raise the error in it."""
    if not answer["ok"]:
        error = answer["error"]
        raise Failure(str(error["message"]), str(error["hint"]), ExitCode(int(error["exit_code"])))
    result: Json = answer["result"]
    return result
