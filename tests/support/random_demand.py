"""Small random scale groups and jobs."""

from __future__ import annotations

from typing import Any

from iris_cli.core.autoscaling import GroupState
from iris_cli.core.model.job import Job
from iris_cli.core.resources import Device
from tests.support.fleet import GIB, gang, job
from tests.support.random_fleet import Dice
from tests.support.scale import state

_ZONES = ["us-west4-a", "us-west4-b", "us-central2-b", "europe-west4-a"]
_TYPES = {"v5litepod-16": 4, "v4-16": 2, "v4-8": 1, "v5litepod-8": 1}
_TYPE_NAMES = ["v5litepod-16", "v5litepod-16", "v4-16", "v4-8", "v5litepod-8"]
_WANTED = [
    *("region=us-west4", "region=us-central2", "region in us-west4,europe-west4", "region=mars"),
    *("preemptible=true", "preemptible=false", "zone!=us-west4-a", "pool=a", "!pool", "pool", "rack>=2"),
    *(
        "~region=us-central2",
        "~pool=a",
        "~preemptible=false",
        "tpu-name=s0",
        "tpu-worker-id=0",
        "tpu-worker-id>=1",
    ),
]


def some_groups(dice: Dice) -> list[GroupState]:
    """Return up to five groups with their states."""
    return [_a_group(dice, f"g{number}") for number in range(dice.pick([1, 2, 3, 4, 5, 0]))]


def _a_group(dice: Dice, name: str) -> GroupState:
    most = dice.up_to(4)
    slices = dice.up_to(most)
    attributes: dict[str, Any] = dice.pick(
        [{}, {}, {"pool": "a"}, {"pool": 1}, {"rack": 3}, {"taint:x": "true"}]
    )
    return state(
        name,
        dice.pick(_TYPE_NAMES),
        dice.pick(_ZONES),
        preemptible=dice.pick([False, True]),
        priority=dice.pick([0, 0, 1, 2]),
        attributes=attributes,
        max_slices=most,
        slices=slices,
        backing_off=dice.pick(["", "", "", "quota"]),
    )


def some_jobs(dice: Dice) -> list[Job]:
    """Return up to nine jobs of all kinds."""
    return [_a_job(dice, f"j{number}") for number in range(dice.up_to(9))]


def _a_job(dice: Dice, name: str) -> Job:
    wanted = tuple(dict.fromkeys(dice.pick(_WANTED) for _ in range(dice.pick([0, 0, 1, 1, 2]))))
    asked: dict[str, Any] = {"cpu": dice.pick([1, 16, 60, 112, 250]), "memory": dice.pick([1, 1, 90]) * GIB}
    asked["tolerations"] = dice.pick([(), (), ("x",)])
    kind = dice.up_to(3)
    if kind == 0:
        return job(name, *wanted, replicas=dice.pick([1, 2, 5]), **asked)
    tpu = dice.pick(_TYPE_NAMES)
    if kind == 1:
        return job(
            name, *wanted, device=Device("tpu", dice.pick([tpu, "auto"])), replicas=dice.pick([1, 3]), **asked
        )
    if kind == 2:
        return gang(name, *wanted, tpu=None, replicas=dice.pick([2, 3, 5]), **asked)
    slices = dice.pick([1, 1, 2, 3])
    vms = _TYPES[tpu]
    asked["spread"] = dice.rarely(4)
    return gang(name, *wanted, tpu=dice.pick([tpu, "auto"]), replicas=vms * slices, slices=slices, **asked)
