"""The chain of servers to a worker."""

from __future__ import annotations

from msgspec import Struct

from iris_cli.remote.ssh.config import Hop
from iris_cli.remote.transport import Target


class Route(Struct, frozen=True):
    """A target, its chain of servers (the worker last), and whether an unknown host key may be accepted.

    A server is identified by its depth, its index in `hops`. `apart` requests a separate connection.
    """

    target: Target
    hops: tuple[Hop, ...]
    first_contact: bool = False
    apart: bool = False

    @property
    def end(self) -> int:
        """Depth of the worker."""
        return len(self.hops) - 1

    def is_worker(self, depth: int) -> bool:
        return depth == self.end

    def place(self, depth: int) -> str:
        """Return the server's name for messages."""
        return (
            f"worker {self.target.worker}" if self.is_worker(depth) else f"jump host {self.hops[depth].label}"
        )

    def endpoint(self, depth: int) -> tuple[tuple[Hop, ...], str, bool]:
        """Return the key by which connections are reused: the chain and the worker whose host key was verified."""
        return self.hops[: depth + 1], self.target.worker if self.is_worker(depth) else "", self.apart
