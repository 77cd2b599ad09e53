"""The environment of a new user: an empty directory, a key, gcloud, and VMs that are SSH servers on this machine.

~/.ssh/config maps the addresses that gcloud lists to the servers.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.pasted import ROOT, put_iris
from tests.support.sshd import SshLab
from tests.support.typed_lines import typed
from tests.support.waiting import until

HOME = "/home/ann"
"""Replaces the directory of a test in the output."""
COLUMNS = 100
_EXAMPLES = ROOT / "examples" / "first_gang"


@dataclass
class Newcomer:
    """The home of a user, Ann. `vms` are the servers that act as her VMs.

    `loop`: `auto` if her commands may start the background loop; the test must stop it.
    """

    directory: Path
    lab: SshLab
    loop: str = "off"

    @property
    def place(self) -> Path:
        """Return her working directory."""
        return self.directory / "lab"

    def settle(self, listed: Sequence[Path], servers: int) -> None:
        """Make her home, and servers that act as the VMs of the lists in turn."""
        for name in ("lab", "bin", "framework", "meetings"):
            (self.directory / name).mkdir(parents=True)
        (self.directory / ".ssh").mkdir(mode=0o700)
        for suffix, mode in (("", 0o600), (".pub", 0o644)):
            key = self.directory / ".ssh" / f"google_compute_engine{suffix}"
            shutil.copyfile(f"{self.lab.client_key}{suffix}", key)
            key.chmod(mode)
        put_iris(self.directory / "bin")
        lists = " ".join(f"'{path}'" for path in listed)
        (self.directory / "bin" / "gcloud").write_text(f"#!/bin/sh\ncat {lists}\n")
        (self.directory / "bin" / "gcloud").chmod(0o755)
        shutil.copyfile(
            Path(__file__).with_name("framework.py"), self.directory / "framework" / "framework.py"
        )
        for program in _EXAMPLES.glob("*.py"):
            shutil.copyfile(program, self.place / program.name)
        self._lead(listed, servers)

    def types(self, line: str, *answers: str) -> str:
        """Return the terminal's output for a line that she types, with names replaced as for readers."""
        shown = typed(line, self.place, self._env(), columns=COLUMNS, answers=answers)
        return re.sub(r" +$", "", shown.replace(str(self.directory), HOME), flags=re.MULTILINE)

    def live_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let this process use her home and environment."""
        for name in [each for each in os.environ if each.startswith(("IRIS_", "XDG_", "SSH_"))]:
            monkeypatch.delenv(name)
        for name, value in self._env().items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(self.place)

    def hold(self, job: str) -> None:
        """Let a job wait at its first step until it is released."""
        (self.directory / "meetings" / f"{job}.held").touch()

    def release(self, job: str) -> None:
        (self.directory / "meetings" / f"{job}.held").unlink()

    def settle_job(self, job: str) -> None:
        """Run cycles until no rank of a job that has ended is still being stopped."""

        def is_settled() -> bool:
            self.types("iris schedule --once --quiet")
            return "STOPPING" not in self.types(f"iris status {job}")

        until(is_settled)

    def wait(self, _longer: str) -> None:
        """Use longer timeouts: this machine may be busy with other tests."""
        with (self.place / "cluster.yaml").open("a") as config:
            config.write("limits: {connect_timeout: 1m, dispatch_timeout: 1m}\n")

    def _env(self) -> dict[str, str]:
        paths = (str(self.directory / "bin"), "/usr/bin", "/bin")
        home = {"HOME": str(self.directory), "LOGNAME": "ann", "USER": "ann", "PATH": ":".join(paths)}
        return {
            **home,
            "IRIS_LOOP": self.loop,
            "PYTHONPATH": str(ROOT),
            "TERM": "dumb",
            "NO_COLOR": "1",
            "COLUMNS": str(COLUMNS),
            "LINES": "50",
            "LC_ALL": "C.UTF-8",
        }

    def _lead(self, listed: Sequence[Path], servers: int) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        on_vms = {"PATH": path, "PYTHONPATH": str(self.directory / "framework")}
        vms = self.lab(servers, env={**on_vms, "FRAMEWORK": str(self.directory / "meetings")})
        lines = []
        for number, addresses in enumerate(_addresses(listed)):
            vm = vms[number % servers]
            lines += [f"Host {' '.join(addresses)}", f"  HostName {vm.address}", f"  Port {vm.port}"]
            lines += [f"  User {getpass.getuser()}"]
        (self.directory / ".ssh" / "config").write_text("".join(f"{line}\n" for line in lines))


def _addresses(listed: Sequence[Path]) -> list[tuple[str, ...]]:
    """Return the internal and external addresses of each VM."""
    found = []
    for path in listed:
        said = json.loads(path.read_text())
        for node in said if isinstance(said, list) else said["nodes"]:
            for end in node.get("networkEndpoints", ()):
                both = end.get("ipAddress"), end.get("accessConfig", {}).get("externalIp")
                if addresses := tuple(address for address in both if address):
                    found.append(addresses)
    return found
