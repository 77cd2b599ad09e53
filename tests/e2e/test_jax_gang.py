"""A real gang program: four JAX processes on four hosts find each other and agree on a sum."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.site import Site
from tests.support.sshd import SshHost

PROGRAM = Path(__file__).parents[2] / "examples" / "jax_allreduce" / "allreduce.py"

pytestmark = [
    pytest.mark.ssh,
    pytest.mark.jax,
    pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed: make test-jax"),
]


@pytest.mark.parametrize("preset", ["jax", "slurm"])
def test_every_rank_prints_the_same_sum(slice_of_four: Site, preset: str) -> None:
    site = slice_of_four
    rack(site, site.hosts)
    gang = ("--group-by", "rack", "--replicas", "4", "--cpu", "0.2", "--env-preset", preset)
    quiet = (
        "-e",
        "JAX_PLATFORMS=cpu",
        "-e",
        "XLA_FLAGS=--xla_cpu_multi_thread_eigen=false",
        "--timeout",
        "100s",
    )
    ran = site.iris(
        "launch", "--wait", *gang, *quiet, "--name", "sum", "--", sys.executable, str(PROGRAM), code=None
    )
    logs = site.iris("logs", "sum", "--no-fold", "--tail", "all").out
    assert ran.code == 0, logs
    printed = sorted(line for line in logs.splitlines() if "sum =" in line)
    assert printed == [f"[{rank}] rank {rank} of 4: sum = 10.0" for rank in range(4)]


def rack(site: Site, hosts: Sequence[SshHost]) -> None:
    """The same hosts, as ordinary machines of one rack."""
    config = site.directory / "cluster.yaml"
    lines = config.read_text().partition("slices:")[0] + "workers:\n"
    for number, host in enumerate(hosts):
        way = f"host: 127.0.0.1, port: {host.port}"
        lines += f"  - {{id: node-{number}, {way}, attributes: {{rack: r1}}}}\n"
    config.write_text(lines)
