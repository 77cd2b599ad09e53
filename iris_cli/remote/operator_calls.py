"""Commands of the operator on a worker, beside the tasks: run one, see what it says, end it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct

from iris_cli.core.ids import Token, parse_token
from iris_cli.core.messages.observations import Silence
from iris_cli.remote.answers import records_of
from iris_cli.remote.frames import Frame, broken
from iris_cli.remote.launch_request import LaunchRequest, command_text, environment_text, hundredths
from iris_cli.remote.transport import Target
from iris_cli.remote.worker_calls import WorkerCalls
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


class OperatorCalls(WorkerCalls):
    """The part of the runner for commands. The first of them is the only call that can't be repeated."""

    def run_command(self, target: Target, request: CommandRequest) -> CommandEnd | Silence:
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
            self.open_line(target),
            f'dir="{home}"',
            environment_text(launch, directories=bool(home)),
            command_text(launch),
            f'{step} "{home + "/work" if home else "$HOME"}"',
            "end_frame",
        ]
        read, patience = partial(_command_end, limit=limit), request.timeout + _ENDING
        return self.ask(target, "exec", call, read, room=2 * limit, patience=patience)

    def end_command(self, target: Target, tokens: Sequence[Token]) -> Silence | None:
        """End these commands of the worker, also those that are still on their way there; None once that is done."""
        words = [parse_token(token) for token in tokens]
        steps = [f"(stop_command {quote(word)})" for word in words]
        call = [self.open_line(target), *steps, "begin_frame", "end_frame"]
        return self.ask(target, "exec", call, lambda _: None, patience=_ENDING)


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
