"""Gangs inside allocations of a real Slurm whose nodes have no SSH server: every call is a step of the allocation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.slurm_site import GANG, SlurmSite, slurm_site
from tests.support.slurm import Slurm

SRUN = "nodes: 2, transport: srun"


@pytest.fixture
def site(slurm: Slurm, tmp_path: Path) -> Iterator[SlurmSite]:
    try:
        made = slurm_site(slurm, [], tmp_path)
        made.configure(SRUN)
        yield made
    finally:
        slurm.empty()


def test_a_gang_runs_where_no_node_has_an_ssh_server(site: SlurmSite) -> None:
    show = "echo rank $IRIS_TASK_INDEX of $IRIS_NUM_TASKS on $IRIS_WORKER_ID"
    site.iris("launch", "--no-schedule", "--name", "train", *GANG, "--", "sh", "-c", show)
    site.run_until("train", "SUCCEEDED")
    [name], job = site.slices(), site.allocation()
    assert sorted(site.iris("logs", "train", "--no-fold").out.splitlines()) == [
        f"[{rank}] rank {rank} of 2 on {name}.{job}-{rank}" for rank in (0, 1)
    ]
    assert site.live_jobs() == [job]


def test_a_failing_rank_stops_the_other_one(site: SlurmSite) -> None:
    script = 'test "$IRIS_TASK_INDEX" = 0 && sleep 600; exit 3'
    site.iris("launch", "--no-schedule", "--name", "train", *GANG, "--", "sh", "-c", script)
    failed = site.run_until("train", "FAILED")
    assert [each["state"] for each in failed["tasks"]] == ["WORKER_FAILED", "FAILED"]


def test_after_scancel_the_nodes_are_silent_until_the_operator_declares_them_dead(site: SlurmSite) -> None:
    once = "echo $IRIS_ATTEMPT; test $IRIS_ATTEMPT != 0 || sleep 600"
    site.iris("launch", "--no-schedule", "--name", "train", *GANG, "--", "sh", "-c", once)
    site.run_until("train", "RUNNING")
    job = site.allocation()
    workers = [each["id"] for each in site.iris("workers", "--json").json()["workers"]]
    assert site.slurm is not None
    site.slurm.run("scancel", job)
    site.slurm.ended(job)
    site.cycle_until(lambda: not site.live_jobs() and not site.slices())
    site.cycle()
    assert site.of_type("AttemptEnded", "AttemptStopped", "AttemptPresumedGone") == []
    for worker in workers:
        site.iris("worker", "forget", "--dead", worker)
    site.run_until("train", "SUCCEEDED")
    assert site.allocation() != job
