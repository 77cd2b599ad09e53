"""The machines of a run, and the configuration that names them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

from iris_cli.config.schema import ClusterConfig, HostConfig
from iris_cli.core.attributes import AttributeValue
from iris_cli.core.connection import Connection
from iris_cli.core.ids import WorkerId
from iris_cli.core.job import ReplaceLost
from iris_cli.core.limits import Limits
from tests.simulation.holdings import Facts


@dataclass(frozen=True, slots=True)
class Place:
    """One worker id: what stands there, and with whom it shares its fate."""

    worker: WorkerId
    facts: Facts
    group: str


def draw_fleet(rng: Random) -> list[Place]:
    """One to three slices of two VMs, and one to three hosts without chips, some with GPUs."""
    places = []
    for name in "abc"[: rng.choice((1, 2, 2, 2, 3))]:
        preemptible = rng.random() < 0.5
        for index in range(2):
            metadata = (
                ("accelerator-type", "v4-16"),
                ("agent-worker-number", str(index)),
                ("tpu-name", name),
                ("preemptible", "true" if preemptible else "false"),
            )
            facts = Facts(cpus=240, metadata=metadata, chips=4)
            places.append(Place(WorkerId(f"{name}{index}"), facts, name))
    places += [
        Place(WorkerId(f"w{index}"), Facts(cpus=4, gpus=rng.choice((0, 2, 3))), "w")
        for index in range(rng.choice((1, 2, 3)))
    ]
    return places


def config_of(rng: Random, places: list[Place], path: Path) -> ClusterConfig:
    replace_lost = rng.choice(list(ReplaceLost))
    hosts = tuple(
        HostConfig(
            worker=place.worker,
            connection=Connection(host=place.worker),
            attributes={"rack": AttributeValue(place.group)},
            replace_lost=replace_lost,
        )
        for place in places
    )
    return ClusterConfig(
        path=path / "cluster.yaml", name="site", hosts=hosts, replace_lost=replace_lost, limits=_limits(rng)
    )


def _limits(rng: Random) -> Limits:
    """Patience is short in many runs, so that more happens in them."""
    return Limits(
        dispatch_lease=rng.choice((20.0, 60.0)),
        backoff_max=rng.choice((40.0, 600.0)),
        quarantine_after=rng.choice((1, 3)),
        quarantine_retry=rng.choice((300.0, 3600.0)),
        worker_lost_after=rng.choice((60.0, 150.0, 600.0)),
        settle_seconds=rng.choice((15.0, 60.0)),
    )
