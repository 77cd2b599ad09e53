"""Resources, devices, sizes and durations."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core.resources import Device, Resources, device_compatible
from iris_cli.core.units import format_duration, format_memory, parse_duration, parse_memory
from iris_cli.errors import UsageError

GIB = 1 << 30


@pytest.mark.parametrize("job", ["", "none", "cpu"])
@pytest.mark.parametrize("worker", ["cpu", "gpu", "tpu"])
def test_a_job_without_a_device_runs_anywhere(job: str, worker: str) -> None:
    assert device_compatible(job, worker)


@pytest.mark.parametrize(
    ("job", "worker", "fits"),
    [
        ("gpu", "cpu", False),
        ("gpu", "gpu", True),
        ("gpu", "tpu", False),
        ("tpu", "cpu", False),
        ("tpu", "gpu", False),
        ("tpu", "tpu", True),
    ],
)
def test_a_device_is_served_by_its_own_type_only(job: str, worker: str, fits: bool) -> None:
    assert device_compatible(job, worker) is fits


def test_a_task_asks_for_one_core_and_one_gibibyte_unless_it_says_otherwise() -> None:
    assert Resources() == Resources(cpu=1.0, memory=GIB, device=None)
    assert Resources().device_type == Resources(device=Device("cpu")).device_type == "cpu"
    assert Resources(device=Device("tpu", "v4-32")).device_type == "tpu"


@pytest.mark.parametrize(
    ("cpu", "millis"), [(1.0, 1000), (0.001, 1), (0.1 + 0.2, 300), (2, 2000), (1 / 3, 333)]
)
def test_cores_are_counted_in_thousandths(cpu: float, millis: int) -> None:
    assert Resources(cpu=cpu).cpu_millis == millis


@pytest.mark.parametrize(
    "odd",
    [
        {"cpu": 0},
        {"cpu": -1},
        {"cpu": 0.0004},
        {"cpu": math.nan},
        {"cpu": math.inf},
        {"memory": 0},
        {"memory": -1},
        {"memory": 1.5},
        {"memory": True},
    ],
)
def test_impossible_resources_are_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cpu|memory"):
        Resources(**odd)


@pytest.mark.parametrize(
    "odd",
    [
        ("npu",),
        ("tpu", ""),
        ("tpu", "auto", 2),
        ("cpu", "auto", 2),
        ("gpu", "auto", 0),
        ("gpu", "auto", True),
    ],
)
def test_impossible_devices_are_refused(odd: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"device|variant|takes"):
        Device(*odd)


def test_a_device_prints_short() -> None:
    assert [str(Device("tpu", "v4-32")), str(Device("gpu", "h100", 4))] == ["tpu:v4-32", "gpu:h100 x4"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MiB", 512 << 20),
        ("8GB", 8 * 10**9),
        ("8 gb", 8 * 10**9),
        ("1.5GiB", 3 << 29),
        ("2TiB", 2 << 40),
        ("100KB", 100_000),
        ("7B", 7),
        (GIB, GIB),
        (str(GIB), GIB),
    ],
)
def test_sizes_are_read_exactly(text: str | int, size: int) -> None:
    assert parse_memory(text) == size


def test_no_unit_makes_a_size_of_zero() -> None:
    with pytest.raises(UsageError) as refused:
        parse_memory(0)
    assert "give the unit" not in refused.value.hint


@pytest.mark.parametrize(
    "odd",
    [
        "",
        "GB",
        "-1GB",
        "8G",
        "8Gi",
        "1e9",
        "nan",
        "0",
        "0GB",
        "16",
        16,
        0,
        -5,
        True,
        1.5,
        "1..5GB",
        "9" * 30,
        "٣GB",
    ],
)
def test_what_is_not_a_size_is_refused(odd: Any) -> None:
    with pytest.raises(UsageError) as refused:
        parse_memory(odd)
    assert refused.value.hint


def test_a_bare_small_number_asks_for_the_unit() -> None:
    with pytest.raises(UsageError) as refused:
        parse_memory(16)
    assert refused.value.hint == "give the unit: 16GB or 16GiB"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (64 * 10**9, "64GB"),
        (GIB, "1GiB"),
        (512 << 20, "512MiB"),
        (3 << 29, "1.50GiB"),
        (0, "0B"),
        (500, "500B"),
        (2000 * GIB, "1.95TiB"),
    ],
)
def test_sizes_are_printed_short(size: int, text: str) -> None:
    assert format_memory(size) == text


@given(st.integers(min_value=1 << 20, max_value=1 << 55))
def test_a_printed_size_is_off_by_one_percent_at_most(size: int) -> None:
    assert math.isclose(parse_memory(format_memory(size)), size, rel_tol=0.01)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("2d", 172800),
        ("500ms", 0.5),
        ("0", 0),
        ("45", 45),
        (45, 45),
        (0.5, 0.5),
    ],
)
def test_durations_are_read(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "odd", ["", "s", "-1", -1, "10 m", "5x", "nan", "inf", math.nan, math.inf, True, "1h-5m", "1e99"]
)
def test_what_is_not_a_duration_is_refused(odd: Any) -> None:
    with pytest.raises(UsageError) as refused:
        parse_duration(odd)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.5, "0.5s"),
        (5, "5s"),
        (9.99, "10s"),
        (90, "1m30s"),
        (600, "10m"),
        (7200, "2h"),
        (7205, "2h"),
        (86400 + 6 * 3600 + 61, "1d6h"),
        (-3, "0s"),
        (-0.4, "0s"),
    ],
)
def test_durations_are_printed_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
