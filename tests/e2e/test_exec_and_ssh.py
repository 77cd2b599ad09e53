"""`iris exec` and `iris ssh` on real hosts: beside the tasks, away from their chips, and nothing left behind."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from iris_cli.errors import ExitCode
from tests.e2e.test_gang_over_ssh import alive
from tests.support.site import Site
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.ssh

TPU = ("--tpu", "v4-16")


@pytest.fixture
def site(slice_of_two: Site) -> Site:
    """A gang of two that runs until the file `gate` exists; each rank has left a file in its directory."""
    site = slice_of_two
    wait = f"while [ ! -e {site.directory}/gate ]; do sleep 0.1; done"
    script = f"echo made here >made; echo $IRIS_TASK_INDEX >rank; {wait}"
    site.iris("launch", "--name", "train", "-e", "LR=1e-3", *TPU, "--", "sh", "-c", script)
    site.until(lambda: len(list(site.hosts[0].home.parent.parent.glob("*/home/**/rank"))) == 2)
    site.until(lambda: site.job("train")["state"] == "RUNNING")
    return site


def test_a_command_runs_beside_every_rank_ends_everywhere_and_a_silent_host_is_told(site: Site) -> None:
    """Equal output is shown once; an interrupted command leaves nothing."""
    script = "echo $LR $JAX_PLATFORMS; cat made >&2; exit $(cat rank)"
    ran = site.iris("exec", "train", "--", "sh", "-c", script, code=ExitCode.FAILED)
    assert ran.out.splitlines() == ["[0-1] 1e-3 cpu", "[0-1] made here"]
    assert ran.err.splitlines() == ["train/task-1: exit 1"]
    some = site.iris("exec", "train", "--json", "--rank", "1", "--", "cat", "rank").json()
    assert [
        (each["rank"], each["worker"], each["exit_code"], each["output"]) for each in some["results"]
    ] == [(1, "tpu-a-1", 0, "1\n")]
    assert site.iris("exec", "tpu-a-1", "--", "sh", "-c", "echo $JAX_PLATFORMS $IRIS_TASK_ID").out == "cpu\n"
    assert site.job("train")["state"] == "RUNNING"

    pids = site.directory / "pids"
    pids.mkdir()
    script = f"(setsid sleep 600 & echo $! >{pids}/stray-$IRIS_TASK_INDEX); echo $$ >{pids}/$IRIS_TASK_INDEX; sleep 600"
    process = site.start("exec", "train", "--timeout", "1h", "--", "sh", "-c", script)
    site.until(lambda: sum(bool(path.read_text()) for path in pids.iterdir()) == 4, cycles=False)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == ExitCode.INTERRUPTED
    for path in pids.iterdir():
        assert not alive(int(path.read_text())), path.name
    assert site.job("train")["state"] == "RUNNING"
    site.hosts[1].stop()
    silent = site.iris("exec", "train", "--", "cat", "rank", code=ExitCode.UNREACHABLE)
    assert silent.out.splitlines() == ["[0] 0"]
    assert silent.err.startswith("train/task-1: no answer: ")


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh on this machine (install openssh-client)")
def test_a_shell_opens_where_a_task_runs_with_the_host_key_on_record(site: Site) -> None:
    def typed(what: str, lines: str) -> subprocess.CompletedProcess[str]:
        shown = shlex.split(site.iris("ssh", what, "--print").out)
        home = {"HOME": str(site.directory), "PATH": "/usr/bin:/bin"}
        return subprocess.run(
            shown, input=lines, capture_output=True, text=True, timeout=PATIENCE, env=home, check=False
        )

    there = typed(
        "train/task-1", 'cat rank; echo "$IRIS_TASK_ID $JAX_PLATFORMS ${LR-none}"; cd "$IRIS_TASK_DIR"; ls\n'
    )
    assert there.stdout.splitlines()[:2] == ["1", "train/task-1 cpu none"], there
    assert "work" in there.stdout.splitlines()
    assert typed("tpu-a-0", "echo $JAX_PLATFORMS\n").stdout == "cpu\n"
    many = site.iris("ssh", "train", code=ExitCode.USAGE)
    assert "iris ssh train/task-0" in many.err
    known = site.state / "known_hosts"
    known.write_text("".join(line for line in known.read_text().splitlines(True) if "tpu-a-0 " not in line))
    refused = typed("tpu-a-0", "echo here\n")
    assert (refused.returncode, refused.stdout) == (255, "")
    assert "host key" in refused.stderr.lower()
    assert Path(site.directory / ".ssh/known_hosts").read_text()  # which has the key, and isn't asked
