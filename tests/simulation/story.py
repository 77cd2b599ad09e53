"""What happened in a run, line by line; put into words only if somebody wants to read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256

from iris_cli.core.events.events import Event, Transaction


@dataclass
class Story:
    """`told` are moments, whose words may be made later; `breaches` what must never be."""

    now: Callable[[], float]
    told: list[tuple[float, str, object]] = field(default_factory=list)
    breaches: list[str] = field(default_factory=list)

    def tell(self, who: str, what: object) -> None:
        self.told.append((self.now(), who, what))

    def breach(self, what: str) -> None:
        self.told.append((self.now(), "BREACH", what))
        self.breaches.append(what)

    def lines(self) -> Iterator[str]:
        start = self.told[0][0] if self.told else 0.0
        for at, who, what in self.told:
            yield f"{at - start:9.3f}  {who:<14} {_words(what)}"

    def digest(self) -> str:
        return sha256("\n".join(self.lines()).encode()).hexdigest()


def _words(what: object) -> str:
    if isinstance(what, Transaction):
        return f"log {what.seq}: " + "; ".join(map(_event, what.events))
    if isinstance(what, tuple):
        return " ".join(map(str, what))
    return str(what)


_FIELDS = ("task", "attempt", "worker", "job", "round", "condition", "state", "reason", "lifted", "error")


def _event(event: Event) -> str:
    said = [type(event).__name__]
    for name in _FIELDS:
        value = getattr(event, name, None)
        if value not in (None, ""):
            said.append(str(getattr(value, "id", value))[:60])
    end = getattr(event, "end", None)
    if end is not None:
        said.append(
            f"{end.reason} {end.exit_code if end.exit_code is not None else ''} {end.error[:60]}".rstrip()
        )
    return " ".join(said)
