"""Bring what a task has packed for a child job from its worker to the state directory. No lock is held.

Only what has the hash that was asked for is kept, and only if it is as we would have packed it. It is not unpacked
here; the workers it goes to check it, too, as they check everything that is shipped.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from hashlib import sha256

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import Silence
from iris_cli.core.model.job import Workspace
from iris_cli.core.model.worker import Worker
from iris_cli.core.units import format_memory
from iris_cli.errors import NotWritableError
from iris_cli.ops.cycle.calls import not_sent
from iris_cli.ops.cycle.plausible import Fetched
from iris_cli.ops.session import Session
from iris_cli.ops.workspace.untrusted import OddTarError, TarCheck

AT_ONCE = 4
"""How much is fetched at a time: other calls need room, too."""

_GZIP = 31  # zlib: the header and trailer of gzip
_CHUNK = 1 << 20
_LEAST = 64 << 10  # bytes that come at a time
_SLOWEST = 256 << 10  # bytes a second, all in all
_START = 120.0  # seconds that it may take besides: a busy worker, a call that had to wait


class _SilentError(Exception):
    def __init__(self, silence: Silence) -> None:
        super().__init__(silence.detail)
        self.silence = silence


class _UnfitError(Exception):
    """What is there is not what was asked for; the message says why."""


def fetch(session: Session, worker: Worker, token: Token, wanted: Workspace) -> Fetched | Silence:
    """In a thread of its own. Cut off anywhere, nothing of it is here."""
    problem = ""
    try:
        if not session.state.workspaces.has(wanted.hash):
            session.state.workspaces.put(_checked(_unpacked(_packed(session, worker, token, wanted)), wanted))
    except (_UnfitError, OddTarError) as error:
        problem = f"the directory that was packed for it can't be had: {error}"
    except _SilentError as error:
        return error.silence
    except NotWritableError as error:
        return not_sent(worker.id, "fetch", error)
    return Fetched(worker=worker.id, boot_id=worker.boot_id, incarnation=worker.incarnation, problem=problem)


def _packed(session: Session, worker: Worker, token: Token, wanted: Workspace) -> Iterator[bytes]:
    """The file on the worker in pieces: at most as many bytes as there were at first."""
    target, offset, begun = session.target(worker), 0, session.clock.monotonic()
    size: int | None = None
    name = f"fetching {wanted.name or 'a workspace'}"
    with session.progress(lambda: (name, offset, size or 0, "bytes")):
        while size is None or offset < size:
            piece = session.runner.packed(target, token, wanted.hash, offset)
            if isinstance(piece, Silence):
                raise _SilentError(piece)
            if not piece.version.inode:
                raise _UnfitError("it is not there, or no plain file")
            size = size or piece.version.size
            if size > wanted.size + (wanted.size >> 8) + _CHUNK:  # more than gzip adds to anything
                raise _UnfitError(f"{format_memory(size)} are more than {format_memory(wanted.size)}")
            if len(piece.data) < max(1, min(_LEAST, size - offset)):  # crumbs would keep us for days
                raise _UnfitError("it ends too early")
            offset += len(piece.data)
            if session.clock.monotonic() - begun > _START + offset / _SLOWEST:
                raise _UnfitError("it comes too slowly: others wait for their turn")
            yield piece.data


def _unpacked(packed: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=_GZIP)
    try:
        for data in packed:
            while data:
                yield unpacker.decompress(data, _CHUNK)
                data = unpacker.unconsumed_tail
    except zlib.error as error:
        raise _UnfitError(f"it is damaged ({error})") from error
    yield unpacker.flush()
    if not unpacker.eof or unpacker.unused_data:
        raise _UnfitError("it is damaged (it has no end, or more than one)")


def _checked(chunks: Iterator[bytes], wanted: Workspace) -> Iterator[bytes]:
    """The same; the error comes before the last of it is taken for whole."""
    digest, size, check = sha256(), 0, TarCheck()
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
        if size > wanted.size:
            raise _UnfitError(f"it unpacks to more than {format_memory(wanted.size)}")
        check.feed(chunk)
        yield chunk
    if (digest.hexdigest(), size) != (wanted.hash, wanted.size):
        raise _UnfitError("it is something else than was packed")
    check.end()
