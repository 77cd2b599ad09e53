"""A launch warns about a TPU task that would run alone on one VM of a larger slice."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from iris_cli.core.attributes import AttributeValue, RawValue
from iris_cli.core.model.job import Job
from iris_cli.core.resources import Device
from iris_cli.ops.jobs.launch import slice_warnings
from tests.support.fleet import gang, job, tpu_slice, values, vm

ANY = Device("tpu")
LARGER = [worker.attributes for worker in tpu_slice("a", "v4-16", 2, region="us")]
ONE = vm("one-0", "one", 0, "v4-8", region="eu").attributes
OF_A_SLICE_OF_4 = vm("b-0", "b", 0, "v9-16", tpu_vm_count=4).attributes
Attributes = Mapping[str, AttributeValue]


def made_by_a_group(vms: int) -> Attributes:
    raw: dict[str, RawValue] = {"scale-group": "west", "device-type": "tpu", "device-variant": "v4-8"}
    return values({**raw, "tpu-vm-count": vms})


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        ([], job("j", device=ANY)),
        ([*LARGER, ONE], job("j", device=ANY)),
        ([ONE], job("j", device=ANY)),
        (LARGER, job("j")),
        (LARGER, gang("j", tpu="v4-16", replicas=2)),
        ([made_by_a_group(1)], job("j", device=ANY)),
    ],
    ids=["nothing", "one of one VM", "only that", "a CPU task", "a gang", "a group of one VM"],
)
def test_a_job_that_gets_no_part_of_a_larger_slice_is_not_warned(there: list[Attributes], asked: Job) -> None:
    assert slice_warnings(asked, there) == []


@pytest.mark.parametrize(
    ("there", "asked", "size", "option"),
    [
        (LARGER, job("j", device=ANY), 2, "--tpu v4-16"),
        ([*LARGER, ONE], job("j", "region=us", device=ANY), 2, "--tpu v4-16"),
        ([*LARGER, made_by_a_group(1)], job("j", device=ANY), 2, "--tpu v4-16"),
        ([OF_A_SLICE_OF_4], job("j", device=Device("tpu", "v9-16")), 4, "--replicas 4"),
        ([made_by_a_group(2)], job("j", device=ANY), 2, "--tpu v4-8"),
    ],
    ids=["a larger slice", "the other is elsewhere", "the other is not there yet", "of that type", "a group"],
)
def test_the_warning_names_the_size_and_the_option_for_the_whole_slice(
    there: list[Attributes], asked: Job, size: int, option: str
) -> None:
    assert slice_warnings(asked, there) == [
        f"one task uses one VM of a slice of {size}, and JAX waits for the others; "
        f"{option} starts a task on each VM"
    ]
