"""The port for all remote access: run one script on one host before one deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from iris_cli.core import Connection, WorkerId
from iris_cli.core.messages.observations import Silence, SilenceKind


class Target(Struct, frozen=True, kw_only=True):
    """A worker and its connection settings."""

    worker: WorkerId
    connection: Connection


class Output(Struct, frozen=True, kw_only=True):
    """The result of a script: both streams and the exit status (-1 if none was received)."""

    stdout: bytes
    stderr: bytes
    status: int


class Payload(Struct, frozen=True, kw_only=True):
    """Bytes for a script's stdin, sent only after the script has printed `mark` as a line on stdout.

    A shell reads ahead and could take earlier bytes for more script. Each call of `chunks` starts from the beginning;
    an OSError from it becomes a LOCAL NoAnswer. `size` (bytes) only sets the deadline.
    """

    mark: bytes
    size: int
    chunks: Callable[[], Iterable[bytes]]


class NoAnswer(Exception):  # noqa: N818 - the protocol's own word; not every "no answer" is an error
    """The call ended without an answer. The script may have run unless `sent` is False."""

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
        """Return this error as an observation."""
        return Silence(
            worker=worker, kind=self.kind, step=self.step, detail=self.detail, hint=self.hint, sent=self.sent
        )


SLOWEST = 32 << 10
"""Bytes per second: slower payloads are aborted."""
_UNDER_WAY = 2 << 20
"""Bytes of a payload that count as sent but may not have arrived: sshd buffers them."""


def time_for(size: int) -> float:
    """Return the maximum seconds for sending a payload of `size` bytes."""
    return 60.0 + size / SLOWEST


def time_to_arrive(size: int) -> float:
    """Return the maximum seconds between sending the last byte of a payload and its arrival."""
    return min(size, _UNDER_WAY) / SLOWEST


class Transport(Protocol):
    """Runs scripts on hosts. Thread-safe; connections are kept until `close`."""

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

        `connect_timeout` covers everything up to an authenticated connection, `timeout` the rest; both are in seconds
        and end by closing the socket. More than `limit` bytes on either stream is a PROTOCOL NoAnswer. With
        `first_contact` an unknown host key is accepted and recorded if the connection says `accept-new`. Each piece of
        a `payload` restarts the timeout, up to `time_for`. Raises NoAnswer.
        """
        ...

    def close(self) -> None:
        """Close all connections. Idempotent."""
        ...
