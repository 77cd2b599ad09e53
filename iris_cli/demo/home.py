"""The temporary directory of a demo, and SSH keys. If a demo is killed, the next demo removes its directory."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from iris_cli.demo.processes import end_processes, remove_tree

_PREFIX = "iris-demo-"
_LOCK = ".iris-demo-runs"
_CONTENT = "lab"


@contextmanager
def demo_home() -> Iterator[Path]:
    """Create a directory, yield it, and remove it at the end of the block. First remove directories of killed demos.

    Each demo locks a file next to its directory. A file without a lock belongs to a killed demo.
    """
    _remove_killed_demos()
    root = Path(tempfile.mkdtemp(prefix=_PREFIX))
    draft = root / f"{_LOCK}.draft"
    with draft.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        draft.rename(root / _LOCK)  # rename only a locked file
        try:
            (root / _CONTENT).mkdir()
            yield root / _CONTENT
        finally:
            _remove(root)


def _remove(root: Path) -> None:
    """Remove the content and then the directory with its lock file. If this fails, the next demo tries again."""
    with suppress(OSError):
        if (root / _CONTENT).exists():
            remove_tree(root / _CONTENT)
        remove_tree(root)


def _remove_killed_demos() -> None:
    """Kill the processes that this user's killed demos have left, and remove their directories."""
    for root in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")):
        with suppress(OSError):
            status = root.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            fd = os.open(root / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    end_processes(root / _CONTENT)
                    _remove(root)
            finally:
                os.close(fd)


# Keys for hosts on this machine.


def make_key(path: Path) -> str:
    """Write a new Ed25519 private key (0600, OpenSSH format). Return the public key in base64."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(private)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return public.split()[1].decode("ascii")
