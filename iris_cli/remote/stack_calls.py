"""Where the programs of attempts are: the stacks of their threads, by py-spy or Python's own faulthandler."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState, Silence
from iris_cli.core.messages.stacks import KernelThread, kernel_threads
from iris_cli.core.text import pattern
from iris_cli.remote.answers import Record, records_of
from iris_cli.remote.frames import Frame, broken
from iris_cli.remote.transport import Target
from iris_cli.remote.worker_calls import WorkerCalls, unique
from iris_cli.remote.worker_script import quote

SIGNALS = ("USR1", "USR2")
"""Those with which a program may be asked for its stacks."""

_TIME = 30.0  # seconds in which programs are asked, on one host
_ENDING = 20.0  # ... and for the last of them, and to list the others
_LONGEST = 160 << 10  # bytes of one program: three files of 48 KiB at most
_ROOM = 1 << 20  # bytes of an answer for each attempt: the library stops at half a MiB, in base64
_ATTEMPT = pattern(r"N ([0-9a-f]{32}) ([A-Z]+) (-|0|[1-9][0-9]{0,6})")
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
            f"ask_until=$((now + {int(_TIME * 100)}))",
            "begin_frame",
            *(f"stacks {token} {quote(consent)}" for token in tokens),
            "end_frame",
        ]
        read, room = partial(_programs, tokens=tokens), _ROOM * len(tokens)
        return self.ask(target, "stacks", call, read, room=room, patience=_TIME + _ENDING)


def _programs(frame: Frame, tokens: Sequence[Token]) -> tuple[Programs, ...]:
    _, _, records = records_of(frame, _LONGEST)
    found: list[Programs] = []
    for record in records:
        if match := _ATTEMPT.fullmatch(record.line):
            if match[2] not in RemoteState.__members__ or record.data:
                raise broken("the answer has a line that is about no attempt")
            count = None if match[3] == "-" else int(match[3])
            found.append(Programs(token=Token(match[1]), state=RemoteState(match[2]), count=count))
        elif found:
            mine = found[-1]
            found[-1] = replace(mine, programs=(*mine.programs, _program(record)))
        else:
            raise broken("the answer has a program of no attempt")
    if [each.token for each in found] != list(tokens):
        raise broken("the answer is not about the attempts that were asked for")
    return tuple(found)


def _program(record: Record) -> Program:
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
