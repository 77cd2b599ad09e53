"""The interface of a transport, which runs a script on a host before a deadline."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from msgspec import Struct

from iris_cli.core import Connection, WorkerId
from iris_cli.core.messages.observations import Silence, SilenceKind

MAX_STREAMS = 128
"""Maximum number of open byte streams per connection: terminals and forwarded ports."""


class Target(Struct, frozen=True, kw_only=True):
    """A worker and its connection settings."""

    worker: WorkerId
    connection: Connection


class ScriptResult(Struct, frozen=True, kw_only=True):
    """The result of a script: stdout, stderr and the exit status (-1 if none was received)."""

    stdout: bytes
    stderr: bytes
    status: int

    @property
    def message(self) -> str:
        """The last line of stderr, printable and of bounded length."""
        lines = self.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        return "".join(char if char.isprintable() else "?" for char in lines[-1][:200])


class Payload(Struct, frozen=True, kw_only=True):
    """Bytes for a script's stdin, sent after the script has printed `mark` as a line on stdout.

    If bytes were sent earlier, the shell could read them as a part of the script. Each call of `chunks` starts from the
    beginning, and may raise OSError. `size` (bytes) only determines the deadline. After this payload, the script may
    request the `next` payload.
    """

    mark: bytes
    size: int
    chunks: Callable[[], Iterable[bytes]]
    next: "Payload | None" = None

    @property
    def total(self) -> int:
        """The size in bytes of this payload and all payloads after it."""
        return self.size + (self.next.total if self.next is not None else 0)


class Script(Struct, frozen=True, kw_only=True):
    """A script for `exec /bin/sh -s` on a target, with its limits.

    `connect_timeout` (seconds) covers everything up to an authenticated connection, `timeout` covers the rest. Each
    sent chunk of `payload` restarts `timeout`. Sending all of `payload` may take `max_sending_time`. stdout and stderr
    may have `limit` bytes each. With `first_contact` an unknown host key is accepted and recorded if the worker's
    setting `known_hosts` is `accept-new`.
    """

    text: bytes
    connect_timeout: float
    timeout: float
    limit: int = 1 << 20
    first_contact: bool = False
    payload: Payload | None = None


class NoAnswer(Exception):  # noqa: N818 - not always an error
    """The call ended without an answer. If `sent` is True, the script may have run."""

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
        return Silence(
            worker=worker, kind=self.kind, step=self.step, detail=self.detail, hint=self.hint, sent=self.sent
        )


def read_chunks(payload: Payload) -> Iterator[bytes]:
    """Yield the bytes of a payload. Raises NoAnswer if they can't be read."""
    try:
        yield from payload.chunks()
    except OSError as error:
        detail = f"the data to send can't be read: {error.strerror or error}"
        raise NoAnswer(SilenceKind.LOCAL, "payload", detail) from error


MIN_RATE = 32 << 10
"""Bytes per second. A slower transfer of a payload is aborted."""
_BUFFERED = 2 << 20
"""Maximum number of bytes that were sent but have not arrived, because the network and sshd buffer them."""


def max_sending_time(size: int) -> float:
    """Return the maximum time in seconds for sending a payload of `size` bytes."""
    return 60.0 + size / MIN_RATE


def time_to_arrive(size: int) -> float:
    """Return the maximum time in seconds between sending the last byte of a payload and its arrival."""
    return min(size, _BUFFERED) / MIN_RATE


class Transport(Protocol):
    """Runs scripts on hosts. Thread-safe. Connections are kept until `close`."""

    def run(self, target: Target, script: Script) -> ScriptResult:
        """Run the script on the target and wait for its end. Raises NoAnswer, also for too much output (PROTOCOL)."""
        ...

    def close(self) -> None:
        """Close all connections. Idempotent."""
        ...
