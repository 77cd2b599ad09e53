"""Hosts that boot: servers in their own namespaces, with a process table, a boot id and a small /tmp.

For root, on Linux. A host and its processes end with its server.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from tests.support.in_memory import IN_MEMORY
from tests.support.sshd import SshHost, SshLab
from tests.support.waiting import until

BOOT_ID = "/proc/sys/kernel/random/boot_id"
OWN = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_BOOT = f'mount --bind "$1" {BOOT_ID} && mount -t tmpfs -o size=256k iris-test "$2" && shift 2 && exec "$@"'


@dataclass(eq=False)
class Machine(SshHost):
    """A server that is the first process of its host."""

    @property
    def small_disk(self) -> Path:
        """Return a directory with room for 256 KiB, which tests may fill."""
        return Path("/tmp" if self.directory.is_relative_to(IN_MEMORY) else IN_MEMORY)

    def reboot(self) -> None:
        """Kill all its processes and start it with another boot id."""
        self.stop()
        until(self._is_port_free)  # `stop` waits for `unshare`, not for its child, the server
        self.start()

    def _is_port_free(self) -> bool:
        with socket.socket() as sock, suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as sshd does
            sock.bind((self.address, self.port))
            return True
        return False

    def _spawn(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        boot_id = self.directory / "boot_id"
        boot_id.write_text(f"{uuid.uuid4()}\n")
        boot = ("sh", "-c", _BOOT, "sh", str(boot_id), str(self.small_disk))
        return super()._spawn([*OWN, *boot, *command], log)


class MachineLab(SshLab):
    """A lab whose servers are such hosts. They accept the key of another lab."""

    kind, prefix = Machine, "machine"

    def __init__(self, directory: Path, client_key: Path) -> None:
        super().__init__(directory)
        for suffix in ("", ".pub"):
            shutil.copy(f"{client_key}{suffix}", f"{self.client_key}{suffix}")


@cache
def why_no_machines() -> str:
    """Return why such hosts can't run on this machine; "" if they can."""
    if shutil.which("unshare") is None:
        return "no unshare command (install util-linux)"
    tried = subprocess.run(
        [*OWN, "sh", "-c", f"mount --bind /dev/null {BOOT_ID}"], capture_output=True, text=True
    )
    return tried.stderr.strip() if tried.returncode else ""
