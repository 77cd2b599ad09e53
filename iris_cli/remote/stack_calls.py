"""Read the stacks of the programs of attempts."""

from collections.abc import Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState, Silence
from iris_cli.core.messages.stacks import KernelThread, kernel_threads
from iris_cli.core.text import pattern
from iris_cli.remote.answers import Record, parse_records
from iris_cli.remote.frames import Frame, malformed_answer
from iris_cli.remote.launch_request import hundredths
from iris_cli.remote.transport import Target
from iris_cli.remote.worker_calls import WorkerCalls, distinct_tokens
from iris_cli.remote.worker_script import quote

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
