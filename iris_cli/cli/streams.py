"""The three streams of the process, also where they are closed, broken, full or borrowed."""

from __future__ import annotations

import io
import os
import sys
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


class _Patient(io.FileIO):
    """Waits for room, also where somebody who shares it with us made it one that doesn't."""

    def write(self, data: ReadableBuffer, /) -> int:
        while (written := super().write(data)) is None:
            import select  # hardly ever needed

            select.select((), (self,), ())
        return written


class _Results(_Patient):
    """Standard output: who asked for a result and can't have it is told so. Raises OutputError or BrokenPipeError."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"the output could not be written: {error.strerror}") from error


class _Messages(_Patient):
    """Standard error: what can't be said there can't be said at all, and is no reason to do less."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _taken_over(stream: TextIO, kind: type[io.FileIO]) -> TextIO:
    assert isinstance(stream, io.TextIOWrapper)
    raw = kind(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )
