"""A real gang program: four JAX processes on four hosts find each other and agree on a sum."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.site import Site
from tests.support.sshd import SshHost

PROGRAM = Path(__file__).parents[2] / "examples" / "jax_allreduce" / "allreduce.py"


def can_unshare() -> bool:
    """True if this user may have a namespace with another host name, and mounts in it."""
    files = (shutil.which("unshare"), Path("/etc/nsswitch.conf").exists())
    call = ["unshare", "--map-root-user", "--uts", "--mount", "true"]
    return all(files) and subprocess.run(call, check=False, capture_output=True).returncode == 0


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


# At a normal exit JAX first waits for the other ranks, for up to 5 minutes.
EXIT_AT_ONCE = """
import os, runpy, sys, traceback
try:
    runpy.run_path(sys.argv[1], run_name="__main__")
except Exception:
    traceback.print_exc()
    os._exit(1)
"""
# Files alone resolve names in it, so that no query leaves the machine.
UNRESOLVED_RANK_1 = """
if [ "$IRIS_TASK_INDEX" = 1 ]; then
  echo 'hosts: files' >nsswitch
  exec unshare --map-root-user --uts --mount sh -c \
    'mount --bind nsswitch /etc/nsswitch.conf && hostname no-such-name && exec "$@"' sh "$@"
fi
exec "$@"
"""


@pytest.mark.skipif(not can_unshare(), reason="needs namespaces for a host name of its own")
def test_the_card_names_the_rank_whose_host_name_does_not_resolve(slice_of_two: Site) -> None:
    site = slice_of_two
    rack(site, site.hosts)
    gang = ("--group-by", "rack", "--replicas", "2", "--cpu", "0.2", "--env-preset", "jax")
    program = ("sh", "-c", UNRESOLVED_RANK_1, "sh", sys.executable, "-c", EXIT_AT_ONCE, str(PROGRAM))
    site.iris(
        "launch", "--wait", *gang, "-e", "JAX_PLATFORMS=cpu", "--name", "sum", "--", *program, code=None
    )
    shown = " ".join(site.iris("why", "sum").out.split())
    assert "rank 1 failed first: exit 1" in shown
    assert "known cause: the host can't resolve its own name" in shown
    assert "next: iris exec node-1 -- sh -c 'hostname; getent hosts $(hostname)'" in shown


def rack(site: Site, hosts: Sequence[SshHost]) -> None:
    """The same hosts, as ordinary machines of one rack."""
    config = site.directory / "cluster.yaml"
    lines = config.read_text().partition("slices:")[0] + "workers:\n"
    for number, host in enumerate(hosts):
        way = f"host: 127.0.0.1, port: {host.port}"
        lines += f"  - {{id: node-{number}, {way}, attributes: {{rack: r1}}}}\n"
    config.write_text(lines)


RANK_1_SLEEPS = """
import time, jax, jax.numpy as jnp
from jax.experimental import multihost_utils
jax.distributed.initialize()
print("step 1", flush=True)
if jax.process_index() == 1:
    time.sleep(600)
multihost_utils.process_allgather(jnp.asarray([1.0]))
"""


def test_a_rank_that_sleeps_while_the_other_waits_in_a_collective_is_shown(slice_of_two: Site) -> None:
    """Nothing has failed: the job is quiet, and `iris why` leads to the threads of both ranks."""
    site = slice_of_two
    rack(site, site.hosts)
    gang = ("--group-by", "rack", "--replicas", "2", "--cpu", "0.2", "--env-preset", "jax", "--grace", "1s")
    program = ("-e", "JAX_PLATFORMS=cpu", "--silent-after", "3s", "--", sys.executable, "-c", RANK_1_SLEEPS)
    site.iris("launch", "--name", "hangs", *gang, *program)
    site.until(lambda: all("step 1" in site.iris("logs", "hangs", "--rank", rank).out for rank in ("0", "1")))
    site.until(
        lambda: [task["quiet_since"] is not None for task in site.job("hangs")["tasks"]] == [True, True]
    )
    shown = site.iris("why", "hangs").out
    assert "quiet" in shown
    assert shown.endswith("\nnext: iris stacks hangs\n")
    seen = site.iris("stacks", "hangs", code=1).out  # without py-spy there is no full stack
    first = seen.splitlines()[0]
    assert "rank 1 sleeps in hrtimer_nanosleep" in first
    assert "rank 0 sleeps in futex" in first or "rank 0 spins" in first
    site.iris("cancel", "hangs", "--wait")
