"""A provider whose slices and answers a test chooses."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from iris_cli.core.messages.cloud import CallOutcome, CloudSlice, CloudState, Refusal, Scope
from iris_cli.core.model.slice import ScaleGroup, Slice, SliceHost
from iris_cli.core.topology import lookup


@dataclass
class Cloud:
    """`refusals`: the refusal for each group. `slow`: new slices are not ready at once."""

    groups: dict[str, ScaleGroup] = field(default_factory=dict)
    slices: dict[str, CloudSlice] = field(default_factory=dict)
    scopes: dict[str, Scope] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    slow: bool = False
    made: int = 0

    def listed(self, scope: Scope) -> tuple[CloudSlice, ...]:
        return tuple(each for name, each in self.slices.items() if self.scopes[name] == scope)

    def create(self, wanted: Slice) -> CallOutcome:
        refusal = self.refusals.get(wanted.group)
        if refusal is not None:
            return CallOutcome(slice=wanted.name, refusal=refusal, error=f"{wanted.group} has none")
        if wanted.name not in self.slices:
            self.appear(wanted.name, wanted.group)
        return CallOutcome(slice=wanted.name)

    def appear(self, name: str, group: str) -> None:
        """Add a slice of the owner without a request."""
        self.made += 1
        self.scopes[name] = Scope.of(self.groups[group].template)
        machine = f"machine-{self.made}"
        self.slices[name] = CloudSlice(name=name, group=group, state=CloudState.CREATING, incarnation=machine)
        if not self.slow:
            self.turn(name, CloudState.READY)

    def delete(self, name: str) -> CallOutcome:
        self.slices.pop(name, None)
        return CallOutcome(slice=name)

    def turn(self, name: str, state: CloudState, detail: str = "") -> None:
        """Change the state of a slice."""
        each = self.slices[name]
        hosts = each.hosts
        if state is CloudState.READY:
            known = lookup(self.groups[each.group].template.type)
            assert known is not None
            hosts = tuple(SliceHost(host=f"{name}-w{index}") for index in range(known.vms))
        self.slices[name] = replace(each, state=state, hosts=hosts, detail=detail)
