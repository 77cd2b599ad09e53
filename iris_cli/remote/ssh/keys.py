"""Private keys for authentication."""

import base64
import os
import shlex
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import paramiko

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.ssh.config import Hop
from iris_cli.remote.transport import NoAnswer

DEFAULT_IDENTITIES = (Path("~/.ssh/id_ed25519"), Path("~/.ssh/id_ecdsa"), Path("~/.ssh/id_rsa"))
MAX_OFFERED = 5
"""Maximum number of keys offered to a server. OpenSSH disconnects after six (`MaxAuthTries`)."""
MAX_KEY_SIZE = 64 << 10

_MAGIC = b"openssh-key-v1\0"


class UnusableKey(NoAnswer):
    """A key file can't be used. `hint` is a command that fixes it. `missing`: True if there is no such file."""

    def __init__(self, detail: str, hint: str, *, missing: bool = False) -> None:
        super().__init__(SilenceKind.LOCAL, "key", detail, hint=hint, sent=False)
        self.missing = missing


class KeyRing:
    """Private keys. Each file is loaded once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[Path, paramiko.PKey | bytes] = {}

    @contextmanager
    def keys_for_hop(self, hop: Hop) -> Iterator[list[paramiko.PKey]]:
        """Yield the keys to offer to a server in order, at least one.

        Raises NoAnswer for wrong SSH settings. Each use has its own connection to the agent, because the agent accepts
        one request at a time on a connection.
        """
        with _agent_keys() as agent_keys:
            keys: list[paramiko.PKey] = [] if hop.has_own_key or hop.identities_only else list(agent_keys)
            problems: list[UnusableKey] = []
            for path in hop.identities or DEFAULT_IDENTITIES:
                try:
                    keys.append(self._load_usable(path.expanduser(), agent_keys))
                except UnusableKey as problem:
                    problems.append(problem)
            if not keys:  # report the first problem, except missing default keys
                hint = "ssh-keygen -t ed25519  # or set ssh.key in cluster.yaml"
                reported = (each for each in problems if hop.identities or not each.missing)
                raise next(reported, UnusableKey("no SSH key to offer", hint))
            distinct = {key.asbytes(): key for key in reversed(keys)}
            yield list(reversed(distinct.values()))[:MAX_OFFERED]

    def _load_usable(self, path: Path, agent_keys: Sequence[paramiko.PKey]) -> paramiko.PKey:
        with self._lock:
            if path not in self._loaded:
                self._loaded[path] = _load(path)
            loaded = self._loaded[path]
        if isinstance(loaded, paramiko.PKey):
            return loaded
        for key in agent_keys:
            if key.asbytes() == loaded:
                return key
        hint = f"ssh-add {shlex.quote(str(path))}"
        raise UnusableKey(f"the key {path} has a passphrase and no ssh-agent holds it", hint)


@contextmanager
def _agent_keys() -> Iterator[tuple[paramiko.PKey, ...]]:
    """Yield the keys in the ssh-agent; () if there is no agent or it fails."""
    try:
        agent = paramiko.Agent()
    except (paramiko.SSHException, OSError):
        yield ()
        return
    try:
        yield tuple(agent.get_keys())
    finally:
        agent.close()


def _load(path: Path) -> paramiko.PKey | bytes:
    """Return the private key in a file. If the key is encrypted, return the public key in SSH wire format."""
    data = _read(path)
    try:
        public = _public_if_encrypted(path, data)
        return paramiko.PKey.from_path(path) if public is None else public
    except UnusableKey:
        raise
    except OSError as error:  # its certificate, PATH-cert.pub
        raise _unreadable(Path(error.filename or path), error) from error
    except Exception as error:  # paramiko raises various types
        hint = "set ssh.key in cluster.yaml to a private key"
        raise UnusableKey(f"{path} is not a usable private key: {error}", hint) from error


def _read(path: Path) -> bytes:
    """Read a key file. As ssh does, reject a file of this user that other users can read. Raises UnusableKey."""
    quoted = shlex.quote(str(path))
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077:
                raise UnusableKey(f"the key {path} is readable by others", f"chmod 600 {quoted}")
            return file.read(MAX_KEY_SIZE)
    except FileNotFoundError:
        hint = f"ssh-keygen -t ed25519 -f {quoted}  # or correct ssh.key in cluster.yaml"
        raise UnusableKey(f"no such key file: {path}", hint, missing=True) from None
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> UnusableKey:
    """Return the error for a file that can't be read. Its hint corrects or shows the permissions."""
    quoted = shlex.quote(str(path))
    hint = f"ls -ld {quoted}"
    if isinstance(error, PermissionError):
        try:
            is_own = path.stat().st_uid == os.getuid()
        except OSError:  # the directory can't be entered
            hint = f"ls -ld {shlex.quote(str(path.parent))}"
        else:
            owner = "" if is_own else f"sudo chown $(id -un) {quoted} && "
            hint = f"{owner}chmod 600 {quoted}"
    return UnusableKey(f"can't read the key {path}: {error.strerror}", hint)


def _public_if_encrypted(path: Path, data: bytes) -> bytes | None:
    """Return the public key of an encrypted private key; None if it is not encrypted.

    OpenSSH's format (PROTOCOL.key) contains the public key unencrypted. For older formats the `.pub` file is read.
    """
    text = data.decode("ascii", "replace")
    if "BEGIN OPENSSH PRIVATE KEY" not in text:
        return _public_file(path) if "ENCRYPTED" in text else None
    body = "".join(line for line in text.splitlines() if "-----" not in line)
    blob = base64.b64decode(body)
    if not blob.startswith(_MAGIC):
        raise ValueError("not in OpenSSH's format")
    message = paramiko.Message(blob[len(_MAGIC) :])
    cipher = message.get_binary()
    message.get_binary()  # key derivation function
    message.get_binary()  # options of the key derivation function
    message.get_int()  # number of keys, always one
    return None if cipher in (b"", b"none") else message.get_binary()


def _public_file(path: Path) -> bytes:
    try:
        text = path.with_name(path.name + ".pub").read_text(encoding="utf-8")
        return base64.b64decode(text.split()[1])
    except (OSError, ValueError, IndexError):
        return b""
