"""Random fleets and queues for property tests: small enough to be looked at, mixed enough to go wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from iris_cli.core.job import Job, Priority
from iris_cli.core.resources import Device
from iris_cli.core.worker import Worker
from tests.support.fleet import busy, gang, host, job, tainted, tpu_slice, training

_VARIANTS = {"v4-8": 1, "v4-16": 2, "v4-32": 4}
_REGIONS: st.SearchStrategy[str | int] = st.sampled_from(["us", "eu", 1, "1"])
_CONSTRAINTS = st.lists(
    st.sampled_from(["region=us", "region!=eu", "region>0", 'region="1"', "!pool", "~region=eu", "~pool"]),
    max_size=2,
    unique=True,
)
_HABITS: list[Any] = [
    lambda worker: worker,
    busy,
    lambda worker: busy(worker, cpu=worker.cpu / 2),
    lambda worker: training(worker) if worker.chips else worker,
    lambda worker: replace(worker, draining=True),
    tainted,
]


@st.composite
def fleets(draw: st.DrawFn) -> list[Worker]:
    """Up to four slices and up to five hosts, some busy, sick or tainted."""
    found: list[Worker] = []
    for number in range(draw(st.integers(0, 4))):
        variant = draw(st.sampled_from(sorted(_VARIANTS)))
        vms = draw(st.sampled_from([_VARIANTS[variant]] * 4 + [1, 3]))
        found += tpu_slice(f"s{number}", variant, vms, region=draw(_REGIONS))
    for number in range(draw(st.integers(0, 5))):
        gpus = draw(st.sampled_from([0, 0, 2, 4]))
        pool: dict[str, Any] = draw(st.sampled_from([{}, {"pool": "x"}]))
        cpu = draw(st.sampled_from([2, 8, 16]))
        found.append(host(f"h{number}", cpu, gpus=gpus, rack=draw(_REGIONS), region=draw(_REGIONS), **pool))
    habits = st.sampled_from([_HABITS[0]] * 6 + _HABITS)
    return [draw(habits)(worker) for worker in found]


@st.composite
def queues(draw: st.DrawFn) -> list[Job]:
    """Up to eight jobs: single tasks with and without accelerators, gangs on slices and on racks."""
    return [draw(jobs(number)) for number in range(draw(st.integers(0, 8)))]


@st.composite
def jobs(draw: st.DrawFn, number: int) -> Job:
    """One job of any kind."""
    shared: dict[str, Any] = {
        "order": number,
        "priority": draw(st.sampled_from(Priority)),
        "submitted_at": draw(st.sampled_from([0.0, 900.0])),
        "cpu": draw(st.sampled_from([0.5, 1, 4, 16, 100])),
        "tolerations": draw(st.sampled_from([(), ("maintenance",)])),
    }
    constraints = draw(_CONSTRAINTS)
    name = f"j{number}"
    match draw(st.sampled_from(["cpu", "gpu", "tpu", "slice", "slice", "rack"])):
        case "cpu":
            return job(name, *constraints, replicas=draw(st.integers(1, 6)), **shared)
        case "gpu":
            device = Device("gpu", count=draw(st.integers(1, 3)))
            return job(name, *constraints, device=device, replicas=draw(st.integers(1, 3)), **shared)
        case "tpu":
            return job(name, *constraints, device=Device("tpu"), replicas=draw(st.integers(1, 3)), **shared)
        case "slice":
            variant = draw(st.sampled_from(sorted(_VARIANTS)))
            slices = draw(st.sampled_from([1, 1, 2]))
            asked = draw(st.sampled_from([variant, "auto"]))
            replicas = _VARIANTS[variant] * slices
            return gang(name, *constraints, tpu=asked, replicas=replicas, slices=slices, **shared)
    return gang(name, *constraints, tpu=None, by="rack", replicas=draw(st.integers(1, 3)), **shared)
