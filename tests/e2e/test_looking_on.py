"""Following, waiting and checking up, on real SSH servers."""

from __future__ import annotations

import json
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


def test_equal_lines_of_ranks_are_one_and_json_has_them_all(site: Site) -> None:
    script = "echo same; echo mine $IRIS_TASK_INDEX; echo end >&2"
    site.iris("launch", "--wait", "--name", "train", *TPU, "--", "sh", "-c", script)
    shown = site.iris("logs", "train").out.splitlines()
    assert shown == ["[0-1] same", "[0] mine 0", "[1] mine 1", "[0-1] end"]
    assert site.iris("logs", "train/task-1", "--stream", "err").out == "end\n"
    tasks = site.iris("logs", "train", "--json").json()["tasks"]
    assert [[line["text"] for line in task["lines"]] for task in tasks] == [
        *(["same", f"mine {rank}", "end"] for rank in (0, 1))
    ]
    followed = site.iris("logs", "train", "--follow", "--json").out.splitlines()
    assert {json.loads(line)["rank"] for line in followed} == {0, 1}


def test_a_host_that_is_down_hides_only_its_own_rank(site: Site) -> None:
    site.iris("launch", "--name", "train", *TPU, "--", "sh", "-c", f"echo here; {gate(site)}")
    site.until(lambda: site.iris("logs", "train").out == "[0-1] here\n")
    site.hosts[1].stop()
    ran = site.iris("logs", "train", code=7)
    assert ran.out == "[0] here\n"
    assert "no answer from worker a-1" in ran.err
    site.hosts[1].start()
    open_gate(site)
    site.iris("wait", "train")


def test_a_gang_that_fails_stands_on_the_screen_with_its_cause(site: Site) -> None:
    script = f"{gate(site)}; exit $IRIS_TASK_INDEX"
    site.iris("launch", "--name", "train", "--grace", "1s", *TPU, "--", "sh", "-c", script)
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


def test_the_wait_ends_in_time_and_the_job_goes_on(site: Site) -> None:
    site.iris("launch", "--name", "train", *TPU, "--", "sh", "-c", gate(site))
    ran = site.iris("wait", "train", "--timeout", "1s", code=1)
    assert "iris cancel train" in ran.err
    open_gate(site)
    assert site.iris("wait", "train").out == "train: SUCCEEDED\n"


def test_ctrl_c_ends_the_wait_and_not_the_job(site: Site) -> None:
    site.iris("launch", "--name", "train", *TPU, "--", "sh", "-c", gate(site))
    heartbeat = site.state / "heartbeat.json"
    before = heartbeat.read_bytes()
    waiting = site.start("wait", "train")
    site.until(lambda: heartbeat.read_bytes() != before, cycles=False)  # its first cycle is over: it waits
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 130
    assert b"stopped waiting; no cycles are running: iris loop start" in err
    open_gate(site)
    site.iris("wait", "train")


def test_a_cancelled_job_ends_the_wait_with_its_own_code(site: Site) -> None:
    site.iris("launch", "--name", "train", "--grace", "1s", *TPU, "--", "sh", "-c", gate(site))
    site.iris("cancel", "train")
    assert site.iris("wait", "train", code=8).out.startswith("train: KILLED")


def test_the_check_up_finds_a_sound_site_and_then_the_host_that_is_down(site: Site) -> None:
    site.iris("schedule", "--once")
    sound = site.iris("doctor", "--json").json()
    assert [each for each in sound["findings"] if each["level"] == "fail"] == []
    assert {each["subject"] for each in sound["findings"]} >= {
        "config",
        "log",
        "keys",
        "worker a-0",
        "worker a-1",
    }
    site.hosts[0].stop()
    ran = site.iris("doctor", code=7)
    (failed,) = [line for line in ran.out.splitlines() if line.startswith("fail")]
    assert failed.startswith("fail  worker a-0: no answer")
    assert f"-p {site.hosts[0].port} " in ran.out


def test_the_check_up_knows_a_host_that_was_created_anew(site: Site) -> None:
    site.iris("schedule", "--once")
    site.hosts[1].stop()
    site.hosts[1].new_host_key()
    site.hosts[1].start()
    assert "iris worker probe a-1 --accept-key" in site.iris("doctor", code=7).out
