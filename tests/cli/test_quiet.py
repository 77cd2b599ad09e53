"""With --quiet a command prints the result that it was asked for, and an action that succeeds prints nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.cli.test_cron import CRONTAB, SYSTEMCTL
from tests.cli.test_help import EVERY
from tests.support.site import Site
from tests.support.sshd import SshHost

pytestmark = pytest.mark.ssh

ACTIONS: dict[str, tuple[str, ...]] = {
    "iris schedule": ("launch --no-schedule --cpu 0.01 -- true", "schedule --once"),
    "iris autoscale": ("autoscale --once", "autoscale --adopt --yes"),
    "iris cancel": (
        "launch --no-schedule --cpu 0.01 --name j -- true",
        "launch --cpu 0.01 --name k -- sleep 600",
        "cancel j",
        "cancel --wait k",
        "cancel j",
    ),
    "iris hold": ("launch --no-schedule --cpu 0.01 --name kept -- true", "hold kept", "hold kept"),
    "iris release": ("release kept", "release kept"),
    "iris set": ("set kept --priority low --scheduling-timeout 1h", "set kept --priority low"),
    "iris retry": (
        "launch --cpu 0.01 --name bounced -- sleep 600",
        "retry bounced",
        "retry bounced",
        "cancel --wait bounced",
    ),
    "iris wait": ("launch --cpu 0.01 --name j -- true", "wait j"),
    "iris report": ("schedule --once", "report --html report.html"),
    "iris metrics": ("metrics --textfile iris.prom",),
    "iris export": (
        "launch --no-schedule --cpu 0.01 --name sent -- true",
        "export sent --to jobset --image img --out sent.yaml",
    ),
    "iris worker probe": ("worker probe", "worker probe w0"),
    "iris worker drain": ("schedule --once", "worker drain w0", "worker drain w0"),
    "iris worker uncordon": ("schedule --once", "worker drain w0", "worker uncordon w0"),
    "iris worker taint": ("schedule --once", "worker taint w0 slow", "worker taint w0 slow --remove"),
    "iris worker forget": ("schedule --once", "worker forget w0"),
    "iris worker unwedge": ("schedule --once", "worker unwedge w0 --yes"),
    "iris init": ("--config new/cluster.yaml init --name new --host 10.0.0.1",),
    "iris cluster import": (
        "--config new/cluster.yaml cluster import cpu-[0-3] --yes",
        "--config new/cluster.yaml cluster import cpu-[0-3] --yes",
    ),
    "iris config validate": ("config validate",),
    "iris cron install": ("cron install", "cron install", "cron install --systemd --every 30s"),
    "iris cron remove": ("cron install", "cron remove", "cron remove"),
    "iris loop start": (
        "schedule --once",
        "loop start",
        "launch --no-schedule --cpu 0.01 -- sleep 600",
        "loop start",
        "loop start",
        "loop stop",
    ),
    "iris loop stop": ("schedule --once", "loop stop"),
    "iris log verify": ("schedule --once", "log verify"),
    "iris log salvage": ("schedule --once", "log salvage"),
    "iris log compact": ("schedule --once", "log compact", "log compact"),
    "iris gc": ("launch --wait --cpu 0.01 -- true", "gc --yes", "gc --yes"),
}
"""By command, the lines that are run with --quiet. They succeed and print nothing; a launch prints its job id."""

STILL_REMOVING = re.compile(r"w0: still removing [0-9]+ attempts?; run `iris gc` again\n")
"""A slow host may still be removing files when the call ends. Then a message asks the user to repeat the command."""

SITES = (
    ("schedule", "autoscale", "wait", "report", "metrics", "gc", "log verify", "log salvage", "log compact"),
    ("cancel", "retry", "hold", "release", "set", "export"),
    tuple(f"worker {verb}" for verb in ("probe", "drain", "uncordon", "taint", "unwedge", "forget")),
    ("init", "config validate"),
    ("cluster import",),
    ("cron install", "cron remove"),
    ("loop start", "loop stop"),
)
"""The commands whose lines run one after the other at one site."""

VIEWS: dict[str, str] = {
    "iris launch": "launch --wait --cpu 0.01 --name again -- true",
    "iris status": "status",
    "iris watch": "watch --schedule --until-idle",
    "iris logs": "logs j",
    "iris pull": "pull j",
    "iris export": "export j --to jobset --image img",
    "iris why": "why j",
    "iris history": "history",
    "iris report": "report",
    "iris metrics": "metrics",
    "iris workers": "workers",
    "iris exec": "exec w0 -- echo hello",
    "iris ssh": "ssh w0 --print",
    "iris worker show": "worker show w0",
    "iris cron show": "cron show",
    "iris loop show": "loop show",
    "iris log export": "log export",
    "iris gc": "gc --dry-run",
    "iris schedule": "schedule --dry-run",
}
"""By command, a line that has a result: it is printed with --quiet, alone."""

ELSEWHERE = {
    "iris register-endpoint": "runs inside a task: test_inside",
    "iris doctor": "prints findings: test_checks",
    "iris forward": "serves until Ctrl-C: test_forward",
    "iris run": "needs a terminal: test_run",
    "iris stacks": "needs a Python program on a worker: test_stacks",
    "iris demo": "prints its tour: test_demo",
}


@pytest.fixture
def site(ssh_lab: Callable[..., list[SshHost]], tmp_path: Path) -> Site:
    """One host, and a crontab and systemd that change nothing of this machine."""
    [host] = ssh_lab(1)
    directory, tools = tmp_path / "operator", tmp_path / "bin"
    for each in (directory, directory / "new", tools):
        each.mkdir()
    for name, text in (
        ("crontab", CRONTAB),
        ("systemctl", SYSTEMCTL),
        ("loginctl", "#!/bin/sh\necho Linger=no\n"),
    ):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    made = Site(directory, [host], {"PATH": f"{tools}:/usr/bin:/bin", "XDG_RUNTIME_DIR": ""})
    made.write_config({}, tpu="v4-8")
    config = directory / "cluster.yaml"
    way = f"id: w0, host: {host.address}, port: {host.port}"
    config.write_text(config.read_text().replace("slices:\n", f"workers: [{{{way}}}]\n"))
    return made


def test_every_command_is_an_action_or_a_view() -> None:
    leaves = {path for path, command in EVERY.items() if not hasattr(command, "commands")}
    assert leaves == {*ACTIONS, *VIEWS, *ELSEWHERE}
    assert sorted(ACTIONS) == sorted(f"iris {command}" for site in SITES for command in site)


@pytest.mark.parametrize("commands", SITES, ids=lambda commands: commands[0])
def test_an_action_that_succeeds_prints_nothing(commands: Sequence[str], site: Site) -> None:
    for line in (line for command in commands for line in ACTIONS[f"iris {command}"]):
        ran = site.iris("--quiet", *shlex.split(line))
        said = STILL_REMOVING.sub("", ran.err) if line == "gc --yes" else ran.err
        assert (line, ran.out if "launch" not in line else "", said) == (line, "", "")


def test_a_view_prints_its_result_alone(site: Site) -> None:
    site.iris("launch", "--wait", "--cpu", "0.01", "--name", "j", "--", "echo", "hello")
    for command, line in VIEWS.items():
        if command in ("iris watch", "iris schedule"):
            site.iris("launch", "--no-schedule", "--cpu", "0.01", "--", "true")
        ran = site.iris("-q", *shlex.split(line))
        assert (bool(ran.out), ran.err) == (True, ""), command
        assert "hint:" not in ran.out, command


def test_a_launch_prints_its_job_id_also_if_it_waits_and_the_job_fails(site: Site) -> None:
    ran = site.iris(
        "-q", "launch", "--wait", "--cpu", "0.01", "--name", "j", "--", "sh", "-c", "exit 3", code=1
    )
    assert (ran.out, ran.err) == ("j\n", "j: FAILED: exit 3\n")


def test_a_worker_that_does_not_answer_its_probe_is_an_error_on_stderr(site: Site) -> None:
    site.hosts[0].stop()
    ran = site.iris("-q", "worker", "probe", code=7)
    assert ran.out == ""
    assert ran.err.startswith("w0: unprobed (connect: ")
    assert "hint:" not in ran.err


def test_an_action_that_nobody_confirmed_says_that_nothing_was_done(site: Site) -> None:
    site.iris("launch", "--wait", "--cpu", "0.01", "--", "true")
    ran = site.iris("-q", "gc")
    assert "not a terminal: pass --yes to remove" in ran.err
    assert ran.out
