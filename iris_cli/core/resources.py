"""The resources that a task requests."""

from __future__ import annotations

from iris_cli.core.structs import Value

DEVICE_KINDS = ("cpu", "gpu", "tpu")
AUTO = "auto"  # any variant of a device


class Device(Value, frozen=True):
    """A device: a TPU type, a GPU model with the number of GPUs, or `cpu`. A TPU task uses its whole VM.

    Raises ValueError.
    """

    kind: str
    variant: str = AUTO
    count: int = 1

    def __post_init__(self) -> None:
        if self.kind not in DEVICE_KINDS:
            raise ValueError(f"a device is one of {', '.join(DEVICE_KINDS)}, not {self.kind!r}")
        if not self.variant.strip():
            raise ValueError(f"the variant of a {self.kind} is blank; {AUTO!r} means any")
        if type(self.count) is not int or self.count < 1:
            raise ValueError(f"a task takes 1 {self.kind} or more, not {self.count!r}")
        if self.count > 1 and self.kind != "gpu":
            raise ValueError(f"only GPUs are counted: a task takes the {self.kind} of its worker whole")

    def __str__(self) -> str:
        return f"{self.kind}:{self.variant}" + (f" x{self.count}" if self.count > 1 else "")


class Resources(Value, frozen=True):
    """Cores (in steps of 0.001), memory in bytes, and a device or None. Raises ValueError."""

    cpu: float = 1.0
    memory: int = 1 << 30
    device: Device | None = None

    def __post_init__(self) -> None:
        if not 0.001 <= self.cpu <= 1_000_000:  # also refuses NaN
            raise ValueError(f"cpu is a number of cores from 0.001 to 1000000, not {self.cpu}")
        if type(self.memory) is not int or self.memory < 1:
            raise ValueError(f"memory is a positive number of bytes, not {self.memory!r}")

    @property
    def cpu_millis(self) -> int:
        """The cores in thousandths, because sums of whole numbers are exact."""
        return round(self.cpu * 1000)

    @property
    def device_type(self) -> str:
        """`cpu`, `gpu` or `tpu`; no device is the same as an explicit CPU."""
        return self.device.kind if self.device else "cpu"


DEFAULT_RESOURCES = Resources()
"""The resources of a task without a request. Always use this object: the log omits only this very object."""


def device_compatible(job_device_type: str, worker_device_type: str) -> bool:
    """Return whether a job can run on a worker by their device types. Jobs of type `''`, `none`, `cpu` run anywhere."""
    return job_device_type in ("", "none", "cpu") or job_device_type == worker_device_type
