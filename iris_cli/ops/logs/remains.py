"""Output that its worker can't give any more: what was pulled of it, else the end that the event log keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.core.model.task import Attempt
from iris_cli.core.units import format_duration
from iris_cli.ops.logs.log_reading import LogText, Reading
from iris_cli.ops.logs.log_stream import LineCutter, LogStream, last_lines
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.journal.files.pulled_logs import PulledLogs

_COMPARED = 200  # bytes


class Remains(Struct, frozen=True, kw_only=True):
    """`texts` go on where the worker fell silent, read as they are asked for; `note` says whence they are.

    `kept`: they are from the event log; `pulled`: they were pulled; `whole`: to the end.
    """

    texts: Iterable[LogText] = ()
    anything: bool = False
    note: str = ""
    kept: bool = False
    pulled: bool = False
    whole: bool = False


def remains(session: Session, reading: Reading, attempt: Attempt, why: str, *, begun: bool) -> Remains:
    """What is left of an attempt, whose worker can't be asked, for a reason `why`.

    `begun`: the beginning of it was shown already. Raises NotWritableError if what was pulled can't be read.
    """
    logs, end = session.state.task_logs, attempt.end
    times = [at for name in reading.streams if (at := logs.written_at(reading.id, name)) is not None]
    pulled_at = max(times, default=None)
    # Clocks may differ, and what was all there before the end was not written again after it.
    whole = pulled_at is not None and attempt.ended_at is not None and pulled_at >= attempt.ended_at
    whole = whole and not logs.cut_off(reading.id)
    whole = whole or (end is not None and _reaches(logs, reading, end.log_tail))
    kept = end.log_tail if end is not None and not begun else ""
    if not whole and any(logs.end(reading.id, name) is not None for name in reading.streams):
        texts = (text for name in reading.streams for text in _pulled(logs, reading, name))
        note = f"{why}; this is the last part of its output, copied at its end"
        return Remains(texts=texts, anything=True, note=note, pulled=True, whole=True)
    if pulled_at is not None and (whole or not kept):
        anything = any(
            logs.size(reading.id, name) > stream.offset for name, stream in reading.streams.items()
        )
        texts = (text for name in reading.streams for text in _pulled(logs, reading, name))
        age = format_duration(max(0.0, session.clock.now() - pulled_at))
        note = f"{why}; this is what was pulled {age} ago"
        if not anything and begun:
            note = why if whole else f"{why}; the end of its output is missing"
        return Remains(texts=texts, anything=anything, note=note, pulled=True, whole=whole)
    if kept:
        note = f"{why}; these last lines are from the log"
        if pulled_at is not None:
            note += f"; what was pulled before them is in {logs.path(reading.id, 'out').parent}"
        return Remains(texts=(_kept(reading, kept),), anything=True, note=note, kept=True)
    return Remains(note=f"{why}; the end of its output is missing" if begun else why)


def _reaches(logs: PulledLogs, reading: Reading, log_tail: str) -> bool:
    """Whether what was pulled ends as the output did: with the end of `err`, if there is any."""
    for name in ("err", "out"):
        if size := logs.size(reading.id, name):
            last = logs.read(reading.id, name, max(0, size - _COMPARED), _COMPARED).decode("utf-8", "replace")
            return log_tail.endswith(
                last[4:] if size > _COMPARED else last
            )  # it may begin inside a character
    return False


def _pulled(logs: PulledLogs, reading: Reading, name: str) -> Iterator[LogText]:
    """The lines of one stream beyond those that were read, a piece at a time. Raises NotWritableError."""
    from iris_cli.remote.task_runner import LogChunk

    stream, end = reading.streams[name], logs.end(reading.id, name)
    first, last = end or (0, b"")
    size = first + len(last) if end else logs.size(reading.id, name)
    if not stream.offset:  # the worker may have said that there is nothing: here its last lines are wanted
        stream = reading.streams[name] = LogStream(reading.tail)
    while size > stream.offset:
        offset, limit = stream.wanted
        start = max(first, offset if offset >= 0 else size + offset)
        data = last[start - first :][:limit] if end else logs.read(reading.id, name, start, limit)
        if not data:
            break  # somebody has just removed it
        text = stream.take(LogChunk(data=data, offset=start, size=size, inode=stream.inode or 1))
        if text:
            yield reading.text(name, text)
    if rest := stream.cutter.rest():
        yield reading.text(name, rest)


def _kept(reading: Reading, log_tail: str) -> LogText:
    """The event log does not tell the streams apart: whichever is wanted, these lines are all there is."""
    cutter = LineCutter()
    text = cutter.feed(log_tail.encode("utf-8", "replace")) + cutter.rest()
    return reading.text(next(iter(reading.streams)), last_lines(text, reading.tail))
