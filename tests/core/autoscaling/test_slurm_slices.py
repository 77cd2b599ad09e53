"""Slices whose processes can outlive them: what the end of an allocation proves, and what it doesn't."""

from __future__ import annotations

from typing import Any

import pytest

from iris_cli.core import attributes as keys
from iris_cli.core.attributes import AttributeValue
from iris_cli.core.autoscaling import DemandEntry, GroupState, route_demand
from iris_cli.core.autoscaling.demand import entry_of
from iris_cli.core.events import events as ev
from iris_cli.core.ids import WorkerId
from iris_cli.core.lifecycle import slices
from iris_cli.core.lifecycle.slices import SUBMIT_DEADLINE
from iris_cli.core.messages.cloud import CloudSlice, CloudState, Scope
from iris_cli.core.messages.observations import WorkerReport
from iris_cli.core.model.slice import (
    NodeAccess,
    Provider,
    ScaleGroup,
    SliceHost,
    SliceState,
    SliceTemplate,
    SlurmOptions,
    slice_attributes,
    slice_of,
)
from iris_cli.core.model.task import AttemptState
from iris_cli.core.model.worker import Connection, WorkerCondition
from iris_cli.core.resources import Device, Resources
from tests.support.lab import Lab
from tests.support.reports import parse_report

NAME = "pool-c0ff-1"
HOSTS = (
    SliceHost(host="n0", remote_dir="/tmp/iris-7/pool"),
    SliceHost(host="n1", remote_dir="/tmp/iris-7/pool"),
)


def slurm_group(name: str = "pool", **options: Any) -> ScaleGroup:
    template = SliceTemplate(provider=Provider.SLURM, type="", slurm=SlurmOptions(**{"nodes": 2, **options}))
    return ScaleGroup(name=name, template=template, connection=Connection(host="", user="me"))


def seen(state: CloudState, **fields: Any) -> CloudSlice:
    return CloudSlice(name=NAME, state=state, group="pool", **{"incarnation": "12 1000", **fields})


def follow(made: Lab, *listed: CloudSlice) -> Lab:
    """Apply one list of the provider."""
    group = slurm_group()
    heard = slices.Listing(scope=Scope.of(group.template), slices=listed, before=dict(made.cluster.slices))
    with made.transaction() as draft:
        made.settle(draft, slices.apply_listing(draft, heard, {"pool": group.connection}, made.limits))
    return made


def requested() -> Lab:
    made = Lab()
    with made.transaction() as draft:
        draft.record(ev.SliceRequested(slice=NAME, group="pool", template=slurm_group().template))
    return made


def running(cgroup: str = "") -> Lab:
    """A gang of two on an allocation; `cgroup`: the Slurm job whose cgroup contained the probe of node 0."""
    made = follow(requested(), seen(CloudState.READY, hosts=HOSTS, ends_at=5000.0))
    for index, worker in enumerate(made.cluster.slices[NAME].workers):
        found = {
            keys.TPU_NAME_ATTRIBUTE_KEY: AttributeValue(NAME),
            keys.TPU_WORKER_ID_ATTRIBUTE_KEY: AttributeValue(index),
            keys.DEVICE_TYPE_ATTRIBUTE_KEY: AttributeValue("cpu"),
        }
        if cgroup and index == 0:
            found[keys.CGROUP_OF_JOB_ATTRIBUTE_KEY] = AttributeValue(cgroup)
        with made.transaction() as draft:
            draft.record(
                ev.WorkerUpdated(
                    worker=worker,
                    connection=draft.cluster.workers[worker].connection,
                    attributes=found,
                    cpu=2.0,
                    memory=1 << 32,
                    boot_id="boot",
                    incarnation=f"{index}" * 32,
                )
            )
            draft.record(ev.WorkerConditionChanged(worker=worker, condition=WorkerCondition.HEALTHY))
            slices.join_complete_slices(draft)
    made.job("train", replicas=2, group_by="tpu-name").schedule()
    return made.answers(*(its_answer(made, worker) for worker in made.cluster.slices[NAME].workers))


def its_answer(made: Lab, worker: WorkerId) -> WorkerReport:
    """Node 0 or 1 answers that its attempts run."""
    known = made.cluster.workers[worker]
    live = [parse_report(attempt.token, "running") for _, attempt in made.cluster.live_attempts_on(worker)]
    return WorkerReport(
        worker=worker, boot_id=known.boot_id, incarnation=known.incarnation, attempts=tuple(live)
    )


def attempts(made: Lab) -> dict[str, AttemptState]:
    """The state of the last attempt of each task."""
    return {str(task.id): task.attempts[-1].state for task in made.cluster.tasks.values() if task.attempts}


def test_worker_ids_contain_the_allocation_and_lead_back_to_the_slice() -> None:
    made = running()
    assert list(made.cluster.workers) == [f"{NAME}.12-0", f"{NAME}.12-1"]
    assert {slice_of(worker) for worker in made.cluster.workers} == {NAME}
    assert {worker.ends_at for worker in made.cluster.workers.values()} == {5000.0}
    assert made.cluster.workers[WorkerId(f"{NAME}.12-0")].connection.remote_dir == "/tmp/iris-7/pool"


def test_the_end_of_an_allocation_orders_stops_and_ends_nothing() -> None:
    made = follow(running(), seen(CloudState.ENDED, detail="TIMEOUT", processes_gone=True))
    assert set(attempts(made).values()) == {AttemptState.STOPPING}
    assert all(worker.draining and worker.claims for worker in made.cluster.workers.values())
    follow(made, seen(CloudState.ENDED, detail="TIMEOUT", processes_gone=True))
    assert made.cluster.slices == {}
    assert len(made.cluster.workers) == 2


def test_where_the_probe_was_in_the_jobs_cgroup_the_end_of_the_job_is_the_end_of_its_attempts() -> None:
    made = follow(running(cgroup="12"), seen(CloudState.ENDED, detail="TIMEOUT", processes_gone=True))
    states = attempts(made)
    assert states["train/task-0"] is AttemptState.ENDED
    assert states["train/task-1"] is AttemptState.STOPPING
    assert list(made.cluster.workers) == [f"{NAME}.12-1"]


@pytest.mark.parametrize(
    ("cgroup", "processes_gone"),
    [
        ("12", False),  # a node that does not answer Slurm, or no proctrack/cgroup
        ("11", True),  # the cgroup of another job of this user
    ],
)
def test_an_end_without_proof_leaves_the_attempts_stopping(cgroup: str, processes_gone: bool) -> None:
    made = follow(running(cgroup), seen(CloudState.ENDED, detail="TIMEOUT", processes_gone=processes_gone))
    assert set(attempts(made).values()) == {AttemptState.STOPPING}


def test_a_job_that_slurm_has_forgotten_proves_nothing() -> None:
    made = follow(running(cgroup="12"))
    assert set(attempts(made).values()) == {AttemptState.STOPPING}
    follow(made)
    assert made.cluster.slices == {}


def test_another_job_of_that_name_proves_nothing() -> None:
    made = follow(running(cgroup="12"), seen(CloudState.READY, hosts=HOSTS, incarnation="13 2000"))
    assert set(attempts(made).values()) == {AttemptState.STOPPING}


def test_a_requeued_job_no_longer_holds_its_nodes() -> None:
    """It has the same number and a later time of submission, and is pending or runs on other nodes."""
    requeued = seen(CloudState.CREATING, incarnation="12 2000", detail="Slurm job 12: PENDING (BeginTime)")
    made = follow(running(cgroup="12"), requeued)
    assert set(attempts(made).values()) == {AttemptState.STOPPING}
    assert made.cluster.slices[NAME].state is SliceState.DELETING
    assert "PENDING (BeginTime)" in made.cluster.slices[NAME].reason


def test_a_submission_may_arrive_until_its_deadline() -> None:
    made = requested()
    with made.transaction() as draft:
        draft.record(ev.SliceDeletionRequested(slice=NAME, reason="no longer needed"))
    assert follow(made).cluster.slices != {}
    made.advance(SUBMIT_DEADLINE)
    assert follow(made).cluster.slices == {}


def test_remarks_and_time_limits_are_recorded_when_they_change() -> None:
    made = follow(requested(), seen(CloudState.CREATING, remark="PENDING (Priority)"))
    seq = made.cluster.seq
    follow(made, seen(CloudState.CREATING, remark="PENDING (Priority)"))
    assert made.cluster.seq == seq
    follow(made, seen(CloudState.CREATING, remark="PENDING (Resources)"))
    assert made.cluster.slices[NAME].remark == "PENDING (Resources)"
    ran = follow(running(), seen(CloudState.READY, hosts=HOSTS, ends_at=4000.0))
    assert {worker.ends_at for worker in ran.cluster.workers.values()} == {4000.0}


@pytest.mark.parametrize(
    ("gres", "device"),
    [
        ("", Device("cpu")),
        ("gpu:2", Device("gpu", "auto", 2)),
        ("gpu", Device("gpu", "auto", 1)),
        ("gpu:a100:4", Device("gpu", "a100", 4)),
        ("shard:1,gres/gpu:h100", Device("gpu", "h100", 1)),
        ("license:3", Device("cpu")),
    ],
)
def test_the_gres_of_a_group_says_which_gpus_its_hosts_have(gres: str, device: Device) -> None:
    assert slurm_group(gres=gres).template.device == device
    made = slice_attributes(slurm_group(gres=gres))
    assert str(made[keys.DEVICE_TYPE_ATTRIBUTE_KEY]) == device.kind


def wants(**fields: Any) -> DemandEntry:
    made = Lab().job("train", force=True, **fields)
    [job] = made.cluster.jobs.values()
    return entry_of(job, job.task_ids)


def served(entry: DemandEntry, *groups: ScaleGroup) -> dict[str, int]:
    return dict(route_demand([entry], [GroupState(group=group) for group in groups]).launch)


def test_demand_goes_to_allocations_that_fit() -> None:
    gang = wants(replicas=2, group_by="tpu-name")
    assert served(gang, slurm_group()) == {"pool": 1}
    assert served(gang, slurm_group(nodes=1)) == {}
    assert served(wants(gpu="auto:2"), slurm_group()) == {}
    assert served(wants(gpu="auto:2"), slurm_group(gres="gpu:a100:4")) == {"pool": 1}
    assert served(wants(gpu="auto:8"), slurm_group(gres="gpu:a100:4")) == {}
    assert served(wants(tpu="v4-8"), slurm_group()) == {}
    assert served(wants(timeout=7200.0), slurm_group(time=3600.0)) == {}
    longer = slurm_group("longer", time=7500.0)
    assert served(wants(timeout=7200.0), slurm_group(time=3600.0), longer) == {"longer": 1}


def test_an_allocation_as_long_as_the_task_is_too_short() -> None:
    """Part of its time has passed when its nodes are ready: allocations would be created without end."""
    assert served(wants(timeout=3600.0), slurm_group(time=3600.0)) == {}
    assert served(wants(timeout=3300.0), slurm_group(time=3600.0)) == {"pool": 1}
    assert served(wants(timeout=60.0), slurm_group(time=60.0)) == {}
    assert served(wants(timeout=54.0), slurm_group(time=60.0)) == {"pool": 1}
    [unmet] = route_demand([wants(timeout=3600.0)], [GroupState(group=slurm_group(time=3600.0))]).unmet
    assert str(unmet.reason) == "needs 1h, but the longest slice lasts 55m after its start"


def test_srun_reaches_the_nodes_by_allocation_and_name() -> None:
    made = requested()
    srun = slurm_group(transport=NodeAccess.SRUN, login="login1")
    with made.transaction() as draft:
        draft.record(ev.SliceDeletionRequested(slice=NAME, reason="another one"))
        draft.record(ev.SliceDeleted(slice=NAME))
        draft.record(ev.SliceRequested(slice=NAME, group="pool", template=srun.template))
        draft.record(ev.SliceCreated(slice=NAME))
        draft.record(ev.SliceStarted(slice=NAME, hosts=HOSTS, incarnation="12 1000"))
    first, second = slices.connections_of(made.cluster.slices[NAME], srun.connection).values()
    assert (first.allocation, first.node, first.login) == ("12", "n0", "login1")
    assert (second.host, second.node) == ("n1", "n1")
    assert Resources(device=slurm_group(gres="gpu:2").template.device).device_type == "gpu"
