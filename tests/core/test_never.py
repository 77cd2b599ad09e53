"""A job that no worker could ever run is refused when it is submitted; one that some worker might run is not."""

from __future__ import annotations

import pytest

from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.constraints import AttributeValue
from iris_cli.core.ids import JobId
from iris_cli.core.lifecycle.feasibility import Offer, check_possible
from iris_cli.core.model.job import CoschedulingConfig, Job
from iris_cli.core.model.worker import Amounts
from iris_cli.core.resources import Device, Resources
from iris_cli.core.units import parse_memory
from iris_cli.errors import UnschedulableError

GIB = 1 << 30


def offer(
    *,
    cpu: float = 2,
    memory: int = 8 * GIB,
    gpus: int = 0,
    known: bool = True,
    slices: int = 0,
    **attributes: str | int,
) -> Offer:
    found = {key.replace("_", "-"): AttributeValue(value) for key, value in attributes.items()}
    return Offer(found, Amounts(round(cpu * 1000), memory, gpus, 1) if known else None, slices)


FLEET = [
    offer(region="us-west4"),
    offer(cpu=4, memory=4 * GIB, region="us-east1"),
    offer(gpus=4, device_type="gpu", device_variant="A100", region="us-east1"),
]


def job(*constraints: str, cpu: float = 1, memory: int = GIB, device: Device | None = None) -> Job:
    return Job(
        id=JobId("a"),
        command=("true",),
        resources=Resources(cpu=cpu, memory=memory, device=device),
        constraints=tuple(map(parse_constraint, constraints)),
    )


@pytest.mark.parametrize(
    ("wanted", "message", "hint"),
    [
        (job(cpu=64), "no worker has 64 cores (largest: 4 cores)", "ask for 4 cores or less"),
        (
            job(memory=1 << 40),
            "no worker has 1TiB of memory (largest: 8GiB of memory)",
            "ask for 8GiB of memory or less",
        ),
        (
            job(device=Device("gpu", "A100", 8)),
            "no worker has 8 GPUs (largest: 4 GPUs)",
            "ask for 4 GPUs or less",
        ),
        (job(cpu=4, memory=8 * GIB), "no worker has 4 cores and 8GiB of memory", ""),
        (job("region=us-west4", cpu=4), "no worker has 4 cores (largest: 2 cores)", ""),
        (job("region=mars"), "no worker satisfies region=mars", "region is us-east1 or us-west4"),
        (job("region=us-est1"), "no worker satisfies region=us-est1", "did you mean 'us-east1'?"),
        (job("rack"), "no worker satisfies rack", "no worker has an attribute rack"),
        (
            job("region=us-west4", device=Device("gpu", "A100")),
            "no worker satisfies region=us-west4",
            "did you mean 'us-east1'?",
        ),
        (
            job("region!=us-west4", "region!=us-east1"),
            "no worker satisfies all of region!=us-west4 and region!=us-east1",
            "",
        ),
    ],
)
def test_a_job_that_no_worker_could_run_is_refused_with_the_nearest_that_could(
    wanted: Job, message: str, hint: str
) -> None:
    with pytest.raises(UnschedulableError) as raised:
        check_possible(wanted, FLEET)
    assert raised.value.message == f"{message}: not submitted"
    assert raised.value.hint.startswith(hint)
    assert raised.value.hint.endswith("--force submits the job anyway")


@pytest.mark.parametrize(
    "wanted",
    [
        job(cpu=4),
        job(memory=8 * GIB),
        job("region=us-east1", cpu=4),
        job("~region=mars"),
        job("!taint:broken"),
        job("taint:mine"),  # set by hand, perhaps in a minute
        job(device=Device("gpu", "A100", 4)),
    ],
)
def test_a_job_that_some_worker_could_run_is_not_refused(wanted: Job) -> None:
    check_possible(wanted, FLEET)


@pytest.mark.parametrize("wanted", [job(cpu=64), job("region=mars"), job(device=Device("gpu", "A100", 8))])
def test_a_worker_that_was_never_probed_may_serve_anything(wanted: Job) -> None:
    check_possible(wanted, [*FLEET, offer(known=False)])


def test_a_scale_group_serves_what_its_attributes_allow() -> None:
    group = offer(known=False, device_type="tpu", device_variant="v5litepod-16", region="us-west4")
    check_possible(job(cpu=64), [*FLEET, group])
    check_possible(job("rack=r7", device=Device("tpu")), [*FLEET, group])
    with pytest.raises(UnschedulableError, match="region=mars"):
        check_possible(job("region=mars"), [*FLEET, group])
    with pytest.raises(UnschedulableError, match="8 GPUs"):
        check_possible(job(device=Device("gpu", "A100", 8)), [*FLEET, group])


def test_without_any_worker_a_job_waits_for_the_first() -> None:
    check_possible(job(cpu=64), [])


RACKS = [
    offer(worker_id="a", rack="r1"),
    offer(worker_id="b", rack="r1"),
    offer(worker_id="c", rack="r1", cpu=16),
    offer(worker_id="d", rack="r2", cpu=16),
    offer(worker_id="e", rack="r2", cpu=16),
    offer(worker_id="f", zone="z"),
]
POOL = offer(
    known=False,
    slices=3,
    scale_group="pool",
    device_type="tpu",
    device_variant="v4-16",
    tpu_vm_count=2,
    zone="z",
)
UNPROBED = offer(known=False, worker_id="new")


def vm(number: int, name: str = "s", rack: str = "r0", cpu: float = 2) -> Offer:
    return offer(
        cpu=cpu,
        worker_id=f"{name}-{number}",
        tpu_name=name,
        tpu_vm_count=4,
        device_type="tpu",
        device_variant="v4-32",
        rack=rack,
    )


SLICE = [vm(number) for number in range(4)]


def gang(
    ranks: int,
    key: str,
    *constraints: str,
    cpu: float = 1,
    memory: int = GIB,
    slices: int = 1,
    tpu: str = "",
) -> Job:
    return Job(
        id=JobId("a"),
        command=("true",),
        resources=Resources(cpu=cpu, memory=memory, device=Device("tpu", tpu) if tpu else None),
        constraints=tuple(map(parse_constraint, constraints)),
        replicas=ranks * slices,
        slices=slices,
        coscheduling=CoschedulingConfig(key),
    )


@pytest.mark.parametrize(
    ("wanted", "fleet", "message", "hint"),
    [
        (
            gang(4, "rack"),
            RACKS,
            "no rack group has 4 workers (largest: r1 with 3)",
            "ask for 3 replicas or fewer",
        ),
        (
            gang(3, "rack", cpu=8),
            RACKS,
            "no rack group has 3 workers with 8 cores (largest: r2 with 2)",
            "ask for 2 cores or less",
        ),
        (  # the size alone: those that satisfy the constraint are enough
            gang(3, "rack", "rack=r1", cpu=8),
            RACKS,
            "no rack group has 3 workers with 8 cores (largest: r2 with 2)",
            "ask for 2 cores or less",
        ),
        (  # the constraint alone: those that are large enough are enough
            gang(2, "rack", "worker-id=d", cpu=8),
            RACKS,
            "no rack group has 2 workers that satisfy worker-id=d (largest: r2 with 1)",
            "r2 has 2 without worker-id=d",
        ),
        (  # either of them: with one of the two given up it fits
            gang(2, "rack", "worker-id!=d", cpu=8),
            RACKS,
            "no rack group has 2 workers with 8 cores that satisfy worker-id!=d (largest: r1 with 1)",
            "r2 has 2 without worker-id!=d, or ask for 2 cores or less",
        ),
        (  # both of them
            gang(3, "rack", "worker-id!=a", cpu=8),
            RACKS,
            "no rack group has 3 workers with 8 cores that satisfy worker-id!=a (largest: r2 with 2)",
            "ask for 2 cores or less without worker-id!=a",
        ),
        (  # the number of workers: no smaller size and no dropped constraint helps
            gang(4, "rack", "worker-id!=a", cpu=8),
            RACKS,
            "no rack group has 4 workers with 8 cores that satisfy worker-id!=a (largest: r2 with 2)",
            "ask for 2 replicas or fewer",
        ),
        (  # one worker lacks cores, the other one memory
            gang(2, "rack", cpu=8, memory=8 * GIB),
            [offer(rack="r", cpu=2), offer(rack="r", cpu=8, memory=4 * GIB), offer(cpu=8)],
            "no rack group has 2 workers with 8 cores and 8GiB of memory (none has rack)",
            "",
        ),
        (
            gang(2, "rack", memory=16 * GIB),
            [offer(rack="r"), offer(rack="r", memory=32 * GIB), offer(rack="s", memory=4 * GIB)],
            "no rack group has 2 workers with 16GiB of memory (largest: r with 1)",
            "ask for 8GiB of memory or less",
        ),
        (
            gang(4, "tpu-name", cpu=8, tpu="v4-32"),
            [*SLICE[:3], vm(3, cpu=8)],
            "no slice has 4 workers with 8 cores (largest: s with 1)",
            "ask for 2 cores or less",
        ),
        (
            gang(4, "rack", slices=2),
            RACKS,
            "no rack group has 4 workers (largest: r1 with 3)",
            "ask for 6 replicas or fewer",
        ),
        (
            gang(2, "rack", "worker-id=a"),
            RACKS,
            "no rack group has 2 workers that satisfy worker-id=a (largest: r1 with 1)",
            "r1 has 3 without worker-id=a",
        ),
        (
            gang(2, "rack", "zone=z"),
            RACKS,
            "no rack group has 2 workers that satisfy zone=z (none has rack)",
            "r1 has 3 without zone=z",
        ),
        (gang(2, "rak"), RACKS, "no worker has an attribute rak", "did you mean 'rack'?"),
        (gang(4, "zoen", tpu="v4-32"), SLICE, "no worker has an attribute zoen", ""),
        (
            gang(8, "zone"),
            [*RACKS, POOL],
            "no zone group has 8 workers (largest: z with 7)",
            "ask for 7 replicas or fewer",
        ),
        (
            gang(3, "tpu-name"),
            [*RACKS, POOL],
            "no slice has 3 workers (largest: a slice of pool with 2)",
            "ask for 2 replicas or fewer",
        ),
        (
            gang(4, "tpu-name", "worker-id=s-1", tpu="v4-32"),
            SLICE,
            "no slice has 4 workers that satisfy worker-id=s-1 (largest: s with 1)",
            "s has 4 without worker-id=s-1",
        ),
        (
            gang(3, "tpu-name", tpu="auto"),
            [*SLICE, POOL],
            "no slice has 3 VMs (slices have 2 or 4)",
            "drop --replicas, or ask for a multiple of 2 or 4",
        ),
        (
            gang(5, "rack"),
            [*RACKS, UNPROBED],
            "no rack group has 5 workers (largest: r1 with 4)",
            "ask for 4 replicas or fewer",
        ),
    ],
)
def test_a_gang_that_no_group_could_ever_hold_is_refused_with_the_largest(
    wanted: Job, fleet: list[Offer], message: str, hint: str
) -> None:
    with pytest.raises(UnschedulableError) as raised:
        check_possible(wanted, fleet)
    assert raised.value.message == f"{message}: not submitted"
    assert raised.value.hint.startswith(hint)
    assert raised.value.hint.endswith("--force submits the job anyway")


@pytest.mark.parametrize(
    ("wanted", "fleet"),
    [
        (gang(3, "rack"), RACKS),
        (gang(2, "rack", "worker-id=a", "~zone=z"), [*RACKS, offer(worker_id="a", rack="r1")]),
        (gang(2, "rack", slices=9), RACKS),  # too few groups, not too small ones
        (gang(7, "zone"), [*RACKS, POOL]),
        (gang(4, "rack"), [*RACKS, UNPROBED]),
        (gang(4, "rak"), [UNPROBED]),
        (gang(99, "zone"), [*RACKS, offer(known=False, slices=1, device_type="tpu", zone="z")]),
        (gang(4, "tpu-name", tpu="v4-32"), SLICE),
        (gang(4, "tpu-name", tpu="v4-32"), SLICE[:2]),  # the others will be registered
        (gang(4, "rack"), [offer(rack="r0", tpu_name="s", tpu_vm_count=4, device_type="tpu"), *SLICE[1:2]]),
        (gang(2, "tpu-name", slices=5, tpu="auto"), [*SLICE, POOL]),
        (gang(4, "tpu-name", "rack=r1", tpu="v4-32"), [vm(each, rack="r1") for each in range(4)]),
        (gang(9, "rack"), []),
    ],
)
def test_a_gang_that_some_group_could_hold_is_not_refused(wanted: Job, fleet: list[Offer]) -> None:
    check_possible(wanted, fleet)


def hint_of(wanted: Job, fleet: list[Offer]) -> str:
    with pytest.raises(UnschedulableError) as raised:
        check_possible(wanted, fleet)
    return raised.value.hint


def test_a_question_in_a_hint_is_followed_by_a_sentence() -> None:
    assert hint_of(job("region=US-West4"), FLEET) == "did you mean 'us-west4'? --force submits the job anyway"


def test_a_hint_counts_the_values_that_it_does_not_list() -> None:
    fleet = [offer(region=f"{letter * 9}") for letter in "abcdefg"]
    for size, rest in ((6, "1 other"), (7, "2 others")):
        assert f" or eeeeeeeee or {rest}; --force" in hint_of(job("region=zz"), fleet[:size])


def test_the_memory_that_a_refusal_names_is_accepted() -> None:
    """Real hosts have odd sizes, and a size that was rounded up would be refused again."""
    fleet = [offer(memory=33_550_000_000)]
    with pytest.raises(UnschedulableError) as refused:
        check_possible(job(memory=32 * GIB), fleet)
    named = str(refused.value.hint).removeprefix("ask for ").split(" of memory")[0]
    assert named == "31.24GiB"
    check_possible(job(memory=parse_memory(named)), fleet)


def test_a_number_and_a_text_are_different_groups() -> None:
    fleet = [offer(rack=1), offer(rack=1), offer(rack="1")]
    check_possible(gang(2, "rack"), fleet)
    with pytest.raises(UnschedulableError, match=r"no rack group has 3 workers \(largest: 1 with 2\)"):
        check_possible(gang(3, "rack"), fleet)
