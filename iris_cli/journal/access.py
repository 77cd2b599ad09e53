"""Whether the state directory is one's own, private, writable and on a local disk."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path

from iris_cli.core.text import pattern
from iris_cli.errors import NotFoundError, NotWritableError
from iris_cli.journal.durable import PRIVATE_DIRECTORY, PRIVATE_FILE, not_writable, opened
from iris_cli.journal.layout import ARCHIVE, HEAD, HOLDER, LOCK, LOG, NETWORK_TOLD

_ESCAPE = pattern(r"\\([0-7]{3})")  # a blank in the name of a mount point is \040
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afpfs", "webdav", "9p", "virtiofs", "vboxsf"})
_CLUSTERED = frozenset({"afs", "coda", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "orangefs"})
_FUSE = ("fuse", "macfuse", "osxfuse")


def check_readable(directory: Path) -> str:
    """What else should be said of who can get at the state: a warning, or ''.

    Raises NotWritableError if a file of the state is a symbolic link, or no file at all.
    """
    statuses = _statuses(directory)
    _refuse_others(directory, statuses)
    fix = _closing(statuses)
    return f"{directory} is open to other users: {fix}" if fix else ""


def check_writable(directory: Path) -> None:
    """Raise NotWritableError if the state can't be written, or if others can get at it; NotFoundError."""
    statuses = _statuses(directory)
    if not statuses:
        raise NotFoundError(f"no state directory {directory}", hint="create it: iris init")
    _refuse_others(directory, statuses)
    user = os.geteuid()
    for path, status in statuses.items():
        if status.st_uid != user:
            raise NotWritableError(
                f"{path} belongs to another user (uid {status.st_uid})",
                hint=f"run iris as that user, or: sudo chown {user} {_quote(path)}",
            )
    if fix := _closing(statuses):
        raise NotWritableError(f"{directory} is open to other users", hint=fix)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise NotWritableError(f"{directory} can't be written", hint="use another directory with --state-dir")


def why_unwritable(directory: Path) -> str:
    """What keeps everybody from writing the state now, a full or read-only disk, and what to do; "" if nothing does."""
    error = _unwritable(directory)
    return f"{error.message}, no cycle can run: {error.hint}" if error is not None else ""


def how_writable(directory: Path) -> str:
    """Return what to do before this user can write the state; '' if they can now."""
    error = _unwritable(directory)
    return error.hint if error is not None else why_forbidden(directory)


def _unwritable(directory: Path) -> NotWritableError | None:
    try:
        disk = os.statvfs(directory)
    except OSError:
        return None
    blocks = disk.f_bavail if os.geteuid() else disk.f_bfree
    if disk.f_flag & os.ST_RDONLY:
        number = errno.EROFS
    elif disk.f_blocks and not blocks:
        number = errno.ENOSPC
    else:
        return None
    return not_writable(directory, OSError(number, os.strerror(number)))


def why_forbidden(directory: Path) -> str:
    """Return what keeps this user from writing the state, and what to do; '' if nothing does."""
    try:
        check_writable(directory)
    except NotWritableError as error:
        return f"{error.message}: {error.hint}"
    except (OSError, NotFoundError):  # there may be none yet
        return ""
    return ""


def _statuses(directory: Path) -> dict[str, os.stat_result]:
    """The directory, which may be a link, and of the files that make up the state those that exist."""
    top = str(directory)
    statuses = {}
    for path in (top, *(f"{top}/{name}" for name in (LOG, HEAD, LOCK, HOLDER, ARCHIVE))):
        try:
            statuses[path] = os.stat(path, follow_symlinks=path == top)
        except FileNotFoundError:
            continue
    return statuses


def _refuse_others(directory: Path, statuses: dict[str, os.stat_result]) -> None:
    directories = (str(directory), f"{directory}/{ARCHIVE}")
    for path, status in statuses.items():
        if stat.S_ISLNK(status.st_mode):
            raise NotWritableError(f"{path} is a symbolic link", hint="replace it with a regular file")
        if path in directories and not stat.S_ISDIR(status.st_mode):
            raise NotWritableError(f"{path} is not a directory", hint="move it away")
        if path not in directories and not stat.S_ISREG(status.st_mode):
            raise NotWritableError(f"{path} is not a regular file", hint="move it away")


def _closing(statuses: dict[str, os.stat_result]) -> str:
    """The `chmod` line that closes the state to other users, or '' if it is closed."""
    return " && ".join(
        f"chmod {PRIVATE_DIRECTORY if stat.S_ISDIR(status.st_mode) else PRIVATE_FILE:o} {_quote(path)}"
        for path, status in statuses.items()
        if status.st_mode & 0o077
    )


def _quote(path: str) -> str:
    import shlex  # only where something is wrong

    return shlex.quote(path)


def network_file_system(path: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """The type of the file system under `path` if that is a network one or FUSE; '' if not, or not known."""
    target = f"{path.resolve()}/"
    kind, longest = "", 0
    for where, its_kind in _mounts_of_macos() if sys.platform == "darwin" else _mounts(mounts):
        point = where.rstrip("/") + "/"
        if target.startswith(point) and len(point) >= longest:
            kind, longest = its_kind, len(point)
    return kind if kind in _NETWORK | _CLUSTERED or kind.startswith(_FUSE) else ""


def _mounts(table: Path) -> list[tuple[str, str]]:
    """Where something is mounted, and its type, in the order in which it happened."""
    try:
        entries = [line.split(" ") for line in table.read_text(errors="replace").splitlines()]
    except OSError:
        return []
    return [
        (_ESCAPE.sub(lambda match: chr(int(match[1], 8)), where), kind)
        for _device, where, kind, *_ in entries
    ]


def _mounts_of_macos() -> list[tuple[str, str]]:
    import subprocess  # slow to import, and only here

    try:
        listed = subprocess.run(
            ["/sbin/mount"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_mount_command(listed)


def parse_mount_command(listed: str) -> list[tuple[str, str]]:
    """As `_mounts`, of lines like `//me@nas/x on /Volumes/x (smbfs, nodev, nosuid)`."""
    return [
        (match[1], match[2]) for match in re.finditer(r"^.*? on (.*) \((\w+)[,)].*$", listed, re.MULTILINE)
    ]


def told_before(directory: Path, kind: str) -> bool:
    """Whether it was said before that the state is on such a file system; from now on it was.

    For the holder of the lock. Where nothing can be written down it is said again.
    """
    with suppress(OSError), opened(directory / NETWORK_TOLD, os.O_RDWR | os.O_CREAT) as fd:
        if os.read(fd, 80) == kind.encode():
            return True
        os.truncate(fd, 0)
        os.pwrite(fd, kind.encode(), 0)
    return False
