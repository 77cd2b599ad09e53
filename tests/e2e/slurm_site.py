"""An operator's directory, a real Slurm, and an SSH server for each of its nodes: all nodes are this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.site import Site
from tests.support.slurm import Slurm
from tests.support.sshd import SshHost
from tests.support.waiting import until

CONFIG = """
cluster: {{name: lab}}
ssh: {{key: {key}, known_hosts: accept-new}}
limits: {{connect_timeout: 1m, dispatch_timeout: 1m, backoff_first: 1s, {limits}}}
scale_groups:
  - name: pool
    max_slices: {most}
    idle_timeout: {idle}
    slice_template: {{provider: slurm, {template}}}
"""
GANG = ("--group-by", "tpu-name", "--replicas", "2")
_ENDED = frozenset({"SUCCEEDED", "FAILED", "KILLED"})


@dataclass
class SlurmSite(Site):
    """Node `n0` is reached by the first server, and so on: `~/.ssh/config` says so."""

    slurm: Slurm | None = None

    def configure(
        self,
        template: str = "nodes: 2",
        *,
        most: int = 1,
        idle: str = "1h",
        limits: str = "settle_seconds: 1s",
    ) -> None:
        """Write `cluster.yaml`, with these keys of the template and limits, and the SSH configuration."""
        assert self.slurm is not None
        self.env["SLURM_CONF"] = str(self.slurm.conf)
        text = CONFIG.format(
            key=self.hosts[0].client_key if self.hosts else "none",
            template=template,
            most=most,
            idle=idle,
            limits=limits,
        )
        (self.directory / "cluster.yaml").write_text(text)
        ssh = self.directory / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        nodes = (
            f"Host n{number}\n  HostName {host.address}\n  Port {host.port}\n"
            for number, host in enumerate(self.hosts)
        )
        (ssh / "config").write_text("".join(nodes))

    def cycle(self) -> None:
        self.iris("schedule", "--once", "--autoscale", "--quiet", code=None)

    def cycle_until(self, happened: Callable[[], object]) -> None:
        """Run cycles, as cron runs them, until something has happened."""

        def cycled() -> bool:
            self.cycle()
            return bool(happened())

        until(cycled, lambda: self.iris("status").out)

    def run_until(self, job: str, state: str) -> dict[str, Any]:
        """Run cycles until a job is in that state, and return it; fail if it ends in another."""

        log, seen = self.state / "events.jsonl", -1

        def is_there() -> bool:
            nonlocal seen
            before, seen = seen, log.stat().st_size
            if before == seen:  # nothing is recorded: it is in the same state
                return False
            now = self.state_of(job)
            assert now == state or now not in _ENDED, self.iris("status", job, code=None).out
            return now == state

        self.cycle_until(is_there)
        return self.job(job)

    def state_of(self, job: str) -> str:
        return str(self.job(job)["state"])

    def slices(self) -> dict[str, dict[str, Any]]:
        """The slices by name, as `iris status` shows them."""
        groups = self.iris("status", "--json").json()["scaling"]["groups"]
        return {each["name"]: each for group in groups for each in group["slices"]}

    def of_type(self, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in self.events() if event["type"] in kinds]

    def allocation(self) -> str:
        """The id of the Slurm job of the only slice that has started."""
        return str(self.of_type("SliceStarted")[-1]["incarnation"]).partition(" ")[0]

    def live_jobs(self) -> list[str]:
        """The ids of the jobs that Slurm has not ended."""
        assert self.slurm is not None
        return self.slurm.run("squeue", "--noheader", "--format=%i").split()


def slurm_site(slurm: Slurm, hosts: list[SshHost], directory: Path) -> SlurmSite:
    path = directory / "operator"
    path.mkdir()
    site = SlurmSite(path, hosts, slurm=slurm)
    site.configure()
    assert os.geteuid() == 0
    return site
