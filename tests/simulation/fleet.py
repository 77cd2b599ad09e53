"""The machines of a run, and the configuration that names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from iris_cli.config.schema import ClusterConfig, HostConfig
from iris_cli.core.attributes import (
    PREEMPTIBLE_ATTRIBUTE_KEY,
    TPU_NAME_ATTRIBUTE_KEY,
    AttributeValue,
    region_of_zone,
)
from iris_cli.core.ids import WorkerId
from iris_cli.core.model.job import Job, ReplaceLost
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.worker import Connection, Worker
from tests.simulation.holdings import Facts


@dataclass(frozen=True, slots=True)
class Place:
    """One worker id: what stands there, and with whom it shares its fate."""

    worker: WorkerId
    facts: Facts
    group: str
    region: str = ""

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        """What constraints of the jobs in a run can ask for."""
        preemptible = dict(self.facts.metadata).get("preemptible", "false")
        return {PREEMPTIBLE_ATTRIBUTE_KEY: AttributeValue(preemptible)}


def draw_fleet(rng: Random) -> list[Place]:
    """One to three slices of two VMs, and one to three hosts without chips, some with GPUs.

    The slices are in one region or in two; on some fleets there is little room beside the chips.
    """
    places = []
    cpus, zones = rng.choice((4, 240)), rng.choice((("us-west4-a",), ("us-west4-a", "us-central2-b")))
    for name in "abc"[: rng.choice((1, 2, 2, 2, 3))]:
        preemptible, zone = rng.random() < 0.5, rng.choice(zones)
        for index in range(2):
            metadata = (
                ("accelerator-type", "v4-16"),
                ("agent-worker-number", str(index)),
                ("tpu-name", name),
                ("preemptible", "true" if preemptible else "false"),
                ("zone", zone),
            )
            facts = Facts(cpus=cpus, metadata=metadata, chips=4)
            places.append(Place(WorkerId(f"{name}{index}"), facts, name, region_of_zone(zone)))
    places += [
        Place(WorkerId(f"w{index}"), Facts(cpus=4, gpus=rng.choice((0, 2, 3))), "w")
        for index in range(rng.choice((1, 2, 3)))
    ]
    return places


def is_as_probed(place: Place, worker: Worker | None) -> bool:
    """Whether the log knows which slice the machine belongs to."""
    name = dict(place.facts.metadata).get("tpu-name")
    known = worker.attributes.get(TPU_NAME_ATTRIBUTE_KEY) if worker is not None else None
    return (known.value if known is not None else None) == name


def serves(places: Sequence[Place], job: Job) -> bool:
    """Whether these machines can run a job when they are free and well: worked out without the scheduler."""
    device, needed = job.resources.device, job.resources.cpu_millis
    fits = [
        place
        for place in places
        if place.facts.cpus * 1000 >= needed
        and all(each.matches(place.attributes) for each in job.constraints if each.required)
        and (device is None or device.kind != "gpu" or place.facts.gpus >= device.count)
        and (device is None or device.kind != "tpu" or place.facts.chips)
    ]
    if not job.is_gang:
        return bool(fits)
    regions = dict.fromkeys(place.region for place in fits)
    slices = [
        sum(_members(fits, group) >= job.replicas // job.slices for group in _groups(fits, region))
        for region in regions
    ]
    return max(slices, default=0) >= job.slices


def _groups(places: Sequence[Place], region: str) -> list[str]:
    return list(dict.fromkeys(place.group for place in places if place.region == region))


def _members(places: Sequence[Place], group: str) -> int:
    return sum(place.group == group for place in places)


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
        worker_lost_after=rng.choice((60.0, 60.0, 150.0, 600.0)),
        settle_seconds=rng.choice((15.0, 60.0)),
        max_dispatch_failures=rng.choice((2, 10)),
        gang_reserve_after=rng.choice((60.0, 600.0)),
    )
