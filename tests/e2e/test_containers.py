"""`iris launch --image` on real SSH hosts with real podman: what an operator sees of a container."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_cli.errors import ExitCode
from tests.e2e.conftest import Lab
from tests.support.containers import IMAGE, Podman, podman_with_image
from tests.support.site import Site
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.ssh

CANARY = "canary-31c7e2"
JOB = ("launch", "--cpu", "0.1", "--image", IMAGE)


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    podman = podman_with_image(tmp_path_factory.mktemp("podman"))
    yield podman
    podman.close()


@pytest.fixture
def site(podman: Podman, ssh_lab: Lab, tmp_path: Path) -> Iterator[Site]:
    """One host with podman. After the test no container is left, whoever ended it."""
    directory = tmp_path / "operator"
    directory.mkdir()
    site = Site(directory, ssh_lab(1, env=podman.env))
    site.write_config({"a": site.hosts}, tpu="v5litepod-1")
    yield site
    left = podman.containers()
    podman.remove_all()
    assert left == []


def test_a_container_has_what_tasks_have_exec_and_ssh_enter_it_and_a_cancel_removes_it(
    site: Site, podman: Podman
) -> None:
    """Tasks have a workspace, secrets and an iris."""
    (site.directory / "data").mkdir()
    (site.directory / "data/in").write_text("shipped\n")
    script = (
        'cat in; echo "${#TOKEN} $LR"; command -v iris; echo kept >"$IRIS_OUTPUT_DIR/out"; '
        "echo here >made; while :; do sleep 0.5; done"
    )
    ran = site.iris(
        *(*JOB, "--name", "endless", "--workdir", "data", "-e", "LR=1e-3", "--secret", "TOKEN"),
        *("--", "sh", "-c", script),
        env={"TOKEN": CANARY},
    )
    site.until(lambda: site.job("endless")["state"] == "RUNNING")
    until(lambda: list(site.hosts[0].home.rglob("work/made")))
    assert site.iris("logs", "endless").out.splitlines() == [
        "shipped",
        f"{len(CANARY)} 1e-3",
        "/usr/local/bin/iris",
    ]
    site.iris("pull", "endless")
    assert (site.directory / "iris-out/endless/task-0/attempt-0/out").read_text() == "kept\n"
    assert CANARY not in ran.out + ran.err
    for path in [*site.directory.rglob("*"), *site.hosts[0].home.rglob("*")]:
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path

    look = 'cat made; echo "[$TOKEN]"; [ -e /var ] || echo "in the image"'
    ran = site.iris("exec", "endless", "--", "sh", "-c", look)
    assert ran.out.splitlines() == ["here", "[]", "in the image"]
    shown = shlex.split(site.iris("ssh", "endless/task-0", "--print").out)
    typed = subprocess.run(
        shown,
        input='cat made; [ -e /var ] || echo "in the image"; echo $IRIS_TASK_ID\n',
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={"HOME": str(site.directory), "PATH": "/usr/bin:/bin"},
    )
    assert typed.stdout.splitlines() == ["here", "in the image", "endless/task-0"], typed
    assert len(podman.containers()) == 1
    site.iris("cancel", "endless")
    site.until(lambda: site.job("endless")["tasks"][0]["attempts"][-1]["state"] == "ENDED")
    assert podman.containers() == []


@pytest.mark.soak
def test_a_missing_image_ends_the_job_with_the_words_of_the_runtime(site: Site) -> None:
    site.iris(
        *(
            "launch",
            "--cpu",
            "0.1",
            "--name",
            "typo",
            "--image",
            "localhost:1/lab/trian:3",
            "--wait",
            "--",
            "true",
        ),
        code=ExitCode.FAILED,
    )
    card = site.iris("status", "typo").out
    assert "the image can't be pulled" in card
    assert "localhost:1/lab/trian:3" in card
    assert "connection refused" in card


@pytest.mark.soak
def test_a_program_on_a_terminal_runs_in_the_container_and_ends_with_its_client(
    site: Site, podman: Podman
) -> None:
    run = ("run", "--cpu", "0.1", "--grace", "1s", "--image", IMAGE, "--", "sh", "-c")
    script = (
        '[ -t 0 ] && [ ! -e /var ] && echo "ready in the image"; read answer; echo "got $answer"; exit 42'
    )
    with site.terminal(*run, script) as terminal:
        terminal.until(lambda screen: "ready in the image" in screen.text)
        terminal.type("yes\n")
        assert terminal.end() == 42
        assert "got yes" in terminal.screen.text
    with site.terminal(*run, "trap '' HUP TERM; echo deaf; while :; do sleep 1; done") as terminal:
        terminal.until(lambda screen: "deaf" in screen.text)
        terminal.process.send_signal(signal.SIGKILL)
    site.until(lambda: site.job("sh-2")["tasks"][0]["attempts"][-1]["state"] == "ENDED")
    assert podman.containers() == []
