"""A whole site for end-to-end tests: real sshd processes, a `cluster.yaml` for them, and the `iris` command."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.command_server import command_server
from tests.support.forked import Forked
from tests.support.json_output import check_run
from tests.support.sshd import SshHost
from tests.support.terminal import IRIS, OF_ANOTHER_TERMINAL, Terminal
from tests.support.waiting import until


@dataclass
class Site:
    """An operator's directory and the hosts it knows. Hosts are the members of slices, in order."""

    directory: Path
    hosts: Sequence[SshHost]
    env: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.directory / "state"

    def write_config(
        self,
        slices: Mapping[str, Sequence[SshHost]],
        *,
        tpu: str,
        extra: str = "",
        **limits: str,
    ) -> None:
        """Configure slices with their hosts; the operator's known_hosts has all host keys.

        By default, no call to a host that answers times out.
        """
        limits = {"backoff_first": "1s", "connect_timeout": "1m", "dispatch_timeout": "1m"} | limits
        shown = ", ".join(f"{name}: {value}" for name, value in limits.items())
        lines = ["cluster: {name: lab}", "ssh:", f"  key: {self.hosts[0].client_key}"]
        lines += [f"limits: {{{shown}}}", "slices:"]
        for name, hosts in slices.items():
            lines += [f"  - name: {name}", f"    type: {tpu}", "    hosts:"]
            lines += [f"      - {host.address}:{host.port}" for host in hosts]
        (self.directory / "cluster.yaml").write_text("\n".join(lines) + "\n" + extra)
        ssh = self.directory / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        (ssh / "known_hosts").write_text("".join(host.known_hosts_line + "\n" for host in self.hosts))

    def iris(self, *words: str, code: int | None = 0, env: Mapping[str, str] | None = None) -> Ran:
        """Run one command and check its exit code (None: any)."""
        with TemporaryDirectory() as place:
            out, err = Path(place) / "out", Path(place) / "err"
            server = command_server()
            pid = server.start(words, directory=self.directory, env=self.environ(env), out=out, err=err)
            found = server.wait(pid)
            ran = Ran(words, found, out.read_text("utf-8"), err.read_text("utf-8"))
        assert code is None or ran.code == code, ran
        check_run(words, ran.out, ran.err)
        return ran

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> Forked:
        """Start a command; the caller ends it."""
        return Forked(words, cwd=self.directory, env=self.environ(env))

    def environ(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of its commands."""
        inherited = {name: value for name, value in os.environ.items() if name not in OF_ANOTHER_TERMINAL}
        return {**inherited, "HOME": str(self.directory), **self.env, **(env or {})}

    def terminal(self, *words: str, columns: int = 100, lines: int = 30) -> Terminal:
        """Start a command in a terminal."""
        env = {"HOME": str(self.directory), **self.env}
        return Terminal([*IRIS, *words], columns=columns, lines=lines, env=env, cwd=self.directory)

    def job(self, job: str) -> dict[str, Any]:
        """Return the output of `iris status JOB --json`."""
        return self.iris("status", job, "--json").json()

    def until(self, happened: Callable[[], bool], *, cycles: bool = True) -> None:
        """Run cycles until something has happened."""
        until(happened, between=lambda: cycles and self.iris("schedule", "--once", "--quiet"))

    def events(self) -> list[dict[str, Any]]:
        """Return all events of the log in order."""
        lines = (self.state / "events.jsonl").read_text().splitlines()
        return [event for line in lines for event in json.loads(line)["events"]]


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    words: Sequence[str]
    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found
