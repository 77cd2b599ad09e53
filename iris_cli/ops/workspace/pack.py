"""Packing a directory, and what a launch needs of that."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from iris_cli.core.ids import clip
from iris_cli.core.model.job import JobRequest, Workspace
from iris_cli.errors import UsageError
from iris_cli.ops.session import Session
from iris_cli.ops.workspace.archive import END, ChangedError, contents
from iris_cli.ops.workspace.entries import Listing, list_entries, unreadable
from iris_cli.ops.workspace.ignore import IGNORE_FILE
from iris_cli.ops.workspace.selection import select

_TRIES = 3
_MOST_WORDS = 5


def listing(session: Session, request: JobRequest) -> Listing | None:
    """What would be shipped with the job, if anything is. Raises UsageError."""
    if request.workdir is None:
        return None
    return list_directory(Path(request.workdir), session.limits.workspace_size, own=_own(session))


def packed(session: Session, request: JobRequest) -> JobRequest:
    """The request with its `workdir` packed and kept in the state directory.

    Raises UsageError, NotWritableError.
    """
    if request.workdir is None:
        return request
    session.begin()
    workspace, found = pack(
        Path(request.workdir),
        lambda found: session.state.workspaces.put(_with_progress(session, found, tar_chunks(found))),
        limit=session.limits.workspace_size,
        own=_own(session),
    )
    warn(session, found)
    return replace(request, workspace=workspace)


def _own(session: Session) -> tuple[Path, ...]:
    """The state directory and the `cluster.yaml` in use, which a link may name."""
    config = session.config.path
    return (session.state.path.resolve(), config.parent.resolve() / config.name, config.resolve())


def pack(
    directory: Path, put: Callable[[Listing], tuple[str, int]], *, limit: int, own: Sequence[Path] = ()
) -> tuple[Workspace, Listing]:
    """Pack a directory, and what was found in it. `put` keeps `tar_chunks` of that, and returns hash and size.

    Raises UsageError, and what `put` raises.
    """
    for _ in range(_TRIES):
        found = list_directory(directory, limit, own=own)
        try:
            found_hash, size = put(found)
        except ChangedError as error:
            changed = str(error)
            continue
        return Workspace(hash=found_hash, size=size, files=len(found.entries), name=found.name), found
    raise UsageError(
        f"{clip(changed)} changed while it was being packed, {_TRIES} times",
        hint=f"let what writes to it end, or name it in {directory / IGNORE_FILE}",
    )


def warn(session: Session, found: Listing) -> None:
    """Tell what of the directory stays here although nobody asked for that."""
    for word in found.words[:_MOST_WORDS]:
        session.tell(f"warning: {word}")
    if len(found.words) > _MOST_WORDS:
        session.tell(f"warning: and {len(found.words) - _MOST_WORDS} more that are not shipped")


def list_directory(directory: Path, limit: int, *, own: Sequence[Path] = ()) -> Listing:
    """List what is shipped of a directory, at most `limit` bytes of tar file. Raises UsageError."""
    try:
        real = directory.resolve(strict=True)
        if not real.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL character
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--workdir {clip(str(directory))}: {why}", hint="name a directory") from error
    return list_entries(real, select(real, own), limit)


def tar_chunks(found: Listing) -> Iterator[bytes]:
    """The tar file in pieces. Raises UsageError for what can't be read, ChangedError."""
    for entry in found.entries:
        yield entry.header
        if entry.target is None:
            try:
                yield from contents(os.fspath(found.directory), entry)
            except OSError as error:
                raise unreadable(entry.name, error) from error
    yield END


def _with_progress(session: Session, found: Listing, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same, and how far that is."""
    done = 0
    with session.progress(lambda: (f"packing {found.name}", done, found.size, "bytes")):
        for chunk in chunks:
            done += len(chunk)
            yield chunk
