"""What tells a state directory from its copies: its number in the file system, and the machine."""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from iris_cli.core.model.slice import Keeper

_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")


def keeper_in(directory: Path, *, host: str, shared: bool) -> Keeper:
    """The directory as one that looks after slices. `shared`: many machines may have it, for it is on a network.

    It stays the same when it gets another name on its file system, and becomes another one by being copied, unpacked or
    moved to another file system or machine. Raises OSError.
    """
    number = os.stat(directory).st_ino
    machine = "" if shared else _machine()
    return Keeper(place=f"{machine}:{number}", where=f"{host}:{directory.absolute()}")


def _machine() -> str:
    """A hash of what the system calls this machine, "" where it doesn't: the number alone has to do then."""
    for path in _MACHINE_IDS:
        with suppress(OSError, ValueError):
            said = Path(path).read_text(encoding="ascii").strip()
            if said and said != "uninitialized":
                return sha256(f"iris {said}".encode("ascii")).hexdigest()[:16]
    return ""
