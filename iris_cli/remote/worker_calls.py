"""One call of a worker: its script is sent, and its answer read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from iris_cli.core.ids import Token, is_name, parse_token
from iris_cli.core.messages.observations import Silence
from iris_cli.core.model.limits import extra_time
from iris_cli.randomness import SYSTEM_RANDOMNESS
from iris_cli.remote.frames import Frame, failed, parse_frame
from iris_cli.remote.transport import NoAnswer, Payload, Target, Transport
from iris_cli.remote.worker_script import HostPaths, directory_word, worker_script

R = TypeVar("R")

_ROOM = 64 << 10  # bytes of an answer beside what was asked for; a login shell may be talkative
_ROOM_PER_ATTEMPT = 8 << 10


class WorkerCalls:
    """What all groups of calls have in common. Safe to use from many threads."""

    def __init__(
        self,
        transport: Transport,
        cluster_id: str,
        *,
        connect_timeout: float = 10.0,
        timeout: float = 5.0,
        paths: HostPaths | None = None,
    ) -> None:
        if not is_name(cluster_id):
            raise ValueError(f"{cluster_id[:80]!r} can't name a directory")
        self._transport = transport
        self._cluster_id = cluster_id
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._paths = paths or HostPaths()

    def open_line(self, target: Target, then: str = "") -> str:
        """Go to the worker's directory there."""
        if not is_name(target.worker):
            raise ValueError(f"{target.worker[:80]!r} can't name a directory")
        where = f"{directory_word(target.connection.remote_dir)} {self._cluster_id} {target.worker}"
        return f'umask 077\nopen_frame "$nonce" {where}' + (f"\n{then} {where}" if then else "")

    def ask(
        self,
        target: Target,
        name: str,
        call: Sequence[str],
        read: Callable[[Frame], R],
        *,
        about: int = 0,
        room: int = 0,
        patience: float = 0.0,
        first_contact: bool = False,
        payload: Payload | None = None,
    ) -> R | Silence:
        """Send one script and read its answer, which `read` may refuse by NoAnswer.

        The more attempts it is `about`, the more it may say, and the longer it may take.
        """
        nonce = SYSTEM_RANDOMNESS.hexadecimal(16)
        script = worker_script(name, [f"nonce={nonce}", *call], self._paths)
        try:
            output = self._transport.run(
                target,
                script,
                connect_timeout=self._connect_timeout,
                timeout=self._timeout + patience + extra_time(about),
                limit=_ROOM + room + _ROOM_PER_ATTEMPT * about,
                first_contact=first_contact,
                payload=payload,
            )
            if output.status != 0:
                raise failed(output)
            return read(parse_frame(output.stdout, nonce))
        except NoAnswer as silence:
            return silence.silence(target.worker)


def unique(tokens: Sequence[Token]) -> list[Token]:
    """Each of them once, in order. Raises ValueError for what is no token."""
    return [parse_token(token) for token in dict.fromkeys(tokens)]
