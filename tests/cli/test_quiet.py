"""With --quiet a command prints the result that it was asked for, and an action that succeeds prints nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import RemoteState, SilenceKind
from iris_cli.errors import ExitCode
from tests.cli.test_cron import CRONTAB, SYSTEMCTL
from tests.cli.test_help import EVERY
from tests.render.stage import Stage, Stages
from tests.support.site import Site
from tests.support.sshd import SshHost

JOB_ID = re.compile(r"^[a-z]+(-[0-9]+)?\n$")

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

STAGES = (
    ("schedule", "autoscale", "wait", "report", "metrics", "gc", "log verify", "log salvage", "log compact"),
    ("cancel", "retry", "hold", "release", "set", "export"),
    tuple(f"worker {verb}" for verb in ("probe", "drain", "uncordon", "taint", "unwedge", "forget")),
    ("init", "config validate"),
    ("cluster import",),
    ("cron install", "cron remove"),
)
"""The commands whose lines run one after the other on one stage."""

LOOP = ("loop start", "loop stop")
"""Those that need real processes."""

SLEEPERS = ("k", "bounced")
"""Jobs that run `sleep 600`."""

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
    """A real host."""
    [host] = ssh_lab(1)
    made = Site(tmp_path, [host], {"XDG_RUNTIME_DIR": ""})
    made.write_config({}, tpu="v4-8")
    config = tmp_path / "cluster.yaml"
    way = f"id: w0, host: {host.address}, port: {host.port}"
    config.write_text(config.read_text().replace("slices:\n", f"workers: [{{{way}}}]\n"))
    return made


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A host in memory, whose tasks exit with 0 unless they sleep, and a crontab and systemd of its own."""
    with Stages(tmp_path).stage("one_host") as made:
        for name in ("new", "bin"):
            (made.directory / name).mkdir()
        for name, text in (
            ("crontab", CRONTAB.replace("cat", "/bin/cat")),
            ("systemctl", SYSTEMCTL),
            ("loginctl", "#!/bin/sh\necho Linger=no\n"),
        ):
            (made.directory / "bin" / name).write_text(text)
            (made.directory / "bin" / name).chmod(0o755)
        exit_all(made, 0)
        yield made


def exit_all(stage: Stage, code: int) -> None:
    """From now on, tasks that do not sleep exit with this code when their host has said that they run."""
    host = stage.hosts.hosts["w0"]

    def exit_() -> None:
        for entry in host.tokens.values():
            if entry.state is RemoteState.RUNNING and entry.name.partition("/")[0] not in SLEEPERS:
                entry.state, entry.exit_code = RemoteState.EXITED, code
        host.meanwhile["poll"] = exit_

    host.meanwhile["poll"] = exit_


def test_every_command_is_an_action_or_a_view() -> None:
    leaves = {path for path, command in EVERY.items() if not hasattr(command, "commands")}
    assert leaves == {*ACTIONS, *VIEWS, *ELSEWHERE}
    assert sorted(ACTIONS) == sorted(f"iris {command}" for each in (*STAGES, LOOP) for command in each)


@pytest.mark.parametrize("commands", STAGES, ids=lambda commands: commands[0])
def test_an_action_that_succeeds_prints_nothing(commands: Sequence[str], stage: Stage) -> None:
    for line in (line for command in commands for line in ACTIONS[f"iris {command}"]):
        text, code = stage.typed(f"--quiet {line}")
        if line.startswith("launch"):
            text = JOB_ID.sub("", text)
        assert (line, text, code) == (line, "", ExitCode.OK)


@pytest.mark.ssh
def test_a_start_and_a_stop_of_the_loop_print_nothing(site: Site) -> None:
    for line in (line for command in LOOP for line in ACTIONS[f"iris {command}"]):
        ran = site.iris("--quiet", *shlex.split(line))
        assert (line, ran.out if "launch" not in line else "", ran.err) == (line, "", "")


@pytest.mark.ssh
def test_a_view_prints_its_result_alone(site: Site) -> None:
    site.iris("launch", "--wait", "--cpu", "0.01", "--name", "j", "--", "echo", "hello")
    for command, line in VIEWS.items():
        if command in ("iris watch", "iris schedule"):
            site.iris("launch", "--no-schedule", "--cpu", "0.01", "--", "true")
        ran = site.iris("-q", *shlex.split(line))
        assert (bool(ran.out), ran.err) == (True, ""), command
        assert "hint:" not in ran.out, command


def test_a_launch_prints_its_job_id_also_if_it_waits_and_the_job_fails(stage: Stage) -> None:
    exit_all(stage, 3)
    said = stage.typed("-q launch --wait --cpu 0.01 --name j -- sh -c 'exit 3'")
    assert said == ("j\nj: FAILED: exit 3\n", ExitCode.FAILED)


def test_a_worker_that_does_not_answer_its_probe_is_an_error(stage: Stage) -> None:
    stage.hosts.hosts["w0"].silence = SilenceKind.UNREACHABLE
    text, code = stage.typed("-q worker probe")
    assert code == ExitCode.UNREACHABLE
    assert text == "w0: suspect (connect: no route to host)\n"
    assert stage.typed("-q worker probe", told=False)[0] == ""


def test_an_action_that_nobody_confirmed_says_that_nothing_was_done(stage: Stage) -> None:
    stage.typed("launch --wait --cpu 0.01 -- true")
    text, _ = stage.typed("-q gc")
    assert "not a terminal: pass --yes to remove" in text
    assert stage.typed("-q gc", told=False)[0]
