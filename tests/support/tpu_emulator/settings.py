"""Settings of the emulated cloud: delays, limits and faults. They can be changed while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace


class Settings(Struct):
    """Times are in seconds. Zones have no limits by default.

    `quota`: maximum number of listed chips of a zone, in any state. `stocked_out`: zones without free machines.
    `unreachable`: zones that lists omit and name. `missing_endpoints`: number of missing VMs in new nodes of a zone.
    `stuck`: zones where nodes stay CREATING for ever. `health` of a new node, "" for none. `lifetime`: mean time until
    a spot node is preempted, 0 for never, random from `seed`. `unreliable`: share of calls that fail, also random.
    `keep_preempted`: True if the nodes of a suspended queued resource stay listed.
    """

    create_seconds: float = 0.0
    queue_seconds: float = 0.0
    delete_seconds: float = 0.0
    page_size: int = 100
    quota: dict[str, int] = field(default_factory=dict)
    stocked_out: list[str] = field(default_factory=list)
    missing_endpoints: dict[str, int] = field(default_factory=dict)
    unreachable: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    health: str = "HEALTHY"
    lifetime: float = 0.0
    unreliable: float = 0.0
    hang_seconds: float = 60.0
    keep_preempted: bool = False
    seed: int = 0

    def change(self, values: Mapping[str, Any]) -> None:
        """Change settings by name. Raises ValueError for an unknown name, without a change."""
        known = list(self.__struct_fields__)
        for name in values:
            if name not in known:
                raise ValueError(f"there is no setting {name}; there are {', '.join(known)}")
        for name, value in values.items():
            setattr(self, name, value)


class Fault(Struct, frozen=True, kw_only=True):
    """A fault of the next `times` calls of a method whose path contains `path`.

    `kind` is `error` (refused with `status`), `hang` (not executed, no answer), `lost` (executed, then the connection
    is closed), or `stall` (executed, no answer).
    """

    kind: str
    method: str = ""
    path: str = ""
    status: str = "INTERNAL"
    times: int = 1

    def hits(self, method: str, path: str) -> bool:
        return self.method in ("", method) and self.path in path

    def again(self) -> Fault:
        """Return the fault for the calls after the next one."""
        return replace(self, times=self.times - 1)
