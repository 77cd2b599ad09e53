"""Endpoints: what tasks have made known of themselves, each until its attempt ends."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from iris_cli.core.ids import RequestId
from iris_cli.core.structs import Value

MOST_CHANGES = 1000
"""How often an attempt may change its endpoints: each change stays in the log."""


class Endpoint(Value, frozen=True, kw_only=True):
    """A port of a task, on the host that it runs on. `metadata` is the task's own business."""

    name: str
    port: int
    metadata: Mapping[str, str] = field(default_factory=dict)


class Announced(Value, frozen=True, kw_only=True):
    """The endpoints of one attempt, and the requests that led to them: each counts once."""

    endpoints: tuple[Endpoint, ...] = ()
    requests: tuple[RequestId, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.endpoints)

    def plus(self, endpoint: Endpoint, request: RequestId) -> Announced:
        """With this one, in the place of the one of that name."""
        others = tuple(each for each in self.endpoints if each.name != endpoint.name)
        return Announced(endpoints=(*others, endpoint), requests=(*self.requests, request))

    def minus(self, name: str, request: RequestId) -> Announced:
        """Without the one of that name."""
        left = tuple(each for each in self.endpoints if each.name != name)
        return Announced(endpoints=left, requests=(*self.requests, request))
