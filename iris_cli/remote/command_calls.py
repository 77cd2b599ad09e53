"""Run commands of the operator on workers, or next to the tasks on them."""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct

from iris_cli.core.ids import Token, parse_token
from iris_cli.core.messages.observations import Silence
from iris_cli.remote.answers import parse_records
from iris_cli.remote.frames import Frame, malformed_answer
from iris_cli.remote.launch_request import LaunchRequest, environment_text, hundredths, side_command_text
from iris_cli.remote.transport import Target
from iris_cli.remote.worker_calls import WorkerCalls
from iris_cli.remote.worker_script import quote

MAX_OUTPUT = 512 << 10
_ENDING_TIME = 20.0  # seconds: SIGTERM, SIGKILL, and searches for processes
_COMMAND_ANSWER = re.compile(r"X (gone|none|[0-9]{1,3}) ([01])")


class CommandRequest(Struct, frozen=True, kw_only=True):
    """A command to run on a worker, or for an `attempt` on the worker, for at most `timeout` seconds.

    A command for an attempt runs in the attempt's directory, and in its container if there is an `image`. The first
    `limit` bytes of its output (stdout and stderr merged) are returned. `token` identifies the command.
    """

    token: Token
    argv: tuple[str, ...]
    env: Mapping[str, str]
    attempt: Token | None = None
    image: str = ""
    timeout: float = 60.0
    limit: int = 256 << 10


class CommandEnd(Struct, frozen=True, kw_only=True):
    """The result of a command.

    `exit_code` is None if iris killed the command, or if the directory of its attempt is `gone`. `timed_out`: the
    command was killed at its timeout. `cut`: `output` is truncated.
    """

    exit_code: int | None
    output: bytes
    timed_out: bool = False
    gone: bool = False
    cut: bool = False


class CommandCalls:
    """Calls for commands of the operator. Only `run` can't be repeated."""

    def __init__(self, calls: WorkerCalls) -> None:
        self._calls = calls

    def run(self, target: Target, request: CommandRequest) -> CommandEnd | Silence:
        """Run a command without input and return its result. Raises ValueError for text with a NUL.

        If the connection is lost, the command continues until its timeout or `end`.
        """
        limit = max(0, min(request.limit, MAX_OUTPUT))
        token = parse_token(request.token)
        attempt_dir = f"$root/a/{parse_token(request.attempt)}" if request.attempt else ""
        launch = LaunchRequest(token=token, argv=request.argv, env=request.env, image=request.image)
        # Request one byte more than the limit, to see whether the output is truncated.
        step = f"run_command {token} {hundredths(request.timeout)} {limit + 1}"
        call = [
            "mask=$(umask) timed_out=0",
            self._calls.open_line(target),
            f'dir="{attempt_dir}"',
            environment_text(launch, directories=bool(attempt_dir)),
            side_command_text(launch),
            f'{step} "{attempt_dir + "/work" if attempt_dir else "$HOME"}"',
            "end_frame",
        ]
        read, seconds = partial(_command_end, limit=limit), request.timeout + _ENDING_TIME
        return self._calls.ask(target, "exec", call, read, room=2 * limit, seconds=seconds)

    def end(self, target: Target, tokens: Sequence[Token]) -> Silence | None:
        """End these commands, or prevent their start. Return None if the worker confirmed that."""
        words = [parse_token(token) for token in tokens]
        steps = [f"(stop_command {quote(word)})" for word in words]
        call = [self._calls.open_line(target), *steps, "begin_frame", "end_frame"]
        return self._calls.ask(target, "exec", call, lambda _: None, seconds=_ENDING_TIME)


def _command_end(frame: Frame, limit: int) -> CommandEnd:
    _, _, records = parse_records(frame, limit + 1)
    match = _COMMAND_ANSWER.fullmatch(records[0].line) if len(records) == 1 else None
    if match is None or (match[1].isdigit() and int(match[1]) > 255):
        raise malformed_answer("the answer has no result of a command")
    return CommandEnd(
        exit_code=int(match[1]) if match[1].isdigit() else None,
        output=records[0].data[:limit],
        timed_out=match[2] == "1",
        gone=match[1] == "gone",
        cut=len(records[0].data) > limit,
    )
