"""Send a script to a worker and read the answer. Calls for commands and stacks."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.core.ids import Token, is_name, parse_token
from iris_cli.core.messages.observations import RemoteState, Silence
from iris_cli.core.messages.stacks import KernelThread, kernel_threads
from iris_cli.core.model.limits import extra_time
from iris_cli.core.text import pattern
from iris_cli.randomness import SYSTEM_RANDOMNESS
from iris_cli.remote.answers import Record, parse_records
from iris_cli.remote.frames import Frame, failed_script, malformed_answer, parse_frame
from iris_cli.remote.launch_request import LaunchRequest, environment_text, hundredths, side_command_text
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


SIGNALS = ("USR1", "USR2")
"""Signals that can make a program print its stacks."""

_STACKS_TIME = 30.0  # seconds for requesting stacks on one host
_STACKS_ENDING = 20.0  # additional seconds for listing processes, and for the last stack
_MAX_STACKS = 160 << 10  # bytes for one program: at most three files of 48 KiB
_STACKS_ROOM = 1 << 20  # bytes of an answer for each attempt: half a MiB in base64
_ATTEMPT = pattern(r"N ([0-9a-f]{32}) ([A-Z]+) (-|0|[1-9][0-9]{0,6})")
_PROGRAM = pattern(
    r"P ([1-9][0-9]{0,9}) ([A-Za-z]) (spy|handler|deaf|silent|other|late|catches\.(?:USR1|USR2))"
)


class Program(Struct, frozen=True, kw_only=True):
    """A process of a task. `state` is the kernel's letter: `R` running, `S` sleeping, `D` waiting for a device.

    `how` is the source of the stacks in `dump`: `spy` (py-spy) or `handler` (a signal handler). Otherwise it is the
    reason why `dump` is empty: `deaf` (no reaction to the signal), `catches.USR1` (has a handler for the signal, maybe
    not faulthandler's), `silent` (Python without a handler), `other` (not Python), `late` (no time or room left).
    `trouble` is py-spy's error message. `threads` is the kernel's view of a program without a dump.
    """

    pid: int
    state: str
    how: str
    command: str
    trouble: str = ""
    dump: str = ""
    threads: tuple[KernelThread, ...] = ()


class Programs(Struct, frozen=True, kw_only=True):
    """The programs of an attempt, oldest first. `count` is the number of the attempt's processes, None if unknown."""

    token: Token
    state: RemoteState
    count: int | None
    programs: tuple[Program, ...] = ()


class StackCalls:
    """The call for the stacks of attempts."""

    def __init__(self, calls: WorkerCalls) -> None:
        self._calls = calls

    def read(
        self, target: Target, tokens: Sequence[Token], *, consent: str = "", seconds: float = _STACKS_TIME
    ) -> tuple[Programs, ...] | Silence:
        """Return the stacks of these attempts' programs. py-spy pauses each program briefly.

        Without py-spy, a program gets a signal if it has a handler for that signal, and has opened its task's file
        `stacks.<SIGNAL>`. `consent` is a signal of SIGNALS that is sent even if the file is not open. Raises ValueError
        for another signal. After `seconds` the remaining programs are reported as `late`.
        """
        if consent and consent not in SIGNALS:
            raise ValueError(f"{consent[:20]!r} is not one of {', '.join(SIGNALS)}")
        tokens = distinct_tokens(tokens)
        call = [
            "trap : HUP INT TERM PIPE",
            "LC_ALL=C",
            "export LC_ALL",
            self._calls.open_line(target),
            "now",
            f"ask_until=$((now + {hundredths(seconds)}))",
            "begin_frame",
            *(f"stacks {token} {quote(consent)}" for token in tokens),
            "end_frame",
        ]
        read, room = partial(_programs, tokens=tokens), _STACKS_ROOM * len(tokens)
        return self._calls.ask(target, "stacks", call, read, room=room, seconds=seconds + _STACKS_ENDING)


def _programs(frame: Frame, tokens: Sequence[Token]) -> tuple[Programs, ...]:
    _, _, records = parse_records(frame, _MAX_STACKS)
    found: list[Programs] = []
    for record in records:
        if match := _ATTEMPT.fullmatch(record.line):
            if match[2] not in RemoteState.__members__ or record.data:
                raise malformed_answer("the answer has an unexpected line")
            count = None if match[3] == "-" else int(match[3])
            found.append(Programs(token=Token(match[1]), state=RemoteState(match[2]), count=count))
        elif found:
            attempt = found[-1]
            found[-1] = replace(attempt, programs=(*attempt.programs, _read_program(record)))
        else:
            raise malformed_answer("the answer has a program of no attempt")
    if [each.token for each in found] != list(tokens):
        raise malformed_answer("the answer is not about the attempts that were asked for")
    return tuple(found)


def _read_program(record: Record) -> Program:
    match = _PROGRAM.fullmatch(record.line)
    if match is None:
        raise malformed_answer("the answer has a line that is about no program")
    command, _, rest = record.data.decode("utf-8", "replace").partition("\n")
    trouble, _, text = rest.partition("\n")
    has_stack = match[3] in ("spy", "handler")
    return Program(
        pid=int(match[1]),
        state=match[2],
        how=match[3],
        command=command.strip(),
        trouble=trouble.strip()[:200],
        dump=text if has_stack else "",
        threads=() if has_stack else kernel_threads(text),
    )
