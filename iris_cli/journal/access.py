"""The state directory as a directory: permissions, free space, file system, identity, and the holder of its lock.

The holder is recorded in `lock.json`, for messages only. The identity is computed from the inode of the directory and
from the machine, so a copy has another identity.
"""

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from iris_cli.core import clip, pattern
from iris_cli.core.model.slice import SliceOwner
from iris_cli.errors import NotFoundError, NotWritableError
from iris_cli.files import PRIVATE_DIRECTORY, PRIVATE_FILE, not_writable, opened
from iris_cli.journal.codec import decode, encode
from iris_cli.journal.layout import ARCHIVE, HEAD, HOLDER, LOCK, LOG, NETWORK_WARNED

_ESCAPE = pattern(r"\\([0-7]{3})")  # the table of mounts has \040 for a space in a name
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afpfs", "webdav", "9p", "virtiofs", "vboxsf"})
_CLUSTERED = frozenset({"afs", "coda", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "orangefs"})
_FUSE = ("fuse", "macfuse", "osxfuse")
_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_MAX_HOLDER = 4096  # bytes
_MIN_HOLDER = 512  # minimum size of the file in bytes


def check_readable(directory: Path) -> tuple[str, ...]:
    """Return a warning if other users can access the state directory or its files, otherwise ().

    Raises NotWritableError if one of the files is not a regular file, for example a symbolic link.
    """
    statuses = _statuses(directory)
    _check_file_types(directory, statuses)
    fix = _chmod_command(statuses)
    return (f"{directory} is open to other users: {fix}",) if fix else ()


def check_writable(directory: Path) -> None:
    """Check that this user, and no other user, can write the state. Raises NotWritableError, NotFoundError."""
    statuses = _statuses(directory)
    if not statuses:
        raise NotFoundError(f"no state directory {directory}", hint="iris init creates it")
    _check_file_types(directory, statuses)
    user = os.geteuid()
    for path, status in statuses.items():
        if status.st_uid != user:
            raise NotWritableError(
                f"{path} belongs to another user (uid {status.st_uid})",
                hint=f"run iris as that user, or: sudo chown {user} {_quote(path)}",
            )
    if fix := _chmod_command(statuses):
        raise NotWritableError(f"{directory} is open to other users", hint=fix)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise _disk_error(directory) or NotWritableError(
            f"{directory} can't be written", hint="use another directory with --state-dir"
        )


def disk_problem(directory: Path) -> str:
    """Return a text about a full or read-only disk, with a fix; "" if the disk is writable."""
    error = _disk_error(directory)
    return f"{error.message}, no cycle can run: {error.hint}" if error is not None else ""


def check_disk(directory: Path) -> None:
    """Raise NotWritableError if the disk is full or read-only."""
    if (error := _disk_error(directory)) is not None:
        raise error


def write_fix(directory: Path) -> str:
    """Return a fix if disk or permissions prevent this user from writing the state, otherwise ""."""
    error = _disk_error(directory)
    return error.hint if error is not None else permission_problem(directory)


def _disk_error(directory: Path) -> NotWritableError | None:
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


def permission_problem(directory: Path) -> str:
    """Return a text if owners or permissions prevent this user from writing the state, otherwise ""."""
    try:
        check_writable(directory)
    except NotWritableError as error:
        return f"{error.message}: {error.hint}"
    except (OSError, NotFoundError):  # the state may not exist yet
        return ""
    return ""


def _statuses(directory: Path) -> dict[str, os.stat_result]:
    """Return the status of the state directory (which may be a link) and of its existing files."""
    top = str(directory)
    statuses = {}
    for path in (top, *(f"{top}/{name}" for name in (LOG, HEAD, LOCK, HOLDER, ARCHIVE))):
        try:
            statuses[path] = os.stat(path, follow_symlinks=path == top)
        except FileNotFoundError:
            continue
    return statuses


def _check_file_types(directory: Path, statuses: dict[str, os.stat_result]) -> None:
    directories = (str(directory), f"{directory}/{ARCHIVE}")
    for path, status in statuses.items():
        if stat.S_ISLNK(status.st_mode):
            raise NotWritableError(f"{path} is a symbolic link", hint="replace it with a regular file")
        if path in directories and not stat.S_ISDIR(status.st_mode):
            raise NotWritableError(f"{path} is not a directory", hint="move it away")
        if path not in directories and not stat.S_ISREG(status.st_mode):
            raise NotWritableError(f"{path} is not a regular file", hint="move it away")


def _chmod_command(statuses: dict[str, os.stat_result]) -> str:
    """Return the `chmod` command that removes other users' access to the state; "" if they have none."""
    return " && ".join(
        f"chmod {PRIVATE_DIRECTORY if stat.S_ISDIR(status.st_mode) else PRIVATE_FILE:o} {_quote(path)}"
        for path, status in statuses.items()
        if status.st_mode & 0o077
    )


def _quote(path: str) -> str:
    import shlex  # slow to import, and only for error messages

    return shlex.quote(path)


def network_file_system(path: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """Return the type of the file system under `path` if it is a network file system or FUSE, otherwise ""."""
    target = f"{path.resolve()}/"
    kind, longest = "", 0
    for mounted_at, mounted_kind in _mounts_of_macos() if sys.platform == "darwin" else _mounts(mounts):
        point = mounted_at.rstrip("/") + "/"
        if target.startswith(point) and len(point) >= longest:
            kind, longest = mounted_kind, len(point)
    return kind if kind in _NETWORK | _CLUSTERED or kind.startswith(_FUSE) else ""


def _mounts(table: Path) -> list[tuple[str, str]]:
    """Return (mount point, type) pairs, in the order of mounting."""
    try:
        entries = [line.split(" ") for line in table.read_text(errors="replace").splitlines()]
    except OSError:
        return []
    return [
        (_ESCAPE.sub(lambda match: chr(int(match[1], 8)), point), kind)
        for _device, point, kind, *_ in entries
    ]


def _mounts_of_macos() -> list[tuple[str, str]]:
    import subprocess  # slow to import, and only on macOS

    try:
        output = subprocess.run(
            ["/sbin/mount"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_mount_command(output)


def parse_mount_command(output: str) -> list[tuple[str, str]]:
    """Parse lines like `//me@nas/x on /Volumes/x (smbfs, nodev, nosuid)` into (mount point, type) pairs."""
    return [
        (match[1], match[2]) for match in re.finditer(r"^.*? on (.*) \((\w+)[,)].*$", output, re.MULTILINE)
    ]


def record_warning(directory: Path, kind: str) -> bool:
    """Record a warning about the file system type `kind`. Return True if this warning was recorded before.

    The caller holds the lock. If the write fails, the warning will be repeated.
    """
    with suppress(OSError), opened(directory / NETWORK_WARNED, os.O_RDWR | os.O_CREAT) as fd:
        if os.read(fd, 80) == kind.encode():
            return True
        os.truncate(fd, 0)
        os.pwrite(fd, kind.encode(), 0)
    return False


class LockHolder(Struct, frozen=True, kw_only=True):
    """A process that holds the lock. `actor` is `user@host`, `since` a UTC time as text."""

    pid: int
    actor: str
    command: str
    since: str

    @property
    def host(self) -> str:
        return self.actor.rpartition("@")[2]

    def __str__(self) -> str:
        return f"{clip(self.command)!r} (pid {self.pid}, {clip(self.actor)}) since {clip(self.since)}"


@contextmanager
def recorded_holder(directory: Path, holder: LockHolder) -> Iterator[None]:
    """Record the lock's holder during the block. Errors are ignored."""
    with ExitStack() as stack:
        with suppress(OSError):
            fd = stack.enter_context(opened(f"{directory}/{HOLDER}", os.O_WRONLY | os.O_CREAT))
            _write_holder(fd, encode(holder) + b"\n")
            stack.callback(_write_holder, fd, b"")
        yield


def read_holder(directory: Path, host: str) -> LockHolder | None:
    """Return the recorded holder; None if none is recorded, or if it is a dead process on `host`."""
    try:
        with opened(directory / HOLDER, os.O_RDONLY) as fd:
            holder = decode(LockHolder, os.read(fd, _MAX_HOLDER))
        stale = holder.host == host and _is_dead(holder.pid)
        return None if stale else holder
    except (OSError, ValueError, OverflowError):
        return None


def is_stopped(pid: int) -> bool:
    """Return whether the local process is stopped by a signal such as Ctrl-Z; False if unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as status:
            return status.read().rpartition(") ")[2].startswith("T")
    except OSError:
        return False


def _is_dead(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


def _write_holder(fd: int, data: bytes) -> None:
    """Overwrite the file in place, because truncating it would double the work of the next fsync. Ignore errors."""
    data = data.ljust(_MIN_HOLDER)
    with suppress(OSError):
        os.pwrite(fd, data, 0)
        if os.fstat(fd).st_size > len(data):
            os.ftruncate(fd, len(data))


def slice_owner_of(directory: Path, *, host: str, shared: bool) -> SliceOwner:
    """Return the directory as an owner of slices.

    `shared`: the directory is on a network file system, so several machines may use it, and the machine is not a part
    of the identity. Renaming the directory within its file system keeps the identity. Raises OSError.
    """
    number = os.stat(directory).st_ino
    machine = "" if shared else _machine_hash()
    return SliceOwner(place=f"{machine}:{number}", where=f"{host}:{directory.absolute()}")


def _machine_hash() -> str:
    """Return a hash of the machine id; "" if the machine has no id."""
    from hashlib import sha256  # slow to import, and only for owners of slices

    for path in _MACHINE_IDS:
        with suppress(OSError, ValueError):
            machine_id = Path(path).read_text(encoding="ascii").strip()
            if machine_id and machine_id != "uninitialized":
                return sha256(f"iris {machine_id}".encode("ascii")).hexdigest()[:16]
    return ""
