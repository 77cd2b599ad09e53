"""The way to a worker, server by server."""

from __future__ import annotations

from msgspec import Struct

from iris_cli.remote.ssh.config import Hop
from iris_cli.remote.transport import Target


class Route(Struct, frozen=True):
    """A target, the servers to pass (the worker itself last), and whether a first host key may be taken now.

    A server is named by its depth: its index in `hops`. What goes `apart` has connections of its own.
    """

    target: Target
    hops: tuple[Hop, ...]
    first_contact: bool = False
    apart: bool = False

    @property
    def end(self) -> int:
        """The depth of the worker."""
        return len(self.hops) - 1

    def is_worker(self, depth: int) -> bool:
        return depth == self.end

    def place(self, depth: int) -> str:
        """The server in words."""
        return (
            f"worker {self.target.worker}" if self.is_worker(depth) else f"jump host {self.hops[depth].label}"
        )

    def endpoint(self, depth: int) -> tuple[tuple[Hop, ...], str, bool]:
        """What must be equal for a connection to serve again: the way, and whose host key was checked."""
        return self.hops[: depth + 1], self.target.worker if self.is_worker(depth) else "", self.apart
