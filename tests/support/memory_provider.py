"""A provider in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from iris_cli.capacity.provider import ProviderError
from iris_cli.core.messages.cloud import CloudSlice, CloudState, Refusal
from iris_cli.core.model.slice import ScaleGroup, SliceHost
from iris_cli.core.topology import lookup


@dataclass
class Books:
    """All slices of a scope with their owners, by name, and all calls in order."""

    slices: dict[str, tuple[str, CloudSlice]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    refusals: list[Refusal | None] = field(default_factory=list)  # results of the next calls, in order
    deaf_after: bool = False  # calls without an answer are executed
    slow: bool = False  # new slices are not ready at once
    made: int = 0
    key: str = ""  # the host key of all VMs, if it reports one

    def turn(self, name: str, state: CloudState, detail: str = "") -> None:
        owner, each = self.slices[name]
        self.slices[name] = owner, replace(each, state=state, detail=detail)


class MemoryProvider:
    """The slices of one owner in the books."""

    def __init__(self, books: Books, owner: str) -> None:
        self.books = books
        self.owner = owner

    def list(self) -> tuple[CloudSlice, ...]:
        self._answer("list")
        return tuple(each for owner, each in self.books.slices.values() if owner == self.owner)

    def create(self, name: str, group: ScaleGroup) -> None:
        refusal = self._next(f"create {name}")
        if refusal is None or (refusal is Refusal.UNANSWERED and self.books.deaf_after):
            self._make(name, group)
        if refusal is not None:
            raise ProviderError(refusal, f"no {name}")

    def delete(self, name: str) -> None:
        self._answer(f"delete {name}")
        if name in self.books.slices and self.books.slices[name][0] == self.owner:
            del self.books.slices[name]

    def _make(self, name: str, group: ScaleGroup) -> None:
        if name in self.books.slices:
            if self.books.slices[name][0] != self.owner:
                raise ProviderError(Refusal.INVALID, f"{name} is somebody else's")
            return
        self.books.made += 1
        known = lookup(group.template.type)
        assert known is not None
        made = CloudSlice(
            name=name,
            group=group.name,
            state=CloudState.CREATING if self.books.slow else CloudState.READY,
            hosts=tuple(SliceHost(host=f"{name}-w{index}", key=self.books.key) for index in range(known.vms)),
            incarnation=f"machine-{self.books.made}",
        )
        self.books.slices[name] = self.owner, made

    def _answer(self, call: str) -> None:
        refusal = self._next(call)
        if refusal is not None:
            raise ProviderError(refusal, f"no {call}")

    def _next(self, call: str) -> Refusal | None:
        self.books.calls.append(call)
        return self.books.refusals.pop(0) if self.books.refusals else None
