"""What the museum has of slices that are made on demand."""

from __future__ import annotations

from iris_cli.core.events.events import (
    ClusterCreated,
    Event,
    ScaleGroupBackedOff,
    SliceCreated,
    SliceDeleted,
    SliceDeletionRequested,
    SliceJoined,
    SliceRefused,
    SliceReported,
    SliceRequested,
    SlicesAdopted,
    SliceSetUp,
    SliceStarted,
    WorkerRegistered,
)
from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.model.slice import (
    Addresses,
    GcpOptions,
    NodeAccess,
    Provider,
    SliceHost,
    SliceTemplate,
    SlurmOptions,
)
from tests.journal.samples import HOST, NOON

_WEST = SliceTemplate(
    provider=Provider.GCP,
    type="v5litepod-16",
    project="lab",
    zone="us-west4-a",
    runtime="v2-alpha-tpuv5-lite",
    preemptible=True,
)
SCALED: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (
        SliceRequested(slice="west-0f1e-1", group="west", template=_WEST),
        SliceRequested(slice="west-0f1e-2", group="west", template=_WEST),
    ),
    (
        SliceCreated(slice="west-0f1e-1"),
        ScaleGroupBackedOff(group="west", error="quota: no v5e left", failures=1, until=NOON + 300.0),
        SliceRefused(slice="west-0f1e-2", error="no v5e left"),
    ),
    (
        SliceStarted(
            slice="west-0f1e-1",
            hosts=(SliceHost(host="10.0.0.1", port=2222, key="ssh-ed25519 AAAA"), SliceHost(host="10.0.0.2")),
            incarnation="4711 2026-11-20T12:00:00Z",
        ),
        WorkerRegistered(worker=WorkerId("west-0f1e-1-0"), connection=HOST),
    ),
    (SliceJoined(slice="west-0f1e-1"),),
    (SliceDeletionRequested(slice="west-0f1e-1", reason="idle for 10m"),),
    (SliceDeleted(slice="west-0f1e-1"),),
    (SliceDeletionRequested(slice="west-0f1e-9", reason="nobody knows it", group="west", template=_WEST),),
)
"""Slices that are made on demand, and one that the log knew nothing of."""

ASKED_FOR: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (
        SliceRequested(
            slice="east-0f1e-1",
            group="east",
            template=SliceTemplate(
                provider=Provider.GCP,
                type="v5p-32",
                project="lab",
                zone="us-east5-a",
                runtime="v2-alpha-tpuv5",
                gcp=GcpOptions(
                    topology="2x2x4",
                    reserved=True,
                    reservation="ours",
                    queued=True,
                    addresses=Addresses.INTERNAL,
                    network="lab",
                    subnetwork="tpus",
                    service_account="runner@lab.iam.gserviceaccount.com",
                    tags=("ssh",),
                    labels={"team": "vision"},
                ),
            ),
        ),
        SliceRequested(
            slice="west-0f1e-1",
            group="west",
            template=SliceTemplate(
                provider=Provider.GCP, type="v6e-8", preemptible=True, gcp=GcpOptions(spot=True)
            ),
        ),
    ),
    (WorkerRegistered(worker=WorkerId("east-0f1e-1-0"), connection=HOST),),
)
"""All that a slice of Google's can be asked for with."""

SET_UP: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (
        SliceRequested(
            slice="west-0f1e-1",
            group="west",
            template=_WEST,
            setup="pip install jax",
            wanted_by=(JobId("train"), JobId("eval")),
        ),
    ),
    (SliceCreated(slice="west-0f1e-1"),),
    (
        SliceStarted(slice="west-0f1e-1", hosts=(SliceHost(host="10.0.0.1"), SliceHost(host="10.0.0.2"))),
        WorkerRegistered(worker=WorkerId("west-0f1e-1-0"), connection=HOST),
    ),
    (
        SliceSetUp(slice="west-0f1e-1", vm=1),
        SliceSetUp(
            slice="west-0f1e-1", vm=0, error="exit 3: no such mirror", log_tail="looking\nno such mirror\n"
        ),
    ),
)
"""A slice whose VMs are set up before they join, and for whom it was made."""

ON_SLURM: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (
        SliceRequested(
            slice="gpus-0f1e-1",
            group="gpus",
            template=SliceTemplate(
                provider=Provider.SLURM,
                type="",
                slurm=SlurmOptions(
                    nodes=2,
                    partition="gpu",
                    account="vision",
                    qos="long",
                    time=7200.0,
                    gres="gpu:a100:2",
                    constraint="ib",
                    directives=("--exclusive",),
                    login="login1",
                    transport=NodeAccess.SRUN,
                ),
            ),
        ),
    ),
    (
        SliceCreated(slice="gpus-0f1e-1"),
        SliceReported(slice="gpus-0f1e-1", remark="Slurm job 12: PENDING (Priority)"),
    ),
    (
        SliceReported(slice="gpus-0f1e-1", ends_at=NOON + 7200.0),
        SliceStarted(
            slice="gpus-0f1e-1",
            hosts=(
                SliceHost(host="n0", cpus=8, memory=64 << 30, gpus=(0, 1), remote_dir="/tmp/iris-1000/12"),
                SliceHost(host="n1", cpus=8, memory=64 << 30, gpus=(2, 3), remote_dir="/tmp/iris-1000/12"),
            ),
            incarnation="12 1795780800",
        ),
        WorkerRegistered(worker=WorkerId("gpus-0f1e-1.12-0"), connection=HOST),
    ),
)
"""An allocation of Slurm's: pending for a reason, then with two GPUs on each node and a time limit."""

ADOPTED: tuple[tuple[Event, ...], ...] = (
    (ClusterCreated(name="museum"),),
    (
        SliceRequested(slice="west-0f1e-1", group="west", template=_WEST),
        SlicesAdopted(place="9f86d081884c7d65:393217", where="laptop:/lab/state"),
    ),
    (
        SlicesAdopted(
            place="60303ae22b998861:131", where="bastion:/srv/lab/state", counted={"west": 4, "east": 1}
        ),
    ),
    (
        SliceRequested(slice="west-0f1e-5", group="west", template=_WEST),
        WorkerRegistered(worker=WorkerId("v4a-0"), connection=HOST),
    ),
)
"""A log that was put back on another machine, where slices were made since."""
