"""The command line of `iris ssh`: the right host key, the operator's settings, and hostile values as plain text."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.core import Connection
from iris_cli.errors import NotFoundError, UsageError
from iris_cli.ops.names import names_worker
from iris_cli.ops.workers.execute import execute, ssh_command
from tests.ops.world import World
from tests.support.fake_runner import Site
from tests.support.lab import Lab
from tests.support.local_transport import SHELLS, tools_of

HOSTILE = 'it\'s "quoted" $(touch /tmp/iris-was-here) `id` ${HOME} ! \\ %h * ü'


def options(words: list[str]) -> dict[str, str]:
    return dict(value.split("=", 1) for name, value in pairwise(words) if name == "-o")


def test_a_worker_is_reached_as_its_configuration_says_and_by_its_own_key_alone(tmp_path: Path) -> None:
    site = Site(tmp_path / "a %h dir", "w0")
    (tmp_path / "a %h dir").mkdir()
    site.launch("one")
    site.cycle()
    session = site.session()
    (host,) = session.config.hosts
    way = replace(host.connection, user="me", port=2222, key="/keys/100%", proxy_jump="me@bastion:22,inner")
    session.config = replace(session.config, hosts=(replace(host, connection=way),))
    words = ssh_command(session, "w0")
    assert options(words) == {
        "HostKeyAlias": "w0",
        "UserKnownHostsFile": f'"{tmp_path}/a %%h dir/state/known_hosts"',
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "IdentityFile": '"/keys/100%%"',
        "IdentitiesOnly": "yes",
        "ProxyJump": "me@bastion:22,inner",
    }
    assert words[-7:] == ["-l", "me", "-p", "2222", "-t", "--", "w0"]


def test_what_the_configuration_leaves_out_is_left_to_ssh(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.cycle()
    words = ssh_command(site.session(), "w0")
    assert {"-l", "-p"}.isdisjoint(words)
    assert {"IdentityFile", "ProxyJump"}.isdisjoint(options(words))


@pytest.mark.parametrize("shell", SHELLS)
def test_hostile_values_are_plain_text_to_the_shell_there(tmp_path: Path, shell: str) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one", each_line=(HOSTILE,), env={"PRIVATE": "canary"})
    site.run()
    words = ssh_command(site.session(), "one/task-0")
    assert "canary" not in "".join(words)
    assert "IRIS_TASK_DEFAULT_ENV_JSON" not in words[-1], (
        "cluster.yaml may hold what is nobody else's business"
    )
    told = tmp_path / "told"
    program = f"import json, os; json.dump(dict(os.environ), open({str(told)!r}, 'w'))"
    typed = f"exec {shlex.join([sys.executable, '-c', program])}\n"
    tools = tools_of(shell, tmp_path / "tools")
    env = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(tmp_path), "SHELL": str(tools / "sh")}
    subprocess.run(
        [tools / "sh", "-c", words[-1]], input=typed, env=env, text=True, check=True, capture_output=True
    )
    seen = json.loads(told.read_text())
    assert (seen["IRIS_EACH_LINE"], seen["IRIS_TASK_ID"]) == (HOSTILE, "one/task-0")
    assert seen["IRIS_WORKDIR"].endswith("/work")
    assert not Path("/tmp/iris-was-here").exists()


def test_only_one_place_can_be_gone_to(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("two", replicas=2)
    with pytest.raises(UsageError, match="two has 2 tasks"):
        ssh_command(site.session(), "two")
    with pytest.raises(NotFoundError, match="two/task-1 is not on a worker"):
        ssh_command(site.session(), "two/task-1")
    with pytest.raises(NotFoundError):
        ssh_command(site.session(), "three")


def test_an_ended_job_does_not_hide_the_worker_of_its_name(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("w0")
    site.cycle()
    assert not names_worker(site.cluster, "w0")
    of_the_task = ssh_command(site.session(), "w0")
    assert of_the_task == ssh_command(site.session(), "w0/task-0")
    site.hosts["w0"].exits("w0")
    site.cycle()
    assert ssh_command(site.session(), "w0") != of_the_task
    assert names_worker(site.cluster, "w0")


def test_a_path_that_no_option_can_hold_is_refused(tmp_path: Path) -> None:
    (tmp_path / 'a"b').mkdir()
    site = Site(tmp_path / 'a"b', "w0")
    site.launch("one")
    site.cycle()
    with pytest.raises(UsageError, match="can't be passed to ssh"):
        ssh_command(site.session(), "w0")


def test_a_gang_of_which_one_worker_was_forgotten_is_said_to_be_that(tmp_path: Path) -> None:
    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16").schedule().reports("train/* running")
    session = World(lab.forget_dead("a-1"), tmp_path / "state").session()
    with pytest.raises(NotFoundError, match=r"worker a-1 \(of another rank\)") as caught:
        ssh_command(session, "train/task-0")
    assert caught.value.hint == "name the worker of this task: a-0"
    with pytest.raises(NotFoundError, match="no longer in the cluster"):
        execute(session, "train", ["true"])


def test_a_node_of_a_slurm_job_is_reached_by_a_step_on_a_terminal(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.cycle()
    (host,) = site.session().config.hosts
    by_srun = replace(host.connection, allocation="4711", node="n3", user="me", key="/keys/id")

    def command(connection: Connection) -> list[str]:
        session = site.session()
        session.config = replace(session.config, hosts=(replace(host, connection=connection),))
        return ssh_command(session, "one/task-0")

    here = command(by_srun)
    step = ["--jobid=4711", "--overlap", "--nodelist=n3", "--nodes=1", "--ntasks=1", "--mem=0", "--chdir=/"]
    assert here[:-1] == ["srun", *step, "--quiet", "--pty", "/bin/sh", "-c"]
    assert here[-1].startswith("exec /bin/sh -c ")
    *way, remote = command(replace(by_srun, login="login-1"))
    assert shlex.split(remote) == here
    assert way[-5:] == ["-l", "me", "-t", "--", "login-1"]
    assert options(way) == {"IdentityFile": '"/keys/id"', "IdentitiesOnly": "yes"}
