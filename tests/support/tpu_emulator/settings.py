"""How the emulated cloud behaves: delays, limits, and what goes wrong. All of it can be changed while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace


class Settings(Struct):
    """Times in seconds. Zones that nothing is said of have room for everything.

    `quota`: chips that may be listed in a zone at once, whatever state they are in. `stocked_out`: zones without free
    machines. `unreachable`: zones that lists leave out, and name. `missing_endpoints`: how many VMs are missing in what
    a zone makes. `stuck`: zones where nodes stay CREATING for ever. `health` of a new node, "" for none. `lifetime`:
    after how long a spot node is preempted on average, 0 for never, drawn from `seed`. `unreliable`: the share of calls
    that come to grief, drawn from it, too. `keep_preempted`: whether the nodes of a suspended queued resource stay
    listed.
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
        """Set some of them by name. Raises ValueError, before anything is changed, if there is none of a name."""
        known = list(self.__struct_fields__)
        for name in values:
            if name not in known:
                raise ValueError(f"there is no setting {name}; there are {', '.join(known)}")
        for name, value in values.items():
            setattr(self, name, value)

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


class Fault(Struct, frozen=True, kw_only=True):
    """What happens to the next `times` calls of a method whose path contains `path`.

    `kind` is `error` (refused with `status`), `hang` (neither heard nor answered), `lost` (done, but the answer gets
    lost at once), or `stall` (done, but never answered).
    """

    kind: str
    method: str = ""
    path: str = ""
    status: str = "INTERNAL"
    times: int = 1

    def hits(self, method: str, path: str) -> bool:
        return self.method in ("", method) and self.path in path

    def again(self) -> Fault:
        """The same for the calls after the next."""
        return replace(self, times=self.times - 1)
