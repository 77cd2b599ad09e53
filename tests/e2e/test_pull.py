"""`iris pull` from real SSH servers: whole, also when it is killed in the middle; silent hosts are named."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from iris_cli.errors import ExitCode
from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.ssh

TPU = ("--tpu", "v4-16")
SCRIPT = """
cd "$IRIS_OUTPUT_DIR"
mkdir -p sub && echo "rank $IRIS_TASK_INDEX" >"sub/two words"
i=0; while [ $i -lt 100 ]; do echo $i >small-$i; i=$((i + 1)); done
head -c 3000000 /dev/urandom >large
ln -s /etc/passwd link
echo done
"""


@pytest.fixture
def site(ssh_lab: Callable[..., list[SshHost]], tmp_path: Path) -> Site:
    """A gang of two that has written much on its hosts, and ended."""
    hosts = ssh_lab(2)
    directory = tmp_path / "operator"
    directory.mkdir()
    site = Site(directory, hosts)
    site.write_config({"a": hosts}, tpu="v4-16")
    site.iris("launch", "--wait", "--name", "train", *TPU, "--", "sh", "-c", SCRIPT)
    a_while_ago = time.time() - 60  # what was written just now counts as changed, and is fetched again
    for there in outputs(site):
        for path in there.rglob("*"):
            os.utime(path, (a_while_ago, a_while_ago), follow_symlinks=False)
    return site


def outputs(site: Site) -> list[Path]:
    """What there is on the hosts, by rank."""
    return [next(host.home.glob(".iris/*/*/a/*/output")) for host in site.hosts]


def tree(top: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(top)): path.read_bytes()
        for path in top.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def begun(site: Site) -> bool:
    """Whether a file is coming together; the next moment it may be in its place."""
    for path in site.directory.glob("iris-out/train/*/*/.iris-part-*"):
        with suppress(FileNotFoundError):
            if path.stat().st_size:
                return True
    return False


def here(site: Site, rank: int) -> Path:
    return site.directory / f"iris-out/train/task-{rank}/attempt-0"


def test_it_fetches_all_once_also_when_a_host_is_silent_first_or_it_is_killed_in_the_middle(
    site: Site,
) -> None:
    check_that_a_silent_host_is_named_the_other_is_fetched_and_logs_outlive_both(site)
    for host in site.hosts:
        host.start()
    first = site.start("pull", "train")
    until(lambda: begun(site) or first.poll() is not None)  # it may be faster than we look
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=PATIENCE)
    for rank, there in enumerate(outputs(site)):
        whole = tree(there)
        assert all(
            whole[name] == data for name, data in tree(here(site, rank)).items() if ".iris" not in name
        )
    second = site.iris("pull", "train", "--json").json()
    for rank, there in enumerate(outputs(site)):
        assert tree(here(site, rank)) == tree(there)
        assert len(tree(there)) == 102
        kept = site.state / f"logs/train/task-{rank}/attempt-0/out"
        assert (kept.read_bytes(), kept.stat().st_mode & 0o777) == (b"done\n", 0o600)
    assert [row["files"] + row["unchanged"] for row in second["attempts"]] == [102, 102]
    third = site.iris("pull", "train", "--json").json()
    assert [(row["files"], row["unchanged"], row["log_bytes"]) for row in third["attempts"]] == [
        (0, 102, 0)
    ] * 2
    check_that_ctrl_c_leaves_nothing_half_done(site)


def check_that_a_silent_host_is_named_the_other_is_fetched_and_logs_outlive_both(site: Site) -> None:
    site.hosts[0].stop()
    ran = site.iris("pull", "train", "--dir", "elsewhere", code=ExitCode.UNREACHABLE)
    assert "train/task-0/attempt-0: no answer from a-0 (connect" in ran.err
    assert "a-0" in ran.out
    assert tree(site.directory / "elsewhere/train/task-1/attempt-0") == tree(outputs(site)[1])
    assert not (site.directory / "elsewhere/train/task-0").exists()
    assert os.listdir(site.state / "logs-due") == []  # the log of a gang outlives its hosts
    site.hosts[1].stop()
    for log in site.iris("logs", "train", "--json", code=None).json()["tasks"]:
        assert ([line["text"] for line in log["lines"]], log["pulled"]) == (["done"], True), log


def check_that_ctrl_c_leaves_nothing_half_done(site: Site) -> None:
    top = site.directory / "interrupted/train"
    pulling = site.start("pull", "train", "--dir", "interrupted", "--rank", "0")
    until(lambda: (top / "task-0/attempt-0").exists() or pulling.poll() is not None)
    pulling.send_signal(signal.SIGINT)
    pulling.communicate(timeout=PATIENCE)
    assert pulling.returncode in (ExitCode.INTERRUPTED, ExitCode.OK)  # the latter if it was done by then
    whole = tree(outputs(site)[0])
    fetched = tree(top / "task-0/attempt-0")
    assert all(whole[name] == data for name, data in fetched.items() if ".iris" not in name)
    assert os.listdir(top) == ["task-0"]
