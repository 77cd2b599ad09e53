"""The two directories for a task's requests and their answers: `outbox/` and `inbox/`.

A request is a file in `outbox/`. It gets its name when it is complete and durable. The answer is a file in `inbox/`
with the same name. Cycles may read a request several times, but execute it once. So a program that was killed can send
its requests again under the same names.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.config.request_text import read_answer, write_request
from iris_cli.core import RequestId, format_duration
from iris_cli.core.messages import requests as messages
from iris_cli.core.text import request_name
from iris_cli.errors import IrisError, NotWritableError, UnreachableError, UsageError
from iris_cli.randomness import SYSTEM_RANDOMNESS
from iris_cli.remote.inside.requests import OtherRequestError, RequestFiles, wait_for_answers

CHANGING_REQUESTS = (messages.Submit, messages.Cancel, messages.RegisterEndpoint, messages.RemoveEndpoint)
"""Requests that change something. All other requests only read."""

_id_lock = threading.Lock()
_last_id = 0


class UnansweredError(UnreachableError):
    """A request got no answer. If `request_id` is set, the request is still in the outbox and may be executed later."""

    def __init__(self, message: str, *, hint: str = "", request_id: str = "") -> None:
        super().__init__(message, hint=hint)
        self.request_id = request_id


class RequestChannel(RequestFiles):
    """The requests and answers of one attempt. Safe for threads and processes."""

    def __init__(self, task_dir: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(os.fspath(task_dir))
        self.clock = clock

    def ask(
        self, request: messages.Request, timeout: float | None, request_id: str | None = None
    ) -> Mapping[str, Any]:
        """Send a request and wait for its result.

        Raises the error in the answer, NotWritableError, or UnansweredError after `timeout` seconds (None: no timeout).
        """
        name = self.put(request, request_id)
        is_change = isinstance(request, CHANGING_REQUESTS)
        answer = None
        try:
            (answer,) = self.wait([name], self.deadline(timeout))
        finally:
            # Keep an unanswered request that changes something, because a cycle may still execute it.
            if answer is not None or not is_change:
                self.drop(name, keep_answer=request_id is not None)
        if answer is None:
            raise unanswered_error(timeout, name if is_change else "")
        return _result(answer)

    def put(self, request: messages.Request, request_id: str | None = None) -> RequestId:
        """Write a request durably, unless it already exists or was answered. Return its id.

        Raises NotWritableError. Raises UsageError if the id is invalid or belongs to another request.
        """
        raw = write_request(request)
        name = new_request_id() if request_id is None else RequestId(request_name(request_id))
        try:
            self.write(name, raw)
        except OtherRequestError as error:
            raise UsageError(
                f"request id {name} belongs to another request", hint="use a different id for each request"
            ) from error
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UsageError(
                f"{self.outbox} is not the outbox of a task", hint="do not change IRIS_TASK_DIR"
            ) from error
        except OSError as error:
            problem = f"can't write to {self.outbox}: {error.strerror}"
            raise NotWritableError(problem, hint=f"df -h {self.outbox}") from error
        return name

    def ask_all(
        self, requests: Sequence[messages.Request], until: float | None
    ) -> list[Mapping[str, Any] | None]:
        """Wait for the results of read-only requests like `wait`. Raises the first error that an answer contains.

        Sends only MAX_WAITS requests at a time, because iris refuses more waits.
        """
        starts = range(0, len(requests), messages.MAX_WAITS)
        return [
            answer
            for start in starts
            for answer in self._ask_together(requests[start : start + messages.MAX_WAITS], until)
        ]

    def _ask_together(
        self, requests: Sequence[messages.Request], until: float | None
    ) -> list[Mapping[str, Any] | None]:
        names = [self.put(request) for request in requests]
        try:
            answers = self.wait(names, until)
        finally:
            for name in names:
                self.drop(name)
        return [None if answer is None else _result(answer) for answer in answers]

    def deadline(self, timeout: float | None) -> float | None:
        """Return the monotonic time after `timeout` seconds; None if `timeout` is None."""
        return None if timeout is None else self.clock.monotonic() + timeout

    def wait(self, names: Sequence[RequestId], until: float | None) -> list[messages.Answer | None]:
        """Wait for answers until the monotonic time `until` or the first refusal. Return None for a missing answer.

        Raises IrisError if an answer can't be read.
        """
        return wait_for_answers(
            names,
            until,
            self.read_if_answered,
            lambda answer: isinstance(answer, messages.Refusal),
            self.clock,
        )

    def read_if_answered(self, name: RequestId) -> messages.Answer | None:
        """Return the answer to a request; None if it has not arrived yet."""
        try:
            raw = self.answer(name)
        except OSError as error:
            raise IrisError(f"{self.inbox}/{name} can't be read: {error.strerror}") from error
        return None if raw is None else read_answer(raw)


def new_request_id() -> RequestId:
    """Return a unique id. The ids of one process sort by time."""
    global _last_id
    with _id_lock:
        _last_id = max(_last_id + 1, int(SYSTEM_CLOCK.now() * 1e9))
        return RequestId(f"{_last_id:020d}-{SYSTEM_RANDOMNESS.hexadecimal(8)}")


def _result(answer: messages.Answer) -> Mapping[str, Any]:
    """Return the result in an answer. If the answer is a refusal, raise its error."""
    if isinstance(answer, messages.Refusal):
        raise answer.error()
    return answer


def unanswered_error(timeout: float | None, name: str = "") -> UnansweredError:
    """Return the error for a request without an answer after `timeout` seconds."""
    return UnansweredError(
        f"no answer for {format_duration(timeout or 0)}: no cycles are running",
        hint="run `iris loop start` on the operator's machine"
        + ("; the request stays queued" if name else ""),
        request_id=name,
    )
