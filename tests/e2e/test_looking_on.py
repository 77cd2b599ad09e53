"""Following, waiting and watching, on real SSH servers."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.ssh

TPU = ("--tpu", "v4-16")


@pytest.fixture
def site(ssh_lab: Callable[..., list[SshHost]], tmp_path: Path) -> Site:
    """One slice `a` of two hosts, and a gate that tasks can wait for."""
    hosts = ssh_lab(2)
    directory = tmp_path / "operator"
    directory.mkdir()
    site = Site(directory, hosts)
    site.write_config({"a": hosts}, tpu="v4-16")
    return site


def gate(site: Site, name: str = "gate") -> str:
    """A shell command that waits until `open_gate`."""
    return f"while [ ! -e {site.directory / name} ]; do sleep 0.1; done"


def open_gate(site: Site, name: str = "gate") -> None:
    (site.directory / name).touch()


@pytest.mark.soak
def test_followed_logs_have_every_line_once_and_the_last_ones_too(site: Site) -> None:
    count = 'i=0; while [ $i -lt 300 ]; do echo "$IRIS_TASK_INDEX says é $i"; i=$((i + 1)); done'
    site.iris(
        "launch", "--name", "train", *TPU, "--", "sh", "-c", f"{count}; {gate(site)}; {count}; printf bye"
    )
    following = site.start("logs", "train", "--follow", "--tail", "all", "--no-fold")
    open_gate(site)
    out, err = following.communicate(timeout=PATIENCE)
    assert following.returncode == 0, err
    lines = out.decode().splitlines()
    for rank in (0, 1):
        mine = [line for line in lines if line.startswith(f"[{rank}] ")]
        twice = [f"[{rank}] {rank} says é {number}" for number in range(300)] * 2
        assert mine == [*twice, f"[{rank}] bye"]


def test_a_wait_that_is_interrupted_a_host_that_is_down_and_a_failure_are_told(site: Site) -> None:
    script = f"echo here; {gate(site)}; exit $IRIS_TASK_INDEX"
    site.iris("launch", "--name", "train", "--grace", "1s", *TPU, "--", "sh", "-c", script)
    check_that_ctrl_c_ends_the_wait_and_not_the_job(site)
    check_that_a_host_that_is_down_hides_only_its_own_rank(site)
    check_that_a_gang_that_fails_stands_on_the_screen_with_its_cause(site)


def check_that_a_host_that_is_down_hides_only_its_own_rank(site: Site) -> None:
    site.until(lambda: site.iris("logs", "train").out == "[0-1] here\n")
    site.hosts[1].stop()
    ran = site.iris("logs", "train", code=7)
    assert ran.out == "[0] here\n"
    assert "no answer from worker a-1" in ran.err
    site.hosts[1].start()


def check_that_a_gang_that_fails_stands_on_the_screen_with_its_cause(site: Site) -> None:
    with site.terminal("watch", "--schedule", "--interval", "0.3") as terminal:
        terminal.until(lambda screen: "RUNNING  2" in screen.text, "a running gang")
        open_gate(site)
        terminal.until(lambda screen: "rank 1 failed first: exit 1" in screen.text, "the cause")
        terminal.until(lambda screen: "job train ended" in screen.text, "the news")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert terminal.screen.second is None
        assert "rank 1 failed first: exit 1" in terminal.screen.text
        assert "stopped watching; nothing is running" in terminal.screen.text


def check_that_ctrl_c_ends_the_wait_and_not_the_job(site: Site) -> None:
    heartbeat = site.state / "heartbeat.json"
    before = heartbeat.read_bytes()
    waiting = site.start("wait", "train")
    site.until(lambda: heartbeat.read_bytes() != before, cycles=False)  # its first cycle is over: it waits
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 130
    assert b"stopped waiting; no cycles are running: iris loop start" in err
    site.until(lambda: site.job("train")["state"] == "RUNNING")
