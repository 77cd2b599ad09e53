"""The three streams of the process, also where they are closed, broken, full or borrowed."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from iris_cli.errors import OutputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def open_streams() -> None:
    """Take the streams over: what becomes of what they can't take is decided here, for every library that prints.

    What was closed for us (`>&-`) goes nowhere: else its number would be that of the next file, the log say.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open to the end
        elif mode == "w":
            setattr(sys, name, _taken_over(stream, _Results if name == "stdout" else _Messages))


def drop_output() -> None:
    """What is still to be written goes nowhere: the interpreter would try it again at the end, and fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class _Patient(io.BufferedWriter):
    """Waits for room, also where somebody who shares the file with us made it one that doesn't.

    The raw file below it is Python's own: in one of ours a Ctrl-C may come between the system call and its count,
    and the same text would be written again.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        whole = memoryview(data)
        written = 0
        while True:
            try:
                return written + super().write(whole[written:])
            except BlockingIOError as full:
                written += full.characters_written
                self._wait()

    def flush(self) -> None:
        while True:
            try:
                return super().flush()
            except BlockingIOError:
                self._wait()

    def _wait(self) -> None:
        import select  # hardly ever needed

        select.select((), (self,), ())


class _Results(_Patient):
    """Standard output: who asked for a result and can't have it is told so. Raises OutputError or BrokenPipeError."""

    def write(self, data: ReadableBuffer, /) -> int:
        with _told():
            return super().write(data)

    def flush(self) -> None:
        with _told():
            super().flush()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"the output could not be written: {error.strerror}") from error


class _Messages(_Patient):
    """Standard error: what can't be said there can't be said at all, and is no reason to do less."""

    def write(self, data: ReadableBuffer, /) -> int:
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def _taken_over(stream: TextIO, kind: type[io.BufferedWriter]) -> TextIO:
    assert isinstance(stream, io.TextIOWrapper)
    return io.TextIOWrapper(
        kind(io.FileIO(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )
