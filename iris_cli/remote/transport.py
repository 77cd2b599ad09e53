"""The port through which everything remote goes: run one script on one host, before one deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from iris_cli.core.ids import WorkerId
from iris_cli.core.messages.observations import Silence, SilenceKind
from iris_cli.core.model.worker import Connection


class Target(Struct, frozen=True, kw_only=True):
    """A worker and the way to it."""

    worker: WorkerId
    connection: Connection


class Output(Struct, frozen=True, kw_only=True):
    """What a script left behind when it ended: both streams, and its exit status (-1 if none came)."""

    stdout: bytes
    stderr: bytes
    status: int


class Payload(Struct, frozen=True, kw_only=True):
    """Bytes that a script takes from its stdin once it has printed `mark` as a line on its stdout; not before.

    A shell reads ahead: what comes with its script it may take for more of that. `chunks` begins anew whenever it is
    called; an OSError of it is a LOCAL NoAnswer. `size` in bytes is for the deadline: nothing is lost if it is wrong.
    """

    mark: bytes
    size: int
    chunks: Callable[[], Iterable[bytes]]


class NoAnswer(Exception):  # noqa: N818 - the protocol's own word; not every "no answer" is an error
    """The call ended without an answer. Whether the script ran is unknown, unless `sent` is False."""

    def __init__(
        self, kind: SilenceKind, step: str, detail: str, *, hint: str = "", sent: bool = True
    ) -> None:
        super().__init__(f"{step}: {detail}")
        self.kind = kind
        self.step = step
        self.detail = detail
        self.hint = hint
        self.sent = sent

    def silence(self, worker: WorkerId) -> Silence:
        """The same as an observation."""
        return Silence(
            worker=worker, kind=self.kind, step=self.step, detail=self.detail, hint=self.hint, sent=self.sent
        )


SLOWEST = 32 << 10
"""Bytes per second: a payload that is sent more slowly than that is given up."""
_UNDER_WAY = 2 << 20
"""Bytes of a payload that count as sent and may not have arrived: what sshd takes before the script has."""


def time_for(size: int) -> float:
    """Seconds that a payload of so many bytes may take at most."""
    return 60.0 + size / SLOWEST


def time_to_arrive(size: int) -> float:
    """Seconds that the end of a payload of so many bytes may take at most when all of it was sent."""
    return min(size, _UNDER_WAY) / SLOWEST


class Transport(Protocol):
    """Runs scripts on hosts. Safe to call from many threads; connections are kept until `close`."""

    def run(
        self,
        target: Target,
        script: bytes,
        *,
        connect_timeout: float,
        timeout: float,
        limit: int = 1 << 20,
        first_contact: bool = False,
        payload: Payload | None = None,
    ) -> Output:
        """Feed `script` to `exec /bin/sh -s` on the target and wait for its end.

        `connect_timeout` bounds everything up to an authenticated connection, `timeout` the rest, both in
        seconds and both by closing the socket. More than `limit` bytes on either stream is a PROTOCOL
        NoAnswer. With `first_contact` an unknown host key is taken and recorded where the connection says
        `accept-new`. With a `payload` the clock begins anew with each piece of it, for as long as `time_for`
        says at most. Raises NoAnswer.
        """
        ...

    def close(self) -> None:
        """Drop all connections. Idempotent."""
        ...
