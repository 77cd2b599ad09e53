"""The calls of a worker beside those of its tasks: each sends a script and reads its answer."""

from __future__ import annotations

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
from iris_cli.remote.answers import Record, records_of
from iris_cli.remote.frames import Frame, broken, failed, parse_frame
from iris_cli.remote.launch_request import LaunchRequest, command_text, environment_text, hundredths
from iris_cli.remote.transport import NoAnswer, Payload, Target, Transport
from iris_cli.remote.worker_script import HostPaths, directory_word, quote, worker_script

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


LONGEST_OUTPUT = 512 << 10
_COMMAND_ENDING = 20.0  # seconds: it is asked to end, killed, and what it has left is looked for
_COMMAND_ANSWER = re.compile(r"X (gone|none|[0-9]{1,3}) ([01])")


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
        read, patience = partial(_command_end, limit=limit), request.timeout + _COMMAND_ENDING
        return self.ask(target, "exec", call, read, room=2 * limit, patience=patience)

    def end_command(self, target: Target, tokens: Sequence[Token]) -> Silence | None:
        """End these commands of the worker, also those that are still on their way there; None once that is done."""
        words = [parse_token(token) for token in tokens]
        steps = [f"(stop_command {quote(word)})" for word in words]
        call = [self.open_line(target), *steps, "begin_frame", "end_frame"]
        return self.ask(target, "exec", call, lambda _: None, patience=_COMMAND_ENDING)


def _command_end(frame: Frame, limit: int) -> CommandEnd:
    _, _, records = records_of(frame, limit + 1)
    match = _COMMAND_ANSWER.fullmatch(records[0].line) if len(records) == 1 else None
    if match is None or (match[1].isdigit() and int(match[1]) > 255):
        raise broken("the answer says nothing of a command")
    return CommandEnd(
        exit_code=int(match[1]) if match[1].isdigit() else None,
        output=records[0].data[:limit],
        timed_out=match[2] == "1",
        gone=match[1] == "gone",
        cut=len(records[0].data) > limit,
    )


SIGNALS = ("USR1", "USR2")
"""Those with which a program may be asked for its stacks."""

_STACKS_TIME = 30.0  # seconds in which programs are asked, on one host
_STACKS_ENDING = 20.0  # ... and for the last of them, and to list the others
_LONGEST_STACKS = 160 << 10  # bytes of one program: three files of 48 KiB at most
_STACKS_ROOM = 1 << 20  # bytes of an answer for each attempt: the library stops at half a MiB, in base64
_STACKS_OF = pattern(r"N ([0-9a-f]{32}) ([A-Z]+) (-|0|[1-9][0-9]{0,6})")
_PROGRAM = pattern(
    r"P ([1-9][0-9]{0,9}) ([A-Za-z]) (spy|handler|deaf|silent|other|late|catches\.(?:USR1|USR2))"
)


class Program(Struct, frozen=True, kw_only=True):
    """A process of a task. `state` is the kernel's letter: `R` runs, `S` sleeps, `D` waits for a device.

    `how` says where `dump` is from: `spy` or `handler`; or why there is none: `deaf` (it was sent a signal, and said
    nothing), `catches.USR1` (that may be faulthandler's), `silent` (Python without any), `other` (no Python), `late`
    (no time or room was left). `trouble` is what py-spy said when it failed. `threads`: the kernel's view of a
    program without a stack.
    """

    pid: int
    state: str
    how: str
    command: str
    trouble: str = ""
    dump: str = ""
    threads: tuple[KernelThread, ...] = ()


class Programs(Struct, frozen=True, kw_only=True):
    """The processes of an attempt, the oldest first. `count` is how many it has, None if they can't be listed."""

    token: Token
    state: RemoteState
    count: int | None
    programs: tuple[Program, ...] = ()


class StackCalls(WorkerCalls):
    """The part of the runner for stacks."""

    def stacks(
        self, target: Target, tokens: Sequence[Token], *, consent: str = ""
    ) -> tuple[Programs, ...] | Silence:
        """What the programs of these attempts are doing, in one round trip. py-spy stops each for a moment.

        Without py-spy a program is sent a signal, if it has a handler for it and the file `stacks.<SIGNAL>` of its task
        open; one that `consent` names, of SIGNALS, also without the file. Raises ValueError for another one.
        """
        if consent and consent not in SIGNALS:
            raise ValueError(f"{consent[:20]!r} is none of {', '.join(SIGNALS)}")
        tokens = unique(tokens)
        call = [
            "trap : HUP INT TERM PIPE",
            "LC_ALL=C",
            "export LC_ALL",
            self.open_line(target),
            "now",
            f"ask_until=$((now + {int(_STACKS_TIME * 100)}))",
            "begin_frame",
            *(f"stacks {token} {quote(consent)}" for token in tokens),
            "end_frame",
        ]
        read, room = partial(_programs, tokens=tokens), _STACKS_ROOM * len(tokens)
        return self.ask(target, "stacks", call, read, room=room, patience=_STACKS_TIME + _STACKS_ENDING)


def _programs(frame: Frame, tokens: Sequence[Token]) -> tuple[Programs, ...]:
    _, _, records = records_of(frame, _LONGEST_STACKS)
    found: list[Programs] = []
    for record in records:
        if match := _STACKS_OF.fullmatch(record.line):
            if match[2] not in RemoteState.__members__ or record.data:
                raise broken("the answer has a line that is about no attempt")
            count = None if match[3] == "-" else int(match[3])
            found.append(Programs(token=Token(match[1]), state=RemoteState(match[2]), count=count))
        elif found:
            mine = found[-1]
            found[-1] = replace(mine, programs=(*mine.programs, _read_program(record)))
        else:
            raise broken("the answer has a program of no attempt")
    if [each.token for each in found] != list(tokens):
        raise broken("the answer is not about the attempts that were asked for")
    return tuple(found)


def _read_program(record: Record) -> Program:
    match = _PROGRAM.fullmatch(record.line)
    if match is None:
        raise broken("the answer has a line that is about no program")
    command, _, rest = record.data.decode("utf-8", "replace").partition("\n")
    trouble, _, said = rest.partition("\n")
    has_stack = match[3] in ("spy", "handler")
    return Program(
        pid=int(match[1]),
        state=match[2],
        how=match[3],
        command=command.strip(),
        trouble=trouble.strip()[:200],
        dump=said if has_stack else "",
        threads=() if has_stack else kernel_threads(said),
    )
