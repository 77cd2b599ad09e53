"""The VMs of emulated nodes: only addresses, or SSH hosts on this machine."""

from __future__ import annotations

import select
import subprocess
from base64 import b64encode
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from iris_cli.demo.processes import (
    await_host,
    configure_host,
    end_processes,
    remove_tree,
    spawn_host,
    vm_metadata,
)
from tests.support.tpu_emulator.records import Machine, Node

_MARKER = ".iris-tpu-emulator"
_TPU_PORT = 8470  # the real service reports it for all VMs; no SSH server listens there


class Machines:
    """The VMs of nodes, by number, started and stopped without waiting.

    These have only addresses and keys; external addresses are in 198.18/15, which no host uses (RFC 2544).
    """

    def begin(self, node: Node) -> None:
        """Start the VMs of a new node."""

    def look(self, node: Node) -> tuple[Machine, ...] | None:
        """Return their addresses by worker number; None while they boot."""
        subnet = f"10.{18 + node.uid // 256 % 2}.{node.uid % 256}"
        return tuple(
            Machine(f"{subnet}.{index + 2}", _TPU_PORT, _key_on_paper(f"{node.uid} {index}"))
            for index in range(node.vms)
        )

    def end(self, node: Node) -> None:
        """Stop them and all their processes. Idempotent."""


def _key_on_paper(seed: str) -> str:
    """Return a text in the format of a host key, without a private key."""
    words = (b"ssh-ed25519", sha256(seed.encode()).digest())
    packed = b"".join(len(word).to_bytes(4, "big") + word for word in words)
    return f"ssh-ed25519 {b64encode(packed).decode()}"


class LocalMachines(Machines):
    """SSH servers on loopback, which accept the first key of the node's `ssh-keys`.

    Their files are in `root`, a directory for them alone. They end with this process, even if it is killed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._root / _MARKER).touch(mode=0o600)
        self._booting: dict[int, list[subprocess.Popen[str]]] = {}
        self._serving: dict[int, list[subprocess.Popen[str]]] = {}
        self._found: dict[int, tuple[Machine, ...]] = {}

    def begin(self, node: Node) -> None:
        self._remove_home(node)  # of an emulator that was killed
        begun = [spawn_host() for _ in range(node.vms)]
        for index, process in enumerate(begun):
            configure_host(
                process,
                self._home(node) / f"vm-{index}",
                metadata=vm_metadata(
                    node.kind.accelerator_type,
                    node.place.zone,
                    node.id,
                    index,
                    node.kind.vms,
                    preemptible=node.spot,
                ),
                client_key=_first_key(node),
                stay=False,
            )
        self._booting[node.uid] = begun

    def look(self, node: Node) -> tuple[Machine, ...] | None:
        booting = self._booting.get(node.uid)
        if booting is not None:
            streams = [process.stdout for process in booting if process.stdout]
            if len(select.select(streams, (), (), 0)[0]) < len(streams):
                return None
            self._found[node.uid] = tuple(_machine(process) for process in booting)
            self._serving[node.uid] = self._booting.pop(node.uid)
        return self._found.get(node.uid, ())

    def end(self, node: Node) -> None:
        for process in self._booting.pop(node.uid, []) + self._serving.pop(node.uid, []):
            process.kill()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):
                    stream.close()  # type: ignore[union-attr]  # both are pipes of ours
            process.wait()
        self._found.pop(node.uid, None)
        self._remove_home(node)

    def _remove_home(self, node: Node) -> None:
        home = self._home(node)
        if (self._root / _MARKER).is_file() and home.is_dir():  # only our own files
            end_processes(home)
            with suppress(OSError):
                remove_tree(home)

    def _home(self, node: Node) -> Path:
        return self._root / f"node-{node.uid}"  # not its id, which clients choose


def _machine(process: subprocess.Popen[str]) -> Machine:
    try:
        said = await_host(process)
    except ValueError:
        return Machine("127.0.0.1", 1, "")  # it ended before it served
    return Machine("127.0.0.1", said["port"], said["key"])


def _first_key(node: Node) -> str:
    """Return the public part of the first `user:type base64 comment` in the metadata, otherwise an unknown key."""
    words = str(node.spec.get("metadata", {}).get("ssh-keys", "")).split()
    return words[1] if len(words) > 1 else "none"
