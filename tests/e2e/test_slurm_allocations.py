"""Gangs inside allocations of a real Slurm, over SSH."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import monotonic

import pytest

from iris_cli.demo.local_slurm import URGENT
from tests.e2e.conftest import Lab
from tests.e2e.slurm_site import GANG, SlurmSite, slurm_site
from tests.support.slurm import Slurm
from tests.support.waiting import until


@pytest.fixture
def site(slurm: Slurm, ssh_lab: Lab, tmp_path: Path) -> Iterator[SlurmSite]:
    try:
        yield slurm_site(slurm, ssh_lab(slurm.nodes), tmp_path)
    finally:
        slurm.empty()


@pytest.mark.soak
def test_a_gang_runs_in_one_allocation(site: SlurmSite) -> None:
    show = "echo rank $IRIS_TASK_INDEX of $IRIS_NUM_TASKS on $IRIS_WORKER_ID"
    site.iris("launch", "--no-schedule", "--name", "train", *GANG, "--", "sh", "-c", show)
    site.run_until("train", "SUCCEEDED")
    [name], job = site.slices(), site.allocation()
    assert sorted(site.iris("logs", "train", "--no-fold").out.splitlines()) == [
        f"[{rank}] rank {rank} of 2 on {name}.{job}-{rank}" for rank in (0, 1)
    ]
    assert site.live_jobs() == [job]


def test_invocations_create_one_allocation_which_failures_and_a_silent_slurm_keep_and_a_node_set_down_ends(
    site: SlurmSite,
) -> None:
    """Three invocations at the same time create one allocation. A gang survives its end, and is stopped first."""
    script = 'test "$IRIS_TASK_INDEX" = 0 && sleep 600; echo no such file; exit 3'
    site.iris("launch", "--no-schedule", "--name", "train", *GANG, "--", "sh", "-c", script)
    for process in [site.start("autoscale", "--once") for _ in range(3)]:
        process.communicate()
    failed = site.run_until("train", "FAILED")
    assert [each["state"] for each in failed["tasks"]] == ["WORKER_FAILED", "FAILED"]
    assert failed["tasks"][1]["exit_code"] == 3
    job = site.allocation()
    pids = launch_once_at_a_time(site, "next")
    [first] = site.slices()
    assert (site.allocation(), site.live_jobs()) == (job, [job])
    check_that_a_silent_slurm_changes_nothing(site, "next")
    assert len(site.of_type("SliceRequested")) == 1
    assert site.slurm is not None
    node = str(site.of_type("SliceStarted")[0]["hosts"][0]["host"])
    site.slurm.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=memory errors")
    site.slurm.ended(job)
    assert all(map(is_alive, pids))
    site.run_until("next", "SUCCEEDED")
    assert "NODE_FAIL" in site.of_type("SliceDeletionRequested")[0]["reason"]
    assert first not in site.slices()
    assert job not in site.live_jobs()


ONCE_AT_A_TIME = """
pid=$SHARED/pid.$IRIS_TASK_INDEX
if [ -e "$pid" ]; then
    ! grep -qsaF "SHARED=$SHARED" "/proc/$(cat "$pid")/environ" || exit 9
    echo again
    exit 0
fi
trap '' TERM
echo $$ >"$pid.new"
mv "$pid.new" "$pid"
while :; do sleep 1; done
"""
"""The first time it runs until it is killed; the second time it fails if the first one lives."""


def launch_once_at_a_time(site: SlurmSite, name: str = "train") -> list[Path]:
    """Run it as a gang of two; return the files with the pids of its first attempt."""
    shared = ("-e", f"SHARED={site.directory}", "--grace", "1s")
    site.iris("launch", "--no-schedule", "--name", name, *GANG, *shared, "--", "sh", "-c", ONCE_AT_A_TIME)
    pids = [site.directory / f"pid.{rank}" for rank in (0, 1)]
    site.cycle_until(lambda: all(path.exists() for path in pids) and site.state_of(name) == "RUNNING")
    return pids


def is_alive(path: Path) -> bool:
    return Path(f"/proc/{path.read_text().strip()}").exists()


def check_that_a_silent_slurm_changes_nothing(site: SlurmSite, running: str, seconds: float = 0.0) -> None:
    before = site.slices().keys(), site.live_jobs()
    assert site.slurm is not None
    site.slurm.stop_controller()
    stopped_at = monotonic()
    site.cycle()
    while monotonic() < stopped_at + seconds:
        site.cycle()
    assert site.slices().keys() == before[0]
    assert site.state_of(running) == "RUNNING"
    site.slurm.start_controller()
    site.cycle()
    assert (site.slices().keys(), site.live_jobs()) == before


@pytest.mark.soak
def test_a_silent_slurm_changes_nothing_and_what_survives_scancel_is_stopped_before_the_gang_starts_again(
    site: SlurmSite,
) -> None:
    pids = launch_once_at_a_time(site)
    [first], job = site.slices(), site.allocation()
    check_that_a_silent_slurm_changes_nothing(site, "train", seconds=60)
    assert site.slurm is not None
    assert [each["type"] for each in site.of_type("SliceRequested", "SliceDeletionRequested")] == [
        "SliceRequested"
    ]
    site.slurm.run("scancel", job)
    site.slurm.ended(job)
    assert all(map(is_alive, pids))
    site.run_until("train", "SUCCEEDED")
    assert first not in site.slices()
    assert site.allocation() != job
    kinds = [each["type"] for each in site.events()]
    again = len(kinds) - kinds[::-1].index("TaskAssigned")
    assert kinds[:again].count("AttemptStopped") + kinds[:again].count("AttemptEnded") >= 2
    assert "CANCELLED" in site.of_type("SliceDeletionRequested")[0]["reason"]


@pytest.mark.soak
def test_the_state_of_a_node_is_shown_while_its_allocation_runs(site: SlurmSite) -> None:
    launch_once_at_a_time(site)
    [name], job = site.slices(), site.allocation()
    assert site.slurm is not None
    node = str(site.of_type("SliceStarted")[0]["hosts"][1]["host"])
    site.slurm.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=bad disk")
    try:
        site.cycle_until(lambda: f"{node} is draining (bad disk)" in site.slices()[name]["reason"])
    finally:
        site.slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    site.cycle_until(lambda: site.slices()[name]["reason"] == "")
    assert (site.state_of("train"), site.live_jobs()) == ("RUNNING", [job])


@pytest.mark.soak
def test_slurms_reason_for_a_pending_allocation_is_shown(site: SlurmSite) -> None:
    site.configure("nodes: 2, directives: [--hold]")
    site.iris("launch", "--no-schedule", "--name", "train", *GANG, "--", "true")
    site.cycle_until(lambda: any("JobHeldUser" in each["reason"] for each in site.slices().values()))
    [name] = site.slices()
    assert f"{name} is being created: Slurm job" in " ".join(site.iris("why", "train").out.split())
    assert "JobHeldUser" in site.iris("why", "train").out
    assert "JobHeldUser" in " ".join(site.iris("status").out.split())
    assert site.slurm is not None
    site.slurm.run("scontrol", "release", *site.live_jobs())
    site.run_until("train", "SUCCEEDED")


ALONE = ("--group-by", "tpu-name")


def test_work_that_needs_longer_than_the_time_left_is_not_placed(site: SlurmSite) -> None:
    site.configure("nodes: 1, time: 2h")
    site.iris("launch", "--no-schedule", "--name", "first", *ALONE, "--timeout", "1h", "--", "true")
    site.run_until("first", "SUCCEEDED")
    assert site.slurm is not None
    site.slurm.run("scontrol", "update", f"JobId={site.allocation()}", "TimeLimit=30")
    site.cycle()
    [shown] = site.slices().values()
    assert re.fullmatch(r"(30|[12][0-9])m.* left", shown["reason"])  # of 30 minutes since the allocation
    site.iris("launch", "--no-schedule", "--name", "short", *ALONE, "--timeout", "20m", "--", "true")
    site.run_until("short", "SUCCEEDED")
    site.iris("launch", "--no-schedule", "--name", "long", *ALONE, "--timeout", "1h", "--", "true")
    site.cycle()
    assert "the only slice ends before its time limit" in site.iris("why", "long").out
    site.configure("nodes: 1, time: 2h", most=2)
    site.cycle()
    assert len(site.slices()) == 2
    site.iris(
        "launch", "--no-schedule", "--name", "never", *ALONE, "--timeout", "3h", "--", "true", code=None
    )
    site.cycle()
    words = " ".join(site.iris("why", "never").out.split())
    assert "needs 3h, but the longest slice lasts 1h55m after its start" in words


KILLS_ITS_CALLER = """#!/bin/sh
[ {moment} = before ] || {real} "$@" || exit
rm "$0"
kill -9 $PPID
"""


def test_a_kill_before_or_after_any_command_of_slurm_neither_leaks_nor_doubles_an_allocation(
    site: SlurmSite,
) -> None:
    programs = site.directory / "bin"
    programs.mkdir()
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}

    def kill_at(command: str, moment: str) -> None:
        """Run passes of the autoscaler until one is killed at that moment."""
        trap = programs / command
        trap.write_text(KILLS_ITS_CALLER.format(moment=moment, real=shutil.which(command)))
        trap.chmod(0o755)

        def killed() -> bool:
            process = site.start("autoscale", "--once", env=path)
            process.communicate()
            return process.returncode == -signal.SIGKILL

        until(killed)
        assert not trap.exists()

    def kill_at_each(*commands: str) -> None:
        for command in commands:
            kill_at(command, "before")
            kill_at(command, "after")

    site.configure("nodes: 1")
    site.iris("launch", "--no-schedule", "--name", "train", "--", "true")
    kill_at_each("squeue", "sbatch")
    [submitted] = site.live_jobs()
    assert site.of_type("SliceCreated") == []
    kill_at_each("sinfo", "scontrol")
    site.run_until("train", "SUCCEEDED")
    assert (site.live_jobs(), site.allocation()) == ([submitted], submitted)
    assert len(site.of_type("SliceRequested")) == 1
    site.configure("nodes: 1", idle="1s")
    kill_at_each("scancel")
    site.cycle_until(lambda: not site.slices())
    assert site.live_jobs() == []
    assert site.iris("status", "--json").json()["workers"] == []
    assert len(site.of_type("SliceRequested")) == 1


@pytest.mark.soak
def test_a_requeued_allocation_is_replaced_and_no_rank_runs_twice(site: SlurmSite) -> None:
    launch_once_at_a_time(site)
    [first], job = site.slices(), site.allocation()
    assert site.slurm is not None
    site.slurm.run("scontrol", "update", f"JobId={job}", "Requeue=1")
    site.slurm.run("scontrol", "requeue", job)
    until(lambda: site.slurm and site.slurm.jobs(job)[0]["JobState"] == "PENDING")
    site.run_until("train", "SUCCEEDED")
    assert first not in site.slices()
    assert site.allocation() != job
    assert site.live_jobs() == [site.allocation()]


@pytest.mark.soak
def test_a_preempted_allocation_is_replaced_and_slurms_words_are_shown(site: SlurmSite) -> None:
    site.configure("nodes: 2, preemptible: true, directives: [--exclusive]")
    launch_once_at_a_time(site)
    assert site.slurm is not None
    runs = site.directory / "urgent"  # a job that is cancelled while it starts may keep its nodes
    urgent = ("--exclusive", "--output=/dev/null", f"--wrap=touch {runs}; sleep 600")
    other = site.slurm.run("sbatch", "--parsable", f"--partition={URGENT}", "--nodes=4", *urgent).strip()
    site.cycle_until(lambda: "PREEMPTED" in str(site.of_type("SliceDeletionRequested")))
    site.cycle_until(lambda: "PENDING (Resources)" in site.iris("why", "train").out)
    assert "PREEMPTED" in site.iris("history").out
    until(runs.exists)
    site.slurm.run("scancel", other)
    site.run_until("train", "SUCCEEDED")
    assert site.live_jobs() == [site.allocation()]


def test_slurms_commands_run_on_a_login_host(site: SlurmSite, ssh_lab: Lab) -> None:
    """This machine has no Slurm of its own: its configuration is known only in the sessions of the login host."""
    conf = site.env["SLURM_CONF"]
    [login] = ssh_lab(1, env={"SLURM_CONF": conf})
    site.configure("nodes: 1, login: login1")
    site.env["SLURM_CONF"] = "/nowhere/slurm.conf"
    with (site.directory / ".ssh" / "config").open("a") as file:
        file.write(f"Host login1\n  HostName {login.address}\n  Port {login.port}\n")
    site.iris("launch", "--no-schedule", "--name", "train", "--", "true")
    site.run_until("train", "SUCCEEDED")
    assert site.live_jobs() == [site.allocation()]
    login.stop()
    silent = site.iris("autoscale", "--once", code=None)
    assert "squeue on login1" in silent.out + silent.err
    assert len(site.slices()) == 1


@pytest.mark.soak
def test_the_time_limit_ends_the_allocation_and_the_gang_goes_on_in_the_next_one(site: SlurmSite) -> None:
    """Slurm counts time limits in minutes."""
    site.configure("nodes: 2, time: 1m", limits="settle_seconds: 1s")
    launch_once_at_a_time(site)
    job = site.allocation()
    site.configure("nodes: 2")  # a loaded machine may need longer than a minute for the next one
    site.run_until("train", "SUCCEEDED")
    assert "TIMEOUT" in site.of_type("SliceDeletionRequested")[0]["reason"]
    assert site.allocation() != job


@pytest.mark.soak
def test_fifty_launches_with_kills_run_each_gang_once_at_a_time(site: SlurmSite) -> None:
    """Invocations are killed at any moment. No rank runs twice at once, and no allocation is left."""
    random, pids = Random(50), site.directory / "pids"
    pids.mkdir()
    once = (
        f'pid={pids}/$IRIS_JOB_ID.$IRIS_TASK_INDEX; [ ! -e "$pid" ] || '
        '! grep -qsaF "IRIS_JOB_ID=$IRIS_JOB_ID" "/proc/$(cat "$pid")/environ" || exit 9; '
        'echo $$ >"$pid"; sleep 0.3'
    )
    site.configure("nodes: 2", most=2, idle="10s")
    jobs = [f"job-{number}" for number in range(50)]
    for job in jobs:
        launched = site.start("launch", "--no-schedule", "--name", job, *GANG, "--", "sh", "-c", once)
        launched.communicate()
        for _ in range(2):
            cycle = site.start("schedule", "--once", "--autoscale", "--quiet")
            try:
                cycle.wait(random.uniform(0.2, 3.0))
            except subprocess.TimeoutExpired:
                cycle.kill()
            cycle.communicate()
        if random.random() < 0.1 and site.live_jobs():
            assert site.slurm is not None
            site.slurm.run("scancel", random.choice(site.live_jobs()))
    for job in jobs:
        site.run_until(job, "SUCCEEDED")
    site.cycle_until(lambda: not site.slices())
    assert site.live_jobs() == []
