"""The identity of a state directory, computed from its inode and the machine. A copy has another identity."""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from iris_cli.core.model.slice import SliceOwner

_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")


def slice_owner_of(directory: Path, *, host: str, shared: bool) -> SliceOwner:
    """Return the directory as an owner of slices.

    `shared`: the directory is on a network file system, so several machines may use it, and the machine is not a part
    of the identity. Renaming the directory within its file system keeps the identity. Raises OSError.
    """
    number = os.stat(directory).st_ino
    machine = "" if shared else _machine()
    return SliceOwner(place=f"{machine}:{number}", where=f"{host}:{directory.absolute()}")


def _machine() -> str:
    """Return a hash of the machine id; "" if the machine has no id."""
    for path in _MACHINE_IDS:
        with suppress(OSError, ValueError):
            machine_id = Path(path).read_text(encoding="ascii").strip()
            if machine_id and machine_id != "uninitialized":
                return sha256(f"iris {machine_id}".encode("ascii")).hexdigest()[:16]
    return ""
