"""A cluster of local hosts for the demo: SSH servers on loopback, and the `cluster.yaml` that describes them."""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from iris_cli.demo import processes
from iris_cli.errors import IrisError, NotWritableError

_MARKER = ".iris-demo-cluster"
_HOSTS = "hosts.json"


class LocalSlice(Struct, frozen=True, kw_only=True):
    """A slice to simulate. `type`: TPU type. `hosts`: number of hosts."""

    name: str
    type: str
    zone: str
    hosts: int


TPU = "v5litepod-16"
SLICES = (
    LocalSlice(name="west", type=TPU, zone="us-west4-a", hosts=4),
    LocalSlice(name="east", type=TPU, zone="us-east1-c", hosts=4),
)
"""The slices of `iris demo`."""


class LocalCluster:
    """The hosts of a demo. Their files are in the directory `root`.

    With `keep` the hosts outlive this process. `stop` finds them by the pids in `hosts.json`.
    """

    def __init__(self, root: Path, *, keep: bool = False) -> None:
        self.root = root
        self.keep = keep
        self._processes: list[subprocess.Popen[str]] = []

    @property
    def config(self) -> Path:
        return self.root / "cluster.yaml"

    def claim(self) -> None:
        """Mark the empty directory as a demo's directory: `stop` may delete its content. Raises IrisError."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_empty = not any(self.root.iterdir())
        except OSError as error:
            raise NotWritableError(f"{self.root} can't be used: {error.strerror or error}") from error
        if not is_empty:
            hint = f"iris demo --stop --dir {shlex.quote(str(self.root))}"
            raise IrisError(f"{self.root} is not empty", hint=hint if self._is_claimed() else "")
        (self.root / _MARKER).touch(mode=0o600)

    def start(self, slices: Sequence[LocalSlice]) -> None:
        """Create keys, start a server for each host, and write `cluster.yaml` and the host keys. Raises IrisError."""
        public = processes.make_key(self.root / "id_ed25519")
        hosts = [(each, index) for each in slices for index in range(each.hosts)]
        started = self._processes = [processes.spawn_host() for _ in hosts]
        # Write the pids first. With `keep`, a configured host outlives a crash of this process, and `stop` must find
        # it. A host without configuration ends by itself.
        (self.root / _HOSTS).write_text(json.dumps([process.pid for process in started]), encoding="utf-8")
        for process, (each, index) in zip(started, hosts, strict=True):
            processes.configure_host(
                process,
                self.root / "hosts" / f"{each.name}-{index}",
                metadata=processes.vm_metadata(
                    each.type, each.zone, each.name, index, each.hosts, preemptible=False
                ),
                client_key=public,
                stay=self.keep,
            )
        try:
            answers = [processes.await_host(process) for process in started]
        except ValueError:
            hint = f"try it by hand: {sys.executable} -m {processes.MODULE}"
            raise IrisError("a local SSH server did not start", hint=hint) from None
        self._write_files(slices, answers)

    def close(self) -> None:
        """End the servers of this process and remove the directory, unless `keep` is true."""
        if self.keep:
            return
        for process in self._processes:
            with process:
                process.kill()
        self._remove()

    def check(self) -> None:
        """Raise IrisError if the directory is not a demo's directory."""
        if not self._is_claimed():
            raise IrisError(f"no demo cluster in {self.root}", hint="name its directory with --dir")

    def stop(self) -> int:
        """End the servers of a kept cluster and remove its directory. Return the number of servers."""
        self.check()
        ended = processes.kill_hosts(self.root / _HOSTS)
        self._remove()
        return ended

    def _is_claimed(self) -> bool:
        return (self.root / _MARKER).is_file()

    def _write_files(self, slices: Sequence[LocalSlice], answers: list[dict[str, Any]]) -> None:
        state = self.root / "state"
        state.mkdir(mode=0o700)
        names = [f"{each.name}-{index}" for each in slices for index in range(each.hosts)]
        known = [f"{name} {host['key']}\n" for name, host in zip(names, answers, strict=True)]
        (state / "known_hosts").write_text("".join(known), encoding="utf-8")
        (state / "known_hosts").chmod(0o600)
        ports = (host["port"] for host in answers)
        lines = [
            "cluster: {name: demo}",
            "ssh:",
            f"  key: {json.dumps(str(self.root / 'id_ed25519'))}",
            "slices:",
        ]
        for each in slices:
            lines += [
                f"  - name: {each.name}",
                f"    type: {each.type}",
                f"    zone: {each.zone}",
                "    hosts:",
            ]
            lines += [f"      - {{host: 127.0.0.1, port: {next(ports)}}}" for _ in range(each.hosts)]
        self.config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _remove(self) -> None:
        # Remove only a directory that `claim` has marked as a demo's directory.
        if self._is_claimed():
            processes.end_processes(self.root)
            processes.remove_tree(self.root)
