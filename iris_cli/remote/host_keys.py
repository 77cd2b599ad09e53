"""Host keys: the user's known_hosts files, and iris's own file, which lists keys by worker.

The format of all files is described in sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT". Invalid lines are skipped, so that one
invalid line does not make all workers unreachable.
"""

import base64
import binascii
import fcntl
import hashlib
import hmac
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.files import DISK, opened, replace_file

MAX_FILE_SIZE = 16 << 20


class PresentedKey(Struct, frozen=True):
    """A public host key: type (`ssh-ed25519`), fingerprint as ssh prints it (`SHA256:…`), and the key in base64."""

    type: str
    fingerprint: str
    base64: str

    @classmethod
    def parse(cls, blob: bytes) -> "PresentedKey":
        """Parse a key in SSH wire format (RFC 4253, 6.6). Raises ValueError."""
        length = int.from_bytes(blob[:4], "big")
        kind = blob[4 : 4 + length]
        if not kind or len(kind) != length or re.fullmatch(rb"[A-Za-z0-9@.+-]{1,64}", kind) is None:
            raise ValueError("not a public key")
        digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
        return cls(kind.decode(), f"SHA256:{digest}", base64.b64encode(blob).decode())


class Line(Struct, frozen=True):
    """A valid line of a known_hosts file. `marker` is `""`, `"@revoked"` or `"@cert-authority"`."""

    marker: str
    patterns: str
    key: PresentedKey

    def applies_to(self, name: str) -> bool:
        """Return True if the line applies to `name`, a host name or `[host]:port`."""
        if self.patterns.startswith("|"):
            return _is_hash_of(self.patterns, name)
        patterns = self.patterns.lower().split(",")
        if any(p.startswith("!") and _matches(p[1:], name.lower()) for p in patterns):
            return False
        return any(_matches(p, name.lower()) for p in patterns)


class RecordedKeys(Struct, frozen=True):
    """The keys on record for one name.

    `revoked` are revoked keys, in base64. `certified`: True if a certificate authority is on record for the name.
    """

    keys: tuple[PresentedKey, ...] = ()
    revoked: frozenset[str] = frozenset()
    certified: bool = False


def parse(text: str) -> list[Line]:
    """Return the valid lines of a known_hosts file."""
    return [line for raw in text.splitlines() if (line := _parse_line(raw)) is not None]


def known_hosts_name(host: str, port: int) -> str:
    """Return a host's name in known_hosts files: bare for port 22, otherwise `[host]:port`."""
    return host if port == 22 else f"[{host}]:{port}"


class HostKeys:
    """The keys on record. New keys are written to `own`, the file of iris. The user's files are only read.

    Safe for threads and processes. An owner is a worker, or the name of a jump host. Methods raise OSError if a file
    can't be read or written, or if another user can write to `own`.
    """

    def __init__(self, own: Path) -> None:
        self._own = own
        self._lock = threading.Lock()
        self._parsed: dict[Path, list[Line]] = {}
        self._own_by_owner: dict[str, tuple[PresentedKey, ...]] | None = None
        self._version: tuple[int, ...] = ()  # version of our file when it was last read

    def find_worker_keys(self, worker: str, name: str, files: Sequence[Path]) -> RecordedKeys:
        """Return a worker's keys from our own file, otherwise from `files`. A revocation in `files` always applies."""
        own = self._own_keys(worker)
        # If our file has a key, search `files` only for revocations, because comparing hashed names is slow.
        return RecordedKeys(own, self._revoked(name, files)) if own else self._from_user_files(name, files)

    def find_jump_host_keys(self, name: str, files: Sequence[Path]) -> RecordedKeys:
        """Return a jump host's keys from `files`, otherwise from our own file.

        `files` come first, because the user corrects them with `ssh-keygen -R`.
        """
        recorded = self._from_user_files(name, files)
        return recorded if recorded.keys else replace(recorded, keys=self._own_keys(name))

    def add_first(self, owner: str, key: PresentedKey) -> bool:
        """Record `key` if `owner` has none. Return False if a different key is on record."""
        with self._rewriting() as lines:
            recorded = _by_owner(parse("\n".join(lines))).get(owner, ())
            if not recorded:
                lines.append(_format(owner, key))
        return not recorded or key in recorded

    def put(self, keys: Mapping[str, PresentedKey]) -> None:
        """Make each of these keys the only one on record for its owner."""
        with self._rewriting() as lines:
            lines[:] = [raw for raw in lines if _read_owner(raw) not in keys]
            lines += [_format(owner, key) for owner, key in keys.items()]

    def has(self, owner: str) -> bool:
        """Return True if our own file has a key of `owner`."""
        return bool(self._own_keys(owner))

    def forget(self, is_obsolete: Callable[[str], bool]) -> None:
        """Remove the keys of owners for which `is_obsolete` returns True."""
        if any(is_obsolete(_read_owner(raw)) for raw in _read(self._own, trusted=True).splitlines()):
            with self._rewriting() as lines:
                lines[:] = [raw for raw in lines if not is_obsolete(_read_owner(raw))]

    def _own_keys(self, owner: str) -> tuple[PresentedKey, ...]:
        with self._lock:
            version = _read_version(self._own)
            if self._own_by_owner is None or version != self._version:  # another process has written the file
                self._own_by_owner, self._version = _by_owner(parse(_read(self._own, trusted=True))), version
            return self._own_by_owner.get(owner, ())

    def _from_user_files(self, name: str, files: Sequence[Path]) -> RecordedKeys:
        lines = [line for path in files for line in self._load(path) if line.applies_to(name)]
        return RecordedKeys(
            keys=tuple(line.key for line in lines if not line.marker),
            revoked=self._revoked(name, files),
            certified=any(line.marker == "@cert-authority" for line in lines),
        )

    def _revoked(self, name: str, files: Sequence[Path]) -> frozenset[str]:
        marked = (line for path in files for line in self._load(path) if line.marker == "@revoked")
        return frozenset(line.key.base64 for line in marked if line.applies_to(name))

    def _load(self, path: Path) -> list[Line]:
        with self._lock:
            if path not in self._parsed:
                self._parsed[path] = parse(_read(path, trusted=False))
            return self._parsed[path]

    @contextmanager
    def _rewriting(self) -> Iterator[list[str]]:
        """Yield the lines of our file. At the end write the file atomically if the block has changed the lines."""
        self._own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock, _locked(self._own.with_name(self._own.name + ".lock")):
            lines = _read(self._own, trusted=True).splitlines()
            before = list(lines)
            yield lines
            if lines != before:
                text = "".join(f"{line}\n" for line in lines)
                replace_file(DISK, self._own, text.encode(), alone=False, synced=True)
            self._own_by_owner, self._version = _by_owner(parse("\n".join(lines))), _read_version(self._own)


def _parse_line(raw: str) -> Line | None:
    fields = raw.split()
    marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
    if len(fields) < 3 or fields[0].startswith("#") or marker not in ("", "@revoked", "@cert-authority"):
        return None
    try:
        key = PresentedKey.parse(base64.b64decode(fields[2], validate=True))
    except (ValueError, binascii.Error):
        return None
    return Line(marker, fields[0], key) if key.type == fields[1] else None


def _matches(pattern: str, name: str) -> bool:
    if not ("*" in pattern or "?" in pattern):
        return pattern == name
    regex = "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in re.sub(r"\*+", "*", pattern))
    return re.fullmatch(regex, name) is not None


def _is_hash_of(hashed: str, name: str) -> bool:
    """Match `|1|salt|HMAC-SHA1(salt, name)` (base64), as written by `HashKnownHosts`."""
    try:
        _, version, salt, digest = hashed.split("|")
        key, wanted = base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
    except (ValueError, binascii.Error):
        return False
    return version == "1" and hmac.compare_digest(hmac.digest(key, name.lower().encode(), "sha1"), wanted)


def _read_owner(raw: str) -> str:
    """Return the owner of the key in a line of our file; "" for a line without a key."""
    fields = raw.split()
    return fields[0] if len(fields) > 2 and fields[0][0] not in "#@" else ""


def _by_owner(lines: Sequence[Line]) -> dict[str, tuple[PresentedKey, ...]]:
    owners: dict[str, tuple[PresentedKey, ...]] = {}
    for line in lines:
        if not line.marker:
            owners[line.patterns] = (*owners.get(line.patterns, ()), line.key)
    return owners


def _format(owner: str, key: PresentedKey) -> str:
    return f"{owner} {key.type} {key.base64}"


def _read(path: Path, *, trusted: bool) -> str:
    """Return the text of a file, "" if missing. A `trusted` file must be regular, and writable only by this user."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if trusted else 0)
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:
        return ""
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if stat.S_ISCHR(status.st_mode):  # `UserKnownHostsFile /dev/null` means no keys
            return ""
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_SIZE:
            raise OSError(f"{path} is not a known_hosts file")
        if trusted and status.st_mode & 0o022:
            raise PermissionError(f"{path} is writable by others (chmod 600 {path})")
        return file.read(MAX_FILE_SIZE).decode("utf-8", "replace")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock. The file stays, because another process may be waiting for it."""
    with opened(path, os.O_RDWR | os.O_CREAT) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _read_version(path: Path) -> tuple[int, ...]:
    """Return a value that changes when the file is replaced."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size)
