"""Devices of a host, which are regular files, and programs that hold them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from iris_cli.remote.worker_script import HostPaths
from tests.support.waiting import until
from tests.support.worker_host import command_line, kill

HOLD = """
import os, signal, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "daemon" in sys.argv and os.fork():
    os._exit(0)
files = [open(path) for path in sys.argv[2:] if path.startswith("/")]
open(sys.argv[1], "w").write(f"{os.getpid()}\\n")
while True:
    time.sleep(0.05)
"""
"""A program for `sys.executable -c`. Arguments: the file for its pid, then `deaf`, `daemon`, and paths to hold."""


class Devices:
    """`accel0` and `vfio/1` of a host, its lock file, and their holders; `release` ends these and `others`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.dev, self.lock = directory / "dev", directory / "lockfile"
        (self.dev / "vfio").mkdir(parents=True)
        self.chips = [str(self.dev / name) for name in ("accel0", "vfio/1")]
        for path in (*self.chips, f"{self.dev}/vfio/vfio"):
            Path(path).touch()
        self.others: list[int] = []
        self._holders: list[subprocess.Popen[bytes]] = []

    @property
    def paths(self) -> HostPaths:
        return HostPaths(dev=str(self.dev), lock=str(self.lock))

    def hold(self, *words: str, env: Mapping[str, str] | None = None, program: str = HOLD) -> int:
        """Start a program that holds `accel0`, or the paths in `words`; return its pid once it holds them."""
        paths = words if any(word.startswith("/") for word in words) else (*words, self.chips[0])
        told = self.directory / f"holder-{len(self._holders)}"
        command = [sys.executable, "-c", program, str(told), *paths]
        self._holders.append(subprocess.Popen(command, env=env, start_new_session=True))
        until(lambda: told.exists() and told.read_text().endswith("\n"))
        return int(told.read_text())

    def release(self) -> None:
        for process in self._holders:
            process.kill()
            process.wait()
        for pid in self.others:
            if any(str(self.directory) in word for word in command_line(pid)):
                kill(pid)
