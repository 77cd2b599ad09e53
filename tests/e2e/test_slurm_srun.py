"""Gangs inside allocations of a real Slurm whose nodes have no SSH server: every call is a step of the allocation."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import monotonic

import pytest

from iris_cli.demo.local_slurm import why_no_slurm
from tests.e2e.slurm_site import GANG, SlurmSite, slurm_site
from tests.support.slurm import Slurm
from tests.support.waiting import PATIENCE

SRUN = "nodes: 2, transport: srun"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Four nodes with four GPUs each. Files stand for the devices."""
    if why := why_no_slurm():
        pytest.skip(why)
    cluster = Slurm(tmp_path_factory.mktemp("slurm"), gpus=4)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def site(slurm: Slurm, tmp_path: Path) -> Iterator[SlurmSite]:
    try:
        made = slurm_site(slurm, [], tmp_path)
        made.configure(SRUN)
        yield made
    finally:
        slurm.empty()


@pytest.mark.soak
def test_a_gang_runs_where_no_node_has_an_ssh_server(site: SlurmSite) -> None:
    show = "echo rank $IRIS_TASK_INDEX of $IRIS_NUM_TASKS on $IRIS_WORKER_ID"
    site.iris("launch", "--no-schedule", "--name", "train", *GANG, "--", "sh", "-c", show)
    site.run_until("train", "SUCCEEDED")
    [name], job = site.slices(), site.allocation()
    assert sorted(site.iris("logs", "train", "--no-fold").out.splitlines()) == [
        f"[{rank}] rank {rank} of 2 on {name}.{job}-{rank}" for rank in (0, 1)
    ]
    assert site.live_jobs() == [job]


def take_the_first_gpu_of_each_node(site: SlurmSite) -> str:
    """Return the job that has them."""
    assert site.slurm is not None
    one_each = ("--nodes=4", "--gres=gpu:a100:1", "--output=/dev/null", "--wrap=sleep 600")
    return site.slurm.run("sbatch", "--parsable", *one_each).strip()


@pytest.mark.soak
def test_tasks_get_the_gpus_that_slurm_granted_and_after_scancel_the_nodes_are_silent_until_declared_dead(
    site: SlurmSite,
) -> None:
    other = take_the_first_gpu_of_each_node(site)
    site.configure(f"{SRUN}, gres: 'gpu:a100:2'")
    once = "echo GPUs $CUDA_VISIBLE_DEVICES; test $IRIS_ATTEMPT != 0 || sleep 600"
    site.iris("launch", "--no-schedule", "--name", "train", *GANG, "--gpu", "a100:2", "--", "sh", "-c", once)
    site.run_until("train", "RUNNING")
    site.cycle_until(
        lambda: (
            sorted(site.iris("logs", "train", "--no-fold", code=None).out.splitlines())
            == ["[0] GPUs 1,2", "[1] GPUs 1,2"]
        )
    )
    job = site.allocation()
    assert site.slurm is not None
    workers = [each["id"] for each in site.iris("workers", "--json").json()["workers"]]
    site.slurm.run("scancel", job)
    site.slurm.ended(job)
    site.cycle_until(lambda: site.live_jobs() == [other] and not site.slices())
    site.cycle()
    assert site.of_type("AttemptEnded", "AttemptStopped", "AttemptPresumedGone") == []
    for worker in workers:
        site.iris("worker", "forget", "--dead", worker)
    site.run_until("train", "SUCCEEDED")
    assert site.allocation() != job


def test_granted_gpus_a_workspace_an_output_file_a_command_stacks_and_what_needs_ssh_to_the_node(
    site: SlurmSite,
) -> None:
    take_the_first_gpu_of_each_node(site)
    site.configure(f"{SRUN}, gres: 'gpu:a100:2'")
    code, pulled = site.directory / "code", site.directory / "pulled"
    code.mkdir()
    (code / "train.sh").write_text(
        'echo result >"$IRIS_OUTPUT_DIR/file"; echo up on $CUDA_VISIBLE_DEVICES; sleep 600\n'
    )
    asked = ("--name", "train", "--workdir", str(code), "--gpu", "a100:2")
    site.iris("launch", "--no-schedule", *asked, "--", "sh", "train.sh")
    site.run_until("train", "RUNNING")
    site.cycle_until(lambda: "up on 1,2" in site.iris("logs", "train", code=None).out)
    assert site.iris("exec", "train", "--", "cat", "train.sh").out.startswith("echo result")
    assert "sleep 600" in site.iris("stacks", "train", code=None).out
    site.iris("pull", "train", "--dir", str(pulled))
    assert [path.read_text() for path in pulled.glob("**/file")] == ["result\n"]
    check_what_needs_ssh_to_the_node(site)
    site.iris("cancel", "train")
    site.run_until("train", "KILLED")


def check_what_needs_ssh_to_the_node(site: SlurmSite) -> None:
    job = site.allocation()
    where = f"of Slurm job {job} is reached by srun, which can't"
    forwarded = site.iris("forward", "train", "6006", code=None)
    assert forwarded.code
    assert "which is reached by srun: srun can't forward ports" in forwarded.err
    with site.terminal("run", "--", "true", columns=300) as terminal:
        terminal.until(lambda screen: f"{where} open terminals for jobs" in screen.text, "the refusal")
        assert terminal.end() == 255
    assert site.iris("exec", "train", "--", "sh", "-c", "echo on $SLURMD_NODENAME").out.startswith("on n")
    with site.terminal("ssh", "train") as terminal:
        terminal.until(lambda screen: screen.text.strip(), "a prompt")
        terminal.type("echo in:$IRIS_TASK_ID:; exit\n")
        terminal.until(lambda screen: "in:train/task-0:" in screen.text, "the variable of the task")
        assert terminal.end() == 0


@pytest.mark.soak
def test_a_slurmctld_that_has_ended_is_silence_and_nothing_is_lost_or_doubled(site: SlurmSite) -> None:
    starts, end = site.directory / "starts", site.directory / "end"
    script = f'echo $IRIS_TASK_INDEX >>"{starts}"; until [ -e "{end}" ]; do sleep 0.2; done'
    site.iris("launch", "--no-schedule", "--name", "train", *GANG, "--", "sh", "-c", script)
    site.cycle_until(lambda: site.state_of("train") == "RUNNING" and len(starts.read_text().split()) == 2)
    job = site.allocation()
    assert site.slurm is not None
    site.slurm.stop_controller()
    stopped_at = monotonic()
    try:
        while monotonic() < stopped_at + 60:
            site.cycle()
        assert site.state_of("train") == "RUNNING"
        assert site.of_type("SliceDeletionRequested", "AttemptEnded", "AttemptStopRequested") == []
    finally:
        site.slurm.start_controller()
    end.touch()
    site.run_until("train", "SUCCEEDED")
    assert sorted(starts.read_text().split()) == ["0", "1"]
    assert (site.allocation(), site.live_jobs()) == (job, [job])


@pytest.mark.soak
def test_twenty_launches_by_an_iris_that_is_killed_start_once(site: SlurmSite) -> None:
    chance, count = Random(20), 20
    starts = site.directory / "starts"
    starts.mkdir()
    for number in range(count):
        script = f'echo started >>"{starts}/{number}"'
        site.iris("launch", "--no-schedule", "--name", f"job-{number}", "--", "sh", "-c", script)
        process = site.start("schedule", "--once", "--autoscale", "--quiet")
        try:
            process.wait(chance.uniform(0.1, 1.5))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
    for number in range(count):
        site.run_until(f"job-{number}", "SUCCEEDED")
    assert {path.name: path.read_text() for path in starts.iterdir()} == {
        str(number): "started\n" for number in range(count)
    }
    assert len(site.live_jobs()) == 1
