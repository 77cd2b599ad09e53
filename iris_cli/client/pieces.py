"""The output of a task, read from inside another one: piece by piece, several asked for at once.

An answer takes as long as it takes somebody to poll: a minute with cron. So each file is asked for ahead.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from iris_cli.client.mailbox import Mailbox
from iris_cli.client.port import LogLine, Sink, TaskStatus
from iris_cli.core.ids import RequestId, parse_task_id
from iris_cli.core.messages.requests import LONGEST_LOG_PIECE, Logs, Refusal
from iris_cli.errors import IrisError, NotFoundError
from iris_cli.ops.logs.log_reading import LineCutter

_PATIENCE = 10
"""Turns in which a worker that doesn't answer is asked again for the rest of what has ended."""

AHEAD = 4
"""Pieces of a file that are asked for at once."""


class Cursor(Struct):
    """How far one output file of one attempt has been read."""

    mail: Mailbox
    task: str
    attempt: int
    stream: str
    offset: int = 0  # of the next piece; a negative one counts from the end
    began: int = 0  # the offset of the first byte that was read
    size: int = 0  # as of the last answer
    at_end: bool = False  # whether the last turn brought all there was
    refused: IrisError | None = None  # why the last turn brought nothing
    _cutter: LineCutter = field(default_factory=LineCutter)
    _asked: list[RequestId] = field(default_factory=list)

    def anew(self, offset: int) -> Cursor:
        """The same file from there on."""
        return Cursor(self.mail, self.task, self.attempt, self.stream, offset, offset, self.size)

    def ask(self) -> None:
        """Ask for what is next: as many pieces as there are known to be, and for one where nothing is known."""
        end = max(self.size, self.offset + 1) if self.offset >= 0 else self.offset + 1
        starts = range(self.offset, end, LONGEST_LOG_PIECE)
        self._asked = [self.mail.put(self._request(start)) for start in starts[:AHEAD]]

    def _request(self, offset: int) -> Logs:
        return Logs(task=parse_task_id(self.task), stream=self.stream, offset=offset, attempt=self.attempt)

    def take(self, until: float | None) -> list[LogLine] | None:
        """What the answers bring; None if the monotonic time `until` comes first, and then nothing is lost."""
        self.at_end, self.refused = False, None
        data = b""
        for name in self._asked:
            answer = self.mail.wait(
                name, None if until is None else max(0.0, until - self.mail.clock.monotonic())
            )
            if answer is None:
                self.forget()
                return None
            if isinstance(answer, Refusal):
                self.refused = answer.error()
                break
            piece = base64.b64decode(answer["data"], validate=True)
            self.size = int(answer["size"])
            if self.offset < 0:
                self.offset = self.began = int(answer["offset"])
            data += piece
            self.at_end = self.offset + len(data) >= self.size
            if self.at_end or len(piece) < LONGEST_LOG_PIECE:
                break  # the later ones begin where this one would have ended
        self.forget()
        self.offset += len(data)
        return self.lines(self._cutter.feed(data))

    def forget(self) -> None:
        """Whatever was asked for, and its answers."""
        for name in self._asked:
            self.mail.drop(name)
        self._asked = []

    def rest(self) -> list[LogLine]:
        """The unfinished last line, once no more will come."""
        return self.lines(self._cutter.rest())

    def lines(self, text: str) -> list[LogLine]:
        """Of whole lines, each with its line feed."""
        return [
            LogLine(task=self.task, attempt=self.attempt, stream=self.stream, text=line)
            for line in text.split("\n")[:-1]
        ]


class Followed:
    """One task whose output is handed on, from attempt to attempt, until it is over."""

    def __init__(self, mail: Mailbox, task: str, streams: Sequence[str]) -> None:
        self.task = task
        self.done = False
        self._mail = mail
        self._streams = streams
        self._attempt = -1
        self._cursors: list[Cursor] = []
        self._refusals = 0  # turns in a row in which something could not be read
        self._over = False  # whether nothing more was being written before the last turn

    def ask(self, status: TaskStatus) -> None:
        """Begin a turn; `status` was asked for before it."""
        last = -1 if status.attempt is None else status.attempt
        if not self._cursors and self._attempt < last:
            self._attempt += 1
            self._cursors = [Cursor(self._mail, self.task, self._attempt, name) for name in self._streams]
        self._over = status.state.terminal or self._attempt < last
        self.done = not self._cursors and status.state.terminal and self._attempt == last
        for cursor in self._cursors:
            cursor.ask()

    def take(self, until: float | None, sink: Sink) -> bool:
        """End the turn: hand on what it brought. False if the time was over."""
        for lines in self._turn(until):
            if lines is None:
                return False
            for line in lines:
                sink(line)
        refused = [cursor for cursor in self._cursors if cursor.refused is not None]
        self._refusals = self._refusals + 1 if refused else 0
        gone = all(isinstance(cursor.refused, NotFoundError) for cursor in refused)
        given_up = gone or self._refusals > _PATIENCE
        read = all(cursor.at_end or (cursor in refused and given_up) for cursor in self._cursors)
        if self._cursors and self._over and read:
            for cursor in self._cursors:
                for line in cursor.rest():
                    sink(line)
            self._cursors = []
        return True

    def _turn(self, until: float | None) -> Iterator[list[LogLine] | None]:
        for cursor in self._cursors:
            yield cursor.take(until)

    def forget(self) -> None:
        for cursor in self._cursors:
            cursor.forget()
