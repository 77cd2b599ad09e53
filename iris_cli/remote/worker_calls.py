"""Send a script to a worker and read the answer."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from iris_cli.core.ids import Token, is_name, parse_token
from iris_cli.core.messages.observations import Silence
from iris_cli.core.model.limits import extra_time
from iris_cli.randomness import SYSTEM_RANDOMNESS
from iris_cli.remote.frames import Frame, failed_script, parse_frame
from iris_cli.remote.transport import NoAnswer, Payload, Script, ScriptResult, Target, Transport
from iris_cli.remote.worker_script import HostPaths, directory_word, quote, worker_script

R = TypeVar("R")

_ROOM = 64 << 10  # bytes of an answer besides its data. A login shell may print a lot
_ROOM_PER_ATTEMPT = 8 << 10


class WorkerCalls:
    """Sends scripts to workers and reads the answers. Thread-safe."""

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

    def run_script(self, target: Target, script: bytes, *, timeout: float, limit: int) -> ScriptResult:
        """Run a script that is no call of the worker protocol (see Transport.run). Raises NoAnswer."""
        connect_timeout = self._connect_timeout
        call = Script(
            text=script, connect_timeout=connect_timeout, timeout=timeout, limit=limit, first_contact=True
        )
        return self._transport.run(target, call)

    def open_line(self, target: Target, function: str = "") -> str:
        """Return the shell lines that enter the worker's directory. They also call `function` of the shell library."""
        if not is_name(target.worker):
            raise ValueError(f"{target.worker[:80]!r} can't name a directory")
        connection = target.connection
        directory = directory_word(connection.remote_dir)
        path_words = f"{directory} {self._cluster_id} {target.worker}"
        holder = f"{directory}/{quote(f'holder.{connection.allocation}.{connection.node}')}"
        return "\n".join(
            [
                f'umask 077\nopen_frame "$nonce" {path_words}',
                *([f"holder={holder}"] if connection.allocation else []),
                *([f"{function} {path_words}"] if function else []),
            ]
        )

    def ask(
        self,
        target: Target,
        name: str,
        call: Sequence[str],
        read: Callable[[Frame], R],
        *,
        attempts: int = 0,
        room: int = 0,
        seconds: float = 0.0,
        first_contact: bool = False,
        payload: Payload | None = None,
    ) -> R | Silence:
        """Send one script and parse its answer with `read`, which may raise NoAnswer.

        The limits of output and time grow with the number of `attempts`, by `room` bytes and by `seconds`.
        """
        nonce = SYSTEM_RANDOMNESS.hexadecimal(16)
        script = Script(
            text=worker_script(name, [f"nonce={nonce}", *call], self._paths),
            connect_timeout=self._connect_timeout,
            timeout=self._timeout + seconds + extra_time(attempts),
            limit=_ROOM + room + _ROOM_PER_ATTEMPT * attempts,
            first_contact=first_contact,
            payload=payload,
        )
        try:
            output = self._transport.run(target, script)
            if output.status != 0:
                raise failed_script(output)
            return read(parse_frame(output.stdout, nonce))
        except NoAnswer as silence:
            return silence.silence(target.worker)


def distinct_tokens(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens without duplicates, in order. Raises ValueError for an invalid token."""
    return [parse_token(token) for token in dict.fromkeys(tokens)]
