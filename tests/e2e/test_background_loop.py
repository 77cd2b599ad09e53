"""Somebody always runs the cycles: on real SSH servers, with nothing typed but a launch and looks at it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from iris_cli.journal.files.runners import Runner
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.loop.start import running_loop
from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.ssh

STARTED = "background loop started"
NOTIFY = 'notify: {{command: [sh, -c, "echo $IRIS_JOB_ID $IRIS_STATE >>{told}"]}}\n'
SCRIPT = """
echo "$IRIS_TASK_INDEX $IRIS_ATTEMPT" >>{lab}/starts
if [ $IRIS_ATTEMPT = 1 ]; then until [ -e {lab}/second ]; do sleep 0.1; done; exit 0; fi
if [ $IRIS_TASK_INDEX = 0 ]; then exec sleep 600; fi
until [ -e {lab}/first ]; do sleep 0.1; done; exit 3
"""
"""Rank 1 fails at `first`, and rank 0 has to be stopped; the second try ends well at `second`."""

STEPPED = """
import sys
from pathlib import Path
from iris_cli.cli.app import run
from iris_cli.clock import SystemClock

class Stepped(SystemClock):
    def now(self):
        return super().now() + float(Path(sys.argv[1]).read_text())

sys.exit(run(["loop", "run"], Stepped()))
"""
"""A loop whose wall clock is so many seconds ahead as a file says."""


class Ann(Site):
    """Somebody who types `iris launch` and `iris status`."""

    def launch(self, *more: str) -> str:
        """Launch the gang with one retry; returns what it said."""
        return self.iris("launch", *self.gang(), *more, "--", "sh", "-c", self.script).err

    @property
    def script(self) -> str:
        return SCRIPT.format(lab=self.directory)

    @staticmethod
    def gang() -> tuple[str, ...]:
        return ("--name", "train", "--tpu", "v4-16", "--grace", "1s", "--max-retries-failure", "1")

    @property
    def loop(self) -> Runner | None:
        return running_loop(StateDir(self.state, now=time.time, actor=f"me@{os.uname().nodename}"))

    def kill_loop(self, number: int = signal.SIGKILL) -> None:
        loop = self.loop
        assert loop is not None
        assert loop.pid > 0, "it has not said who it is: 0 would be this process and all that it has started"
        os.kill(loop.pid, number)

    def opens(self, *gates: str) -> None:
        for gate in gates:
            (self.directory / gate).touch()

    def started(self, lines: int) -> None:
        """Wait until so many ranks have started, in both tries together."""
        path = self.directory / "starts"
        until(lambda: path.exists() and len(path.read_text().splitlines()) >= lines)

    def ends_well(self) -> None:
        """It ends SUCCEEDED, and each rank has started once in each try. Then nothing of iris runs any more."""
        self.started(4)
        until(lambda: self.loop is None, lambda: self.iris("status", "train").out)
        assert self.job("train")["state"] == "SUCCEEDED"
        starts = Counter((self.directory / "starts").read_text().splitlines())
        assert starts == {"0 0": 1, "1 0": 1, "0 1": 1, "1 1": 1}


@pytest.fixture
def ann(ssh_lab: Callable[..., list[SshHost]], tmp_path: Path) -> Iterator[Ann]:
    """One slice of two hosts, and a command that is told how jobs end."""
    hosts = ssh_lab(2)
    directory = tmp_path / "operator"
    directory.mkdir()
    site = Ann(directory, hosts, {"IRIS_LOOP": "auto"})
    site.write_config({"a": hosts}, tpu="v4-16", extra=NOTIFY.format(told=directory / "told"))
    yield site
    site.iris("loop", "stop")


@pytest.mark.parametrize(
    ("how", "seconds"), [("--follow", 0), pytest.param("--wait", 120, marks=pytest.mark.soak)]
)
def test_a_loop_is_left_behind_by_a_terminal_that_is_closed_and_goes_on_after_it_was_suspended(
    ann: Ann, how: str, seconds: int
) -> None:
    with ann.terminal("launch", *ann.gang(), how, "--", "sh", "-c", ann.script) as terminal:
        ann.started(2)
        terminal.hang_up()
        until(lambda: ann.loop is not None and ann.loop.command)
    heartbeat = ann.state / "heartbeat.json"
    # The loop holds no lock for some seconds after its first cycle.
    until(lambda: heartbeat.exists() and '"loop"' in heartbeat.read_text())
    ann.kill_loop(signal.SIGSTOP)
    ann.opens("first", "second")
    pid = ann.loop.pid if ann.loop else 0
    time.sleep(seconds)  # as a laptop that sleeps: its lock stays, and so does its job
    shown = ann.iris("status").out
    assert f"background loop (pid {pid})" in shown
    assert not seconds or " is late (last cycle " in shown
    more = ("launch", "--no-schedule", "--cpu", "0.01", "--name", "more", "--", "true")
    assert STARTED not in ann.iris(*more).err
    ann.kill_loop(signal.SIGCONT)
    ann.ends_well()
    assert ann.job("more")["state"] == "SUCCEEDED"
    told = (ann.directory / "told").read_text().splitlines()
    assert sorted(told) == ["more SUCCEEDED", "train SUCCEEDED"]
    assert "no job is open, last cycle" in ann.iris("status").out
    assert "ended: nothing left to do" in (ann.state / "loop.log").read_text()


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.soak)])
def test_a_loop_that_is_killed_at_any_moment_loses_nothing(ann: Ann, kills: int) -> None:
    moments = random.Random(kills)
    assert ann.launch().count(STARTED) == 1
    ann.opens("first")
    for _ in range(kills):
        time.sleep(moments.uniform(0.0, 1.5))  # any moment will do: nothing waits for it
        ann.kill_loop()
        until(lambda: ann.loop is None)
        assert "no cycles are running (last one " in ann.iris("status").out
        ann.iris("loop", "start")
    ann.opens("second")
    ann.ends_well()


@pytest.mark.soak
def test_two_terminals_that_launch_at_once_start_one_loop(ann: Ann) -> None:
    for number in range(50):
        names = [f"a{number}", f"b{number}"]
        both = [ann.start("launch", "--cpu", "0.01", "--name", name, "--", "sleep", "600") for name in names]
        said = [process.communicate(timeout=PATIENCE)[1].decode() for process in both]
        assert [process.returncode for process in both] == [0, 0], said
        assert "".join(said).count(STARTED) == 1
        ann.iris("cancel", "--wait", *names)
        until(lambda: ann.loop is None)


@pytest.mark.soak
def test_a_clock_that_steps_under_the_loop_ends_and_delays_nothing(ann: Ann) -> None:
    ahead = ann.directory / "ahead"

    def step(seconds: float) -> None:
        (written := ahead.with_suffix(".new")).write_text(str(seconds))
        written.rename(ahead)

    step(0)
    ann.env["IRIS_LOOP"] = "off"
    ann.launch()
    with subprocess.Popen(
        [sys.executable, "-c", STEPPED, str(ahead)], cwd=ann.directory, env=ann.environ()
    ) as loop:
        ann.started(2)
        step(3 * 3600)
        ann.opens("first")
        ann.started(4)
        step(-2 * 3600)
        ann.opens("second")
        ann.ends_well()
        assert loop.wait(PATIENCE) == 0
    lines = (ann.state / "events.jsonl").read_text().splitlines()
    times = [datetime.fromisoformat(json.loads(line)["at"]) for line in lines]
    steps = [(late - early).total_seconds() for early, late in pairwise(times)]
    assert (max(steps) > 2 * 3600, min(steps) < -4 * 3600) == (True, True)


@pytest.mark.soak
def test_a_job_whose_secret_the_loop_lacks_waits_and_the_first_line_says_what_to_type(ann: Ann) -> None:
    ann.env["WANDB"] = "value"
    ann.iris("launch", "--no-schedule", "--cpu", "0.01", "--name", "eval", "--secret", "WANDB", "--", "true")
    del ann.env["WANDB"]
    ann.iris("loop", "start")
    ann.env["WANDB"] = "value"
    trouble = "background loop: secret WANDB of eval is not in the loop's environment; "
    until(lambda: ann.iris("status").out.startswith(trouble), lambda: ann.iris("status").out)
    [wait] = json.loads(ann.iris("why", "eval", "--json").out)["waits"]
    assert [each["kind"] for each in wait["explanation"]["reasons"]] == ["secret"]
    ann.iris("loop", "start")
    until(lambda: ann.job("eval")["state"] == "SUCCEEDED")
