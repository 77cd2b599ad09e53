"""A real Slurm that requeues preempted jobs, and runs heterogeneous jobs: its scheduler is sched/backfill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iris_cli.capacity.slurm.provider import SlurmProvider
from iris_cli.core.messages.cloud import CloudSlice, CloudState
from iris_cli.core.model.slice import Slice, SliceState
from iris_cli.demo.local_slurm import URGENT, why_no_slurm
from tests.support.slurm import Slurm
from tests.support.slurm_slices import Settled, slurm_group
from tests.support.waiting import until

GROUP = slurm_group(directives=("--exclusive",))


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    if why := why_no_slurm():
        pytest.skip(why)
    settings = {
        "PreemptMode": "REQUEUE",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1",
    }
    made = Slurm(tmp_path_factory.mktemp("slurm"), nodes=2, settings=settings)
    monkeypatch.setenv("SLURM_CONF", str(made.conf))
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_an_allocation_is_cancelled_where_others_are_requeued_and_heterogeneous_jobs_are_ignored(
    lab: Slurm,
) -> None:
    Settled("us").create("west-1", GROUP)
    [there] = Settled("us").list()
    quiet = ("--output=/dev/null", "--wrap=sleep 600")
    lab.run("sbatch", f"--partition={URGENT}", "--nodes=2", "--exclusive", *quiet)
    parts = ("--nodes=1", "--job-name=west-2", "--begin=now+1hour")
    lab.run("sbatch", *parts, *quiet, ":", *parts)
    known = {
        "west-1": Slice(
            name="west-1",
            group="west",
            template=GROUP.template,
            state=SliceState.READY,
            hosts=there.hosts,
            incarnation=there.incarnation,
        )
    }
    found: list[CloudSlice] = []

    def has_ended() -> bool:
        found[:] = SlurmProvider("us", known).list()
        return found[0].state is CloudState.ENDED

    until(has_ended, lambda: found)
    assert len(found) == 1
    assert "PREEMPTED" in found[0].remark
    SlurmProvider("us", known).create("west-1", GROUP)
    [again] = SlurmProvider("us", {}).list()
    assert again.state is CloudState.CREATING
    assert again.incarnation != there.incarnation
