"""A cluster of local hosts for the demo: SSH servers on loopback, and the `cluster.yaml` that describes them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from iris_cli.capacity.local_hosts import vm_metadata
from iris_cli.core.dataclass import dataclass
from iris_cli.errors import IrisError

_MARKER = ".iris-demo-cluster"
_MODULE = "iris_cli.remote.local_host"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSlice:
    """One slice to play: its name, its TPU type, its zone, and the number of its hosts."""

    name: str
    type: str
    zone: str
    hosts: int


class LocalCluster:
    """The hosts of a demo, below one directory that nothing else uses.

    `keep` lets the servers outlive this process; `stop` ends them by the pids in `hosts.json`.
    """

    def __init__(self, root: Path, *, keep: bool = False) -> None:
        self.root = root
        self.keep = keep
        self._processes: list[subprocess.Popen[str]] = []

    @property
    def config(self) -> Path:
        return self.root / "cluster.yaml"

    def start(self, slices: Sequence[LocalSlice]) -> None:
        """Make keys, start one server per host, write `cluster.yaml` and the host keys. Raises IrisError."""
        from iris_cli.remote.local_keys import make_key

        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(self.root.iterdir()):
            raise IrisError(f"{self.root} is not empty", hint=f"iris demo --stop --dir {self.root}")
        (self.root / _MARKER).touch(mode=0o600)
        public = make_key(self.root / "id_ed25519")
        hosts = [(each, index) for each in slices for index in range(each.hosts)]
        known = []
        for each, index in hosts:
            name = f"{each.name}-{index}"
            host_dir = self.root / "hosts" / name
            host_dir.mkdir(mode=0o700, parents=True)
            known.append((name, make_key(host_dir / "host_key")))
            self._begin(
                {
                    "host_key": str(host_dir / "host_key"),
                    "client_key": public,
                    "home": str(host_dir / "home"),
                    "metadata": vm_metadata(
                        each.type, each.zone, each.name, index, each.hosts, preemptible=False
                    ),
                    "stay": self.keep,
                }
            )
        ports = [self._answer(process) for process in self._processes]
        self._write(slices, ports, known)

    def close(self) -> None:
        """End the servers that this process started, and remove the directory; nothing if they are kept."""
        if self.keep:
            return
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._remove()

    def stop(self) -> int:
        """End the servers of a kept cluster and remove its directory; returns how many were ended."""
        if not (self.root / _MARKER).is_file():
            raise IrisError(f"{self.root} holds no demo cluster", hint="name its directory with --dir")
        ended = 0
        for pid in json.loads((self.root / "hosts.json").read_text(encoding="utf-8")):
            if _is_ours(pid):
                os.kill(pid, signal.SIGTERM)
                ended += 1
        self.keep = False
        self._remove()
        return ended

    def _begin(self, settings: dict[str, object]) -> None:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is for the demo, which stops its tasks before its hosts
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        self._processes.append(process)

    def _answer(self, process: subprocess.Popen[str]) -> int:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise IrisError(
                "a local SSH server did not start", hint=f"try it by hand: {sys.executable} -m {_MODULE}"
            )
        return int(json.loads(line)["port"])

    def _write(self, slices: Sequence[LocalSlice], ports: list[int], known: list[tuple[str, str]]) -> None:
        pids = [process.pid for process in self._processes]
        (self.root / "hosts.json").write_text(json.dumps(pids), encoding="utf-8")
        state = self.root / "state"
        state.mkdir(mode=0o700)
        (state / "known_hosts").write_text(
            "".join(f"{name} ssh-ed25519 {key}\n" for name, key in known), encoding="utf-8"
        )
        (state / "known_hosts").chmod(0o600)
        remaining = iter(ports)
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
            lines += [f"      - {{host: 127.0.0.1, port: {next(remaining)}}}" for _ in range(each.hosts)]
        self.config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _remove(self) -> None:
        # Only a directory that we marked as ours when it was empty.
        if (self.root / _MARKER).is_file():
            shutil.rmtree(self.root)


def _is_ours(pid: int) -> bool:
    """Whether the process is still one of our servers: pids are used again."""
    shown = subprocess.run(  # noqa: S603 - fixed program, the pid is an integer
        ["ps", "-o", "command=", "-p", str(pid)],  # noqa: S607 - ps is where PATH says
        capture_output=True,
        text=True,
        check=False,
    )
    return _MODULE in shown.stdout
