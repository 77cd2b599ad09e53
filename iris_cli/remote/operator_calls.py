"""Commands of the operator on a worker, beside the tasks: run one, see what it says, end it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from iris_cli.core.ids import Token, parse_token
from iris_cli.core.observations import Silence
from iris_cli.remote.answers import records_of
from iris_cli.remote.frames import Frame, broken
from iris_cli.remote.launch_request import LaunchRequest, command_text, environment_text, hundredths
from iris_cli.remote.transport import NoAnswer, Target
from iris_cli.remote.worker_script import quote

LONGEST_OUTPUT = 512 << 10
_ENDING = 20.0  # seconds: it is asked to end, killed, and what it has left is looked for
_ANSWER = re.compile(r"X (gone|none|[0-9]{1,3}) ([01])")


class CommandRequest(Struct, frozen=True, kw_only=True):
    """A command for a worker, or for the directory of one of its attempts. It gets `timeout` seconds.

    The first `limit` bytes of what it prints, both streams in one, come back. `token` is its own, not the attempt's.
    """

    token: Token
    argv: tuple[str, ...]
    env: Mapping[str, str]
    attempt: Token | None = None
    timeout: float = 60.0
    limit: int = 256 << 10


class CommandEnd(Struct, frozen=True, kw_only=True):
    """How a command ended. `exit_code` is None where it has none: it was `gone` (the directory isn't there), or killed
    hard. `timed_out`: it had to be ended. `cut`: it printed more than this.
    """

    exit_code: int | None
    output: bytes
    timed_out: bool = False
    gone: bool = False
    cut: bool = False


class _Asks(Protocol):
    def _open(self, target: Target, then: str = "") -> str: ...

    def _ask(
        self, target: Target, name: str, call: Sequence[str], *, room: int, patience: float = 0.0
    ) -> Frame: ...


class OperatorCalls:
    """The part of the runner for commands. The first of them is the only call that can't be repeated."""

    def run_command(self: _Asks, target: Target, request: CommandRequest) -> CommandEnd | Silence:
        """Run it to its end, with nothing to read. Raises ValueError for what no shell could be given.

        Whoever goes away meanwhile doesn't end it: `end_command` does, and its time-out.
        """
        limit = max(0, min(request.limit, LONGEST_OUTPUT))
        token = parse_token(request.token)
        home = f"$root/a/{parse_token(request.attempt)}" if request.attempt else ""
        launch = LaunchRequest(token=token, argv=request.argv, env=request.env)
        # One byte more says that there was more.
        step = f"run_command {token} {hundredths(request.timeout)} {limit + 1}"
        call = [
            "mask=$(umask) timed=0",
            self._open(target),
            f'dir="{home}"',
            environment_text(launch, directories=bool(home)),
            command_text(launch),
            f'{step} "{home + "/work" if home else "$HOME"}"',
            "end_frame",
        ]
        try:
            patience = request.timeout + _ENDING
            frame = self._ask(target, "exec", call, room=2 * limit, patience=patience)
            return _command_end(frame, limit)
        except NoAnswer as silence:
            return silence.silence(target.worker)

    def end_command(self: _Asks, target: Target, tokens: Sequence[Token]) -> Silence | None:
        """End these commands of the worker, also those that are still on their way there; None once that is done."""
        words = [parse_token(token) for token in tokens]
        steps = [f"(stop_command {quote(word)})" for word in words]
        call = [self._open(target), *steps, "begin_frame", "end_frame"]
        try:
            self._ask(target, "exec", call, room=0, patience=_ENDING)
        except NoAnswer as silence:
            return silence.silence(target.worker)
        return None


def _command_end(frame: Frame, limit: int) -> CommandEnd:
    _, _, records = records_of(frame, limit + 1)
    match = _ANSWER.fullmatch(records[0].line) if len(records) == 1 else None
    if match is None or (match[1].isdigit() and int(match[1]) > 255):
        raise broken("the answer says nothing of a command")
    return CommandEnd(
        exit_code=int(match[1]) if match[1].isdigit() else None,
        output=records[0].data[:limit],
        timed_out=match[2] == "1",
        gone=match[1] == "gone",
        cut=len(records[0].data) > limit,
    )
