"""The two directories through which a task talks to whoever polls it: requests go out, answers come in.

A request is a file of `outbox/`, complete as soon as it has its name, and on the disk. Its answer is the file of the
same name in `inbox/`. Whoever polls takes a request as often as he finds it, and does it once; so a program that is
killed anywhere loses nothing, and does nothing twice if it asks again under the same name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.config.request_text import read_answer, write_request
from iris_cli.core.ids import RequestId, clip, is_request_id
from iris_cli.core.messages.requests import (
    Answer,
    Cancel,
    Refusal,
    RegisterEndpoint,
    RemoveEndpoint,
    Request,
    Submit,
)
from iris_cli.core.units import format_duration
from iris_cli.errors import IrisError, NotWritableError, UnreachableError, UsageError
from iris_cli.randomness import SYSTEM_RANDOMNESS
from iris_cli.remote.inside.mail import MailFiles, OtherRequestError, wait_for_answers

CHANGING = (Submit, Cancel, RegisterEndpoint, RemoveEndpoint)
"""Requests that do something; the others only want to know."""

_ids = threading.Lock()
_last = 0


class UnansweredError(UnreachableError):
    """Nobody has answered. What was asked for may still happen: the request `request_id` lies in the outbox."""

    def __init__(self, message: str, *, hint: str = "", request_id: str = "") -> None:
        super().__init__(message, hint=hint)
        self.request_id = request_id


class Mailbox:
    """The mail of one attempt, in its directory. Safe to use by many threads and processes at once."""

    def __init__(self, task_dir: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self._files = MailFiles(os.fspath(task_dir))

    def ask(
        self, request: Request, timeout: float | None, request_id: str | None = None
    ) -> Mapping[str, Any]:
        """Put a request, and wait for what it comes to.

        Raises the error that is the answer; UnansweredError after `timeout` seconds (None: never), NotWritableError.
        """
        name = self.put(request, request_id)
        changes = isinstance(request, CHANGING)
        answer = None
        try:
            answer = self.wait(name, timeout)
        finally:
            # What changes something may happen, whoever has given up: taken back now it might have happened.
            if answer is not None or not changes:
                self.drop(name, keep_answer=request_id is not None)
        if answer is None:
            raise unanswered(timeout, name if changes else "")
        return result_of(answer)

    def put(self, request: Request, request_id: str | None = None) -> RequestId:
        """Write a request, durably. One that is there already, or was answered, is not written again.

        Raises UsageError for an id that is none or means another request, NotWritableError.
        """
        raw = write_request(request)
        name = new_request_id() if request_id is None else _checked(request_id)
        try:
            self._files.write(name, raw)
        except OtherRequestError as error:
            raise UsageError(
                f"request id {name} belongs to another request", hint="choose an id for each request"
            ) from error
        except OSError as error:
            raise _unwritable(self._files.outbox, error) from error
        return name

    def wait(self, name: RequestId, timeout: float | None) -> Answer | None:
        """The answer, or None after so many seconds. Raises IrisError for one that can't be read."""
        return self.wait_all([name], timeout)[0]

    def wait_all(self, names: Sequence[RequestId], timeout: float | None) -> list[Answer | None]:
        """The answers to several, None for those that have none after so many seconds. One refusal ends the wait."""
        return wait_for_answers(
            names, timeout, self.look, lambda answer: isinstance(answer, Refusal), self.clock
        )

    def look(self, name: RequestId) -> Answer | None:
        """The answer if there is one."""
        try:
            raw = self._files.answer(name)
        except OSError as error:
            raise IrisError(f"{self._files.inbox}/{name} can't be read: {error.strerror}") from error
        return None if raw is None else read_answer(raw)

    def drop(self, name: RequestId, *, keep_answer: bool = False) -> None:
        """Delete a request that nobody waits for, and its answer."""
        self._files.drop(name, keep_answer=keep_answer)


def new_request_id() -> RequestId:
    """An id that no other request has. Those of one process are in order; those of several nearly so."""
    global _last
    with _ids:
        _last = max(_last + 1, int(SYSTEM_CLOCK.now() * 1e9))
        return RequestId(f"{_last:020d}-{SYSTEM_RANDOMNESS.hexadecimal(8)}")


def result_of(answer: Answer) -> Mapping[str, Any]:
    """What was asked for. Raises the error that was answered instead."""
    if isinstance(answer, Refusal):
        raise answer.error()
    return answer


def _checked(text: str) -> RequestId:
    if not is_request_id(text):
        raise UsageError(
            f"{clip(text)!r} is not a request id", hint="use 1 to 64 letters, digits, '.', '_' and '-'"
        )
    return RequestId(text)


def unanswered(timeout: float | None, name: str = "") -> UnansweredError:
    """After so many seconds in which nobody polled."""
    return UnansweredError(
        f"no answer for {format_duration(timeout or 0)}: no cycles are running",
        hint="run `iris loop start` on the operator's machine"
        + ("; the request stays queued" if name else ""),
        request_id=name,
    )


def _unwritable(directory: str, error: OSError) -> IrisError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return UsageError(f"{directory} is not the outbox of a task", hint="do not change IRIS_TASK_DIR")
    return NotWritableError(f"can't write to {directory}: {error.strerror}", hint=f"df -h {directory}")
