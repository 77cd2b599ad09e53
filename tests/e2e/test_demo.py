"""`iris demo` is the main job in one command, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.json_output import checked
from tests.support.site import Site
from tests.support.waiting import PATIENCE, until
from tests.support.wheel import Installed, outside


def run(
    *words: str | Path,
    directory: Path,
    env: Mapping[str, str] | None = None,
    program: Path | None = None,
    start: Sequence[str] = (sys.executable, "-m", "iris_cli"),
) -> subprocess.CompletedProcess[str]:
    inherited = outside() if program else os.environ
    return subprocess.run(
        [*([program] if program else start), *words],
        env={**inherited, "TMPDIR": str(directory), "HOME": str(directory), **(env or {})},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def mentioning(text: str) -> list[str]:
    """Command lines of the processes that mention `text`."""
    shown = subprocess.run(["ps", "-A", "-ww", "-o", "command="], capture_output=True, text=True, check=True)
    return [line for line in shown.stdout.splitlines() if text in line]


def test_the_demo_shows_the_whole_story_and_leaves_no_file_and_no_process(
    installed: Installed, tmp_path: Path
) -> None:
    """It is what users try first: run by the wheel, from nothing but what that installs."""
    elsewhere = {"IRIS_STATE_DIR": str(tmp_path / "of-another-cluster"), "IRIS_LOOP": "auto"}
    ran = run("demo", directory=tmp_path, env=elsewhere, program=installed.iris)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = ran.stdout
    for step in (
        "$ iris launch --wait --name hello --tpu v5litepod-16",
        "rank 3 of 4 on ",
        "$ iris why patient",
        "slice east has room when job doomed ends",
        "doomed/task-2/attempt-0 ended: exit 3",
        "rank 2 failed first: exit 3",
        "loss is NaN",
        "job patient succeeded",
    ):
        assert step in told
    [loop] = re.findall(r"^cycles: background loop \(pid ([0-9]+)\)", told, re.MULTILINE)[:1]
    assert f"pid {loop}" in told.partition("$ iris loop show")[2]
    assert "no job is open, last cycle" in told.rpartition("$ iris loop show")[2]
    assert re.search(r"doomed/task-(1|\[.*1.*\])/attempt-0 stopped", told)  # alone, or with others at once
    assert list(tmp_path.iterdir()) == []
    assert mentioning(str(tmp_path)) == []


SHORT = """
from iris_cli.cli import app
from iris_cli.demo import run
from iris_cli.demo.cluster import LocalSlice
run.SLICES = (LocalSlice(name="west", type="v5litepod-4", zone="us-west4-a", hosts=1),)
run._TOUR = tuple(("", tuple(line.split())) for line in {lines})
app.main()
"""
"""The same command with one host, and with a tour of these commands."""
LOOKING = SHORT.format(lines=("status",))
LOOPING = SHORT.format(
    lines=("launch --name busy --cpu 0.1 -- sleep 600", "watch --until-idle --interval 0.5")
)
WHOLE = ("-m", "iris_cli")


@pytest.mark.parametrize(
    ("program", "tpu", "hosts", "loop"),
    [
        (("-c", LOOKING), "v5litepod-4", 1, "auto"),
        pytest.param(("-c", LOOKING), "v5litepod-4", 1, "off", marks=pytest.mark.soak),
        pytest.param(WHOLE, "v5litepod-16", 8, "auto", marks=pytest.mark.soak),
        pytest.param(WHOLE, "v5litepod-16", 8, "off", marks=pytest.mark.soak),
    ],
    ids=["short-auto", "short-off", "auto", "off"],
)
def test_a_kept_demo_goes_on_until_it_is_stopped(
    tmp_path: Path, program: tuple[str, str], tpu: str, hosts: int, loop: str
) -> None:
    root = tmp_path / "lab"
    env = {"IRIS_LOOP": loop}
    iris = Site(tmp_path, (), {**env, "TMPDIR": str(tmp_path)}).iris
    start = (sys.executable, *program)
    ran = run("demo", "--keep", "--json", "--dir", str(root), directory=tmp_path, env=env, start=start)
    assert ran.returncode == 0, ran.stderr
    [document] = checked("iris demo", ran.stdout)
    steps = document["steps"]
    assert steps[-1]["command"] == ["iris", "status"]
    assert ("doomed" in steps[-1]["output"]) == (hosts == 8)
    try:
        config = ("--config", str(root / "cluster.yaml"))
        iris(*config, "launch", "--wait", "--cpu", "0.1", "--", "true")
        left = iris(*config, "launch", "--name", "left", "--tpu", tpu, "--", "sleep", "600")
        assert ("background loop started" in left.err) == (loop == "auto")
        pids = json.loads((root / "hosts.json").read_text())
    finally:
        stopped = iris("demo", "--stop", "--dir", str(root))
    assert stopped.out.splitlines() == [f"ended {hosts} hosts"]
    assert len(pids) == hosts
    assert not root.exists()
    assert mentioning(str(tmp_path)) == []


short_and_whole = pytest.mark.parametrize(
    "program", [("-c", LOOPING), pytest.param(WHOLE, marks=pytest.mark.soak)], ids=["short", "whole"]
)


@contextmanager
def running_demo(program: tuple[str, str], directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo at the moment when its background loop runs."""
    with subprocess.Popen(
        [sys.executable, *program, "demo"],
        env={**os.environ, "TMPDIR": str(directory), "HOME": str(directory), "IRIS_LOOP": "auto"},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert any(line.startswith("background loop started") for line in process.stdout)
        yield process


@short_and_whole
def test_a_demo_that_is_interrupted_leaves_no_loop_either(program: tuple[str, str], tmp_path: Path) -> None:
    with running_demo(program, tmp_path) as process:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert mentioning(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


@short_and_whole
def test_a_demo_that_is_killed_leaves_no_process_and_its_loop_ends_by_itself(
    program: tuple[str, str], tmp_path: Path
) -> None:
    with running_demo(program, tmp_path) as process:
        process.kill()
        process.wait(PATIENCE)
    until(lambda: mentioning(str(tmp_path)) == [], lambda: mentioning(str(tmp_path)))
    [log] = tmp_path.glob("iris-demo-*/lab/state/loop.log")
    assert log.read_text().endswith("ended: its demo ended\n")
