"""A command that leaves open jobs starts the background loop, unless somebody else runs cycles."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from iris_cli.files import DISK
from iris_cli.journal.files.runners import write_heartbeat
from tests.support.command_server import command_server
from tests.support.invocations import Invocation
from tests.support.mounts import on_a_small_disk, remount
from tests.support.operator import CONFIG, Operator
from tests.support.waiting import until

Ran = subprocess.CompletedProcess[str]
STARTED = re.compile(r"^background loop started \(pid ([0-9]+)\): iris loop show$", re.MULTILINE)
_NUMBERS = count()  # one for each command that is begun


@pytest.fixture
def ann(operator: Operator) -> Operator:
    """The operator with an open job, in a shell in which commands may start the loop."""
    operator.env["IRIS_LOOP"] = "auto"
    return operator


def starts(operator: Operator, said: str) -> None:
    """A command has started the loop, and said which process it is."""
    [pid] = map(int, STARTED.findall(said))
    assert operator.pid() == pid


def starts_none(operator: Operator, ran: Ran) -> None:
    assert "background loop" not in ran.stderr, ran
    assert operator.loop is None


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("wait job --timeout 0.1s", 1),
        ("worker probe", 7),
    ],
)
def test_a_command_that_leaves_open_jobs_starts_the_loop_and_says_so(
    ann: Operator, line: str, code: int
) -> None:
    ran = ann.iris(*line.split())
    assert ran.returncode == code, ran
    starts(ann, ran.stderr)
    assert "loop started" not in ran.stdout


def test_the_next_launch_finds_it_and_says_nothing_and_the_one_after_it_was_killed_starts_another(
    ann: Operator,
) -> None:
    starts(ann, ann.iris("launch", "--name", "a", "--", "true").stderr)
    first = ann.pid()
    ran = ann.iris("launch", "--name", "b", "--", "true")
    assert "loop" not in ran.stderr
    assert ann.pid() == first
    ann.end()
    starts(ann, ann.iris("launch", "--name", "c", "--", "true").stderr)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("launch --no-schedule --name more -- true", 0),
        ("launch --dry-run --name more -- true", 0),
        ("schedule --once", 0),
        ("status", 0),
        ("why job", 0),
        ("cancel job", 0),
        ("doctor --offline", 1),
    ],
)
def test_a_command_that_only_looks_or_submits_or_leaves_nothing_starts_none(
    ann: Operator, line: str, code: int
) -> None:
    ran = ann.iris(*line.split())
    assert ran.returncode == code, ran
    assert not STARTED.search(ran.stderr), ran
    assert ann.loop is None


def _off(ann: Operator) -> None:
    ann.env["IRIS_LOOP"] = "off"


def _off_in_the_file(ann: Operator) -> None:
    (ann.directory / "cluster.yaml").write_text(CONFIG + "loop: off\n")


def _in_a_task(ann: Operator) -> None:
    ann.env |= {"IRIS_TASK_DIR": str(ann.directory), "IRIS_STATE_DIR": str(ann.directory / "state")}


def _stopped(ann: Operator) -> None:
    ann.iris("loop", "stop")


def _cron_runs(ann: Operator) -> None:
    now = time.time()
    write_heartbeat(ann.state.path, DISK, {"at": now}, "cron", {"at": now, "interval": 3600.0})


@pytest.mark.parametrize(
    "situation", [_off, _off_in_the_file, _in_a_task, _stopped, _cron_runs], ids=lambda each: each.__name__
)
def test_no_loop_starts_if_it_is_off_stopped_or_unnecessary(
    ann: Operator, situation: Callable[[Operator], None]
) -> None:
    situation(ann)
    ran = ann.iris("launch", "--name", "more", "--", "true")
    assert ran.returncode == 0, ran
    starts_none(ann, ran)


def test_a_cron_that_is_silent_for_three_of_its_intervals_keeps_no_loop_away(ann: Operator) -> None:
    at = time.time() - 200
    write_heartbeat(ann.state.path, DISK, {"at": at}, "cron", {"at": at, "interval": 60.0})
    starts(ann, ann.iris("launch", "--name", "more", "--", "true").stderr)


@contextmanager
def begin(ann: Operator, *words: str) -> Iterator[Invocation]:
    """Start a command that runs until it is ended, as a forked process: its start takes most of the time."""
    said, server = ann.directory / f"said-{next(_NUMBERS)}", command_server()
    pid = server.start(words, directory=ann.directory, env=ann.environ(), out=Path(os.devnull), err=said)
    begun = Invocation(pid, said)
    try:
        yield begun
    finally:
        if begun.code is None:
            begun.kill()
            begun.wait()


def ended(begun: Invocation, number: int) -> str:
    """Send a command this signal; returns its standard error."""
    os.kill(begun.pid, number)
    return begun.done(130)


def test_a_launch_beside_a_wait_starts_none_and_the_wait_starts_it_when_it_is_left(ann: Operator) -> None:
    with begin(ann, "wait", "job") as wait:
        until(ann.state.runners.live_runners)
        starts_none(ann, ann.iris("launch", "--name", "more", "--", "true"))
        starts(ann, ended(wait, signal.SIGINT))


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("logs job --follow", signal.SIGINT),
        ("launch --wait -- true", signal.SIGTERM),
        ("watch", signal.SIGHUP),
        pytest.param("wait job", signal.SIGHUP, marks=pytest.mark.soak),
        pytest.param("launch --follow --name=more -- true", signal.SIGINT, marks=pytest.mark.soak),
        pytest.param("watch --schedule", signal.SIGTERM, marks=pytest.mark.soak),
    ],
)
def test_whoever_is_left_while_it_runs_cycles_starts_the_loop(ann: Operator, line: str, number: int) -> None:
    with begin(ann, *line.split()) as process:
        until(lambda: ann.state.read_heartbeat() is not None)  # its first cycle is over
        starts(ann, ended(process, number))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("wait job more", "stopped waiting; job, more continue: iris wait job more, or iris cancel job more"),
        ("logs job --follow", "stopped following; job continues: iris logs job --follow"),
    ],
)
def test_an_interrupted_command_says_whether_the_job_goes_on(line: str, words: str, ann: Operator) -> None:
    ann.env["IRIS_LOOP"] = "off"
    ann.iris("launch", "--no-schedule", "--name", "more", "--", "true")
    nobody = f"{words.partition(';')[0]}; no cycles are running: iris loop start, or iris cron install"
    for loop, told in (("off", nobody), ("auto", words)):
        ann.env["IRIS_LOOP"] = loop
        (ann.state.path / "heartbeat.json").unlink(missing_ok=True)
        with begin(ann, *line.split()) as process:
            until(lambda: ann.state.read_heartbeat() is not None)
            assert told in ended(process, signal.SIGINT).splitlines()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("wait job", "stopped waiting; job continues: iris wait job, or iris cancel job"),
        ("logs job --follow", "stopped following; job continues: iris logs job --follow"),
        ("watch", "stopped watching; job "),
    ],
)
def test_an_interrupted_wait_is_a_document_with_json(line: str, words: str, ann: Operator) -> None:
    with begin(ann, *line.split(), "--json") as process:
        until(lambda: ann.state.read_heartbeat() is not None)
        error = json.loads(ended(process, signal.SIGINT).splitlines()[-1])["error"]
    assert error["message"].startswith(words)
    assert error["exit_code"] == 130


def test_a_second_hang_up_does_not_keep_the_first_from_starting_the_loop(ann: Operator) -> None:
    """The kernel sends one and the shell another."""
    with begin(ann, "wait", "job") as process:
        until(lambda: ann.state.read_heartbeat() is not None)
        os.kill(process.pid, signal.SIGHUP)
        starts(ann, ended(process, signal.SIGHUP))


def test_a_wait_under_nohup_goes_on_when_the_terminal_closes(ann: Operator) -> None:
    words = ["nohup", sys.executable, "-m", "iris_cli", "wait", "job"]
    with subprocess.Popen(
        words, cwd=ann.directory, env=ann.environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        until(lambda: ann.state.read_heartbeat() is not None)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)  # the kernel delivers SIGHUP, whose number is lower, first
        assert process.wait() == 130
    assert ann.pid()


def test_a_loop_that_can_not_be_started_is_one_warning_and_no_error(ann: Operator) -> None:
    shutil.rmtree(ann.directory / "state" / "runners", ignore_errors=True)
    (ann.directory / "state" / "runners").write_text("not a directory")
    ran = ann.iris("launch", "--name", "more", "--", "true")
    assert ran.returncode == 0
    [line] = [line for line in ran.stderr.splitlines() if "loop" in line]
    assert line == (
        "warning: the background loop failed to start: File exists; "
        "jobs stay pending until you run: iris watch --schedule, or iris cron install"
    )
    assert ran.stdout == "more\n"


def test_on_a_disk_that_is_really_read_only_a_wait_warns_once_and_ends_as_it_would(
    ann: Operator, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()

    def attempt() -> None:
        there = Operator(disk / "lab", env=ann.env)
        shutil.copytree(ann.directory / "state", there.directory / "state")
        shutil.copy(ann.directory / "cluster.yaml", there.directory)
        remount(disk, "ro")
        waited = there.iris("wait", "job", "--timeout", "0.1s")
        assert waited.returncode == 1, waited
        [why] = [line for line in waited.stderr.splitlines() if "no cycle can run" in line]
        assert "can't be written: Read-only file system, no cycle can run: " in why
        assert "loop" not in waited.stderr
        assert there.iris("launch", "--", "true").returncode == 10
        assert there.loop is None

    on_a_small_disk(disk, attempt, size="16m")
