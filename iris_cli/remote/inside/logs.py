"""The output of tasks, read piece by piece. A part of the program of tasks."""

from __future__ import annotations

import base64
from typing import Iterator

from iris_cli.remote.inside.mail import Json, Mail
from iris_cli.remote.inside.values import LONGEST_LOG_PIECE

FARTHEST = 4 << 20  # bytes to go back for the last lines of a log


def log_pieces(mail: Mail, asked: Json, offset: int) -> Iterator[tuple[int, bytes, int]]:
    """The pieces of a log from an offset: the offset of each, its bytes, and the size of the log."""
    while True:
        answer = mail.ask("logs", {**asked, "offset": offset})
        data = base64.b64decode(answer["data"])
        yield answer["offset"], data, answer["size"]
        offset = answer["offset"] + len(data)
        if not data or offset >= answer["size"]:
            return


def log_lines(mail: Mail, asked: Json, tail: int | None) -> Iterator[str]:
    """All lines of a log, or the last `tail` ones."""
    if tail is None:
        rest = b""
        for _, data, _ in log_pieces(mail, asked, 0):
            *whole, rest = (rest + data).split(b"\n")
            yield from map(text_of, whole)
        yield from map(text_of, [rest] if rest else [])
        return
    pieces = list(log_pieces(mail, asked, -LONGEST_LOG_PIECE))
    begin, _, size = pieces[0]
    if begin and sum(data.count(b"\n") for _, data, _ in pieces) <= tail:
        pieces = list(log_pieces(mail, asked, max(0, size - FARTHEST)))
    lines = b"".join(data for _, data, _ in pieces).split(b"\n")
    # The first line may be a part of one.
    lines = lines[1 if pieces[0][0] else 0 : None if lines[-1] else -1]
    yield from map(text_of, lines[-tail:] if tail else [])


def text_of(line: bytes) -> str:
    """A line as text; of a progress bar its last state."""
    return line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
