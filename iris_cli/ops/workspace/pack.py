"""List the files to ship with a job, and pack them for a launch. These are regular files and symbolic links."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, structs

from iris_cli.core import JobRequest, Workspace, clip, count, format_memory
from iris_cli.errors import UsageError
from iris_cli.ops.session import Session
from iris_cli.ops.workspace import archive
from iris_cli.ops.workspace.selection import IGNORE_FILE, is_directory, select, unreadable

_MAX_NAMES = 5
_TRIES = 3  # maximum number of tries if files change while they are packed
_MAX_WARNINGS = 5


class Listing(Struct, frozen=True, kw_only=True):
    """Files to ship from `directory`. `size`: bytes of the tar file. `rule`: how the files were selected.

    `script_name` is the name of the job script if only the script is shipped, otherwise ''.
    """

    directory: Path
    entries: tuple[archive.Entry, ...]
    size: int
    rule: str
    warnings: tuple[str, ...] = ()
    script_name: str = ""

    @property
    def name(self) -> str:
        """Name of the workspace for messages."""
        return os.fsencode(self.script_name or self.directory.name or "root").decode("utf-8", "replace")

    @property
    def largest(self) -> list[archive.Entry]:
        return sorted(self.entries, key=lambda each: (-each.size, each.name))[:_MAX_NAMES]


def _make_listing(
    directory: Path,
    entries: Sequence[archive.Entry],
    limit: int,
    rule: str,
    warnings: Sequence[str] = (),
    script_name: str = "",
) -> Listing:
    """Return the listing. Raises UsageError if a file can't be shipped, or if the tar file exceeds `limit` bytes."""
    for kind, applies in archive.UNPACKABLE:
        if unpackable := [each for each in entries if applies(each)]:
            words = [
                f"{each.name} -> {each.target}" if each.target is not None else each.name
                for each in unpackable
            ]
            names = ", ".join(map(clip, words[:_MAX_NAMES]))
            more = f" and {len(unpackable) - _MAX_NAMES} more" if len(unpackable) > _MAX_NAMES else ""
            raise UsageError(
                f"{directory} holds {kind}: {names}{more}",
                hint=f"fix them, or exclude them in {directory / IGNORE_FILE}",
            )
    size = sum(len(each.header) + archive.padded_size(each.size) for each in entries) + len(archive.END)
    found = Listing(
        directory=directory,
        entries=tuple(entries),
        size=size,
        rule=rule,
        warnings=tuple(warnings),
        script_name=script_name,
    )
    if size > limit:
        shown = ", ".join(f"{clip(each.name)} ({format_memory(each.size)})" for each in found.largest)
        raise UsageError(
            f"{directory} is {format_memory(size)} in {count(len(entries), 'file')}, more than "
            f"{format_memory(limit)} (limits.workspace_size); largest: {shown}",
            hint=f"exclude files in {directory / IGNORE_FILE}",
        )
    return found


def _has_real_parents(top: Path, name: str, known: dict[str, bool]) -> bool:
    """Return True if no directory above the file is a link. Git may list files whose directory is now a link."""
    parent = name.rpartition("/")[0]
    if parent not in known:
        known[parent] = _has_real_parents(top, parent, known) and is_directory(top / parent)
    return known[parent]


def _entry(top: Path, name: str, warnings: list[str]) -> archive.Entry | None:
    """Return the archive entry of a file or link; None for a special file, or a deleted file that git still lists."""
    path = os.path.join(top, name)
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return archive.Entry(name, target=os.readlink(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(name, error) from error
    if stat.S_ISREG(status.st_mode):
        executable = bool(status.st_mode & stat.S_IXUSR)
        return archive.Entry(name, status.st_size, executable, None, archive.version_of(status))
    warnings.append(f"{clip(name)} is not shipped: it is neither file nor link")
    return None


def files_to_ship(session: Session, request: JobRequest) -> Listing | None:
    """Return the files to ship with the job; None if it ships no files. Print warnings. Raises UsageError."""
    if request.workdir is None and request.job_script is None:
        return None
    found = _list_files(request, session.limits.workspace_size, _own_files(session))
    _warn(session, found)
    return found


def pack_request(session: Session, request: JobRequest) -> JobRequest:
    """Return the request with its files packed into the state directory. Raises UsageError, NotWritableError."""
    session.begin()
    workspace, found = pack_files(
        request,
        lambda found: session.state.workspaces.put(_with_progress(session, found, tar_chunks(found))),
        limit=session.limits.workspace_size,
        own_paths=_own_files(session),
    )
    _warn(session, found)
    return structs.replace(request, workspace=workspace)


def _own_files(session: Session) -> tuple[Path, ...]:
    """Return the paths that are never shipped: the state directory and `cluster.yaml`, with links resolved."""
    config = session.config.path
    return (session.state.path.resolve(), config.parent.resolve() / config.name, config.resolve())


def pack_files(
    request: JobRequest,
    put: Callable[[Listing], tuple[str, int]],
    *,
    limit: int,
    own_paths: Sequence[Path] = (),
) -> tuple[Workspace, Listing]:
    """Pack the files of a job.

    `put` stores the packed files of a Listing, and returns their hash and size. Files below `own_paths` are not packed.
    Raises UsageError, and the errors of `put`.
    """
    for _ in range(_TRIES):
        found = _list_files(request, limit, own_paths)
        try:
            found_hash, size = put(found)
        except archive.ChangedError as error:
            changed = str(error)
            continue
        return Workspace(hash=found_hash, size=size, files=len(found.entries), name=found.name), found
    raise UsageError(
        f"{clip(changed)} changed while it was being packed, {_TRIES} times",
        hint=f"stop the program that writes it, or exclude it in {found.directory / IGNORE_FILE}",
    )


def _list_files(request: JobRequest, limit: int, own_paths: Sequence[Path]) -> Listing:
    """List the directory of a job, its script, or both. A script from elsewhere is packed at the top."""
    if request.job_script is None:
        return list_directory(Path(request.workdir or "."), limit, own_paths=own_paths)
    path = Path(request.job_script)
    script = _script_entry(path, name_of_script(request))
    if request.workdir is None:
        return _make_listing(path.parent, [script], limit, "the job script", script_name=path.name)
    found = list_directory(Path(request.workdir), limit, own_paths=own_paths)
    others = [each for each in found.entries if each.name != script.name]
    name_is_used = len(others) < len(found.entries) and not path.is_relative_to(found.directory)
    if name_is_used or any(each.name.startswith(f"{script.name}/") for each in others):
        raise UsageError(
            f"{found.directory} has a {clip(script.name)} other than the job script",
            hint="rename one of them, or move the script into the directory",
        )
    return _make_listing(
        found.directory, [*others, script], limit, f"{found.rule}; the job script", found.warnings
    )


def name_of_script(request: JobRequest) -> str:
    path = Path(request.job_script or "")
    top = Path(request.workdir).resolve() if request.workdir is not None else path.parent
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else path.name


def _script_entry(path: Path, name: str) -> archive.Entry:
    """Return the entry of a script, which is executable regardless of its local mode. Raises UsageError."""
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable(path.name, error) from error
    return archive.Entry(
        name, status.st_size, executable=True, version=archive.version_of(status), source=os.fspath(path)
    )


def _warn(session: Session, found: Listing) -> None:
    for warning in found.warnings[:_MAX_WARNINGS]:
        session.tell(f"warning: {warning}")
    if len(found.warnings) > _MAX_WARNINGS:
        session.tell(f"warning: {len(found.warnings) - _MAX_WARNINGS} more are not shipped")


def list_directory(directory: Path, limit: int, *, own_paths: Sequence[Path] = ()) -> Listing:
    """List the files to ship from a directory. `limit`: maximum size of the tar file in bytes. Raises UsageError."""
    try:
        real = directory.resolve(strict=True)
        if not real.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except (OSError, RuntimeError, ValueError) as error:  # such as a loop of links, or a NUL character
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--workdir {clip(str(directory))}: {why}", hint="name a directory") from error
    selection = select(real, own_paths)
    warnings, parents = list(selection.warnings), {"": True}
    names = (name for name in selection.names if _has_real_parents(real, name, parents))
    entries = [entry for name in names if (entry := _entry(real, name, warnings)) is not None]
    if not entries:
        raise UsageError(
            f"nothing to ship in {real} ({selection.rule})", hint="drop --workdir, or name another directory"
        )
    return _make_listing(real, entries, limit, selection.rule, warnings)


def tar_chunks(found: Listing) -> Iterator[bytes]:
    """Yield the tar file in pieces. Raises UsageError for an unreadable file, ChangedError for a changed file."""
    for entry in found.entries:
        yield entry.header
        if entry.target is None:
            try:
                yield from archive.contents(os.fspath(found.directory), entry)
            except OSError as error:
                raise unreadable(entry.name, error) from error
    yield archive.END


def _with_progress(session: Session, found: Listing, chunks: Iterator[bytes]) -> Iterator[bytes]:
    done = 0
    with session.progress(lambda: (f"packing {found.name}", done, found.size, "bytes")):
        for chunk in chunks:
            done += len(chunk)
            yield chunk
