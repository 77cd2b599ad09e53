"""The place of a program: the innermost call of its stack outside libraries, or the state of its threads.

iris records the place of each program that goes quiet: in a stuck gang, one rank often executes another function than
the other ranks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from iris_cli.core import AttemptId, Cluster, Token
from iris_cli.core.messages.observations import RemoteState, Silence, WorkerReport
from iris_cli.core.messages.stacks import Frame, KernelThread, threads_of
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.remote.stack_calls import Program
    from iris_cli.remote.transport import Target

_LIBRARY = re.compile(r".*/(?:(?:site|dist)-packages|lib/python3\.[0-9]+)/")
_MAX_NAME = 200  # characters of a name
_MAX_PLACE = 120  # characters
_STATES = {"S": "sleep", "D": "uninterruptible sleep", "T": "a stop by a signal", "t": "a stop by a debugger"}
_MAX_QUIET = 8  # attempts of one worker for which stacks are read
_TIMEOUT = 5.0  # seconds to read stacks on one worker, because starts on the worker must wait


def call_words(frame: Frame) -> str:
    """Return a call as text, such as `all_reduce (train.py:4)`. Paths of library files are shortened."""
    file = _LIBRARY.sub("", frame.file[-_MAX_NAME:], count=1)
    where = f"{file}:{frame.line}" if frame.line else file
    return frame.function[:_MAX_NAME] + (f" ({where})" if where else "")


def own_call(frames: Sequence[Frame], shared: Collection[Frame] = ()) -> Frame:
    """Return the innermost call outside libraries, with its file's base name. Prefer calls that are not in `shared`.

    `shared`: calls that are in other stacks, too. The innermost call of a stack is usually in a library, whatever the
    program does.
    """
    own_frames = [each for each in frames if each.line and not _is_library(each.file)] or frames
    found = next((each for each in (*own_frames, *frames) if each not in shared), own_frames[0])
    return Frame(found.function, found.file.rpartition("/")[2], found.line)


def _is_library(file: str) -> bool:
    """Return True if a file belongs to an installed package or to Python. py-spy may print a relative path."""
    top = file.partition("/")[0].removesuffix(".py")
    return _LIBRARY.match(file) is not None or top in sys.stdlib_module_names


def place_of(programs: Sequence[Program]) -> str:
    """Return the call of the main thread of the first program with a stack. Without a stack, return a thread state."""
    stacks = (thread.frames for each in programs for thread in threads_of(each.dump) if thread.is_main)
    frames = next(filter(None, stacks), None)
    words = (
        call_words(own_call(frames)) if frames else _state_words([each for each in programs if each.threads])
    )
    return " ".join(words.split())[:_MAX_PLACE]


def _state_words(programs: Sequence[Program]) -> str:
    """Return the state of the deciding thread, such as `sleep (futex_wait_queue)` or `a busy loop`; '' without it."""
    thread = deciding_thread(programs)
    if thread is None:
        return ""
    if thread.spins:
        return "a busy loop"
    words = _STATES.get(thread.state, "")
    return f"{words} ({thread.wait_channel})" if words and thread.wait_channel else words


def deciding_thread(programs: Sequence[Program]) -> KernelThread | None:
    """Return the thread that shows what programs without stacks do; None without programs.

    It is a thread that spins, otherwise the main thread of the first Python program, or of the newest program if none
    is Python. Each program has threads.
    """
    if not programs:
        return None
    program = next((each for each in programs if each.how != "other"), programs[-1])
    spinning = (thread for each in programs for thread in each.threads if thread.spins)
    return next(spinning, program.threads[0])


def with_stack_places(
    session: Session,
    cluster: Cluster,
    target: Target,
    attempts: Mapping[Token, AttemptId],
    report: WorkerReport | Silence,
) -> WorkerReport | Silence:
    """Return the report with the place of each program that went quiet: the function that it executes.

    The places are read with a second call. The report counts the duration of that call as time since its answer.
    """
    if isinstance(report, Silence):
        return report
    from iris_cli.core.lifecycle.attempts import went_quiet

    now, limits = session.clock.now(), session.limits
    quiet = [
        each.token
        for each in report.attempts
        if each.token in attempts
        and each.state in (RemoteState.RUNNING, RemoteState.ORPHANED)
        and went_quiet(cluster, attempts[each.token], each, now, limits)
    ]
    if not quiet:
        return report
    called_at = session.clock.monotonic()
    found = session.runner.stacks.read(target, quiet[:_MAX_QUIET], seconds=_TIMEOUT)
    places = {} if isinstance(found, Silence) else {each.token: place_of(each.programs) for each in found}
    passed = session.clock.monotonic() - called_at

    def increase(ago: float | None) -> float | None:
        return None if ago is None else ago + passed

    reports = (
        structs.replace(
            each,
            place=places.get(each.token, ""),
            started_ago=increase(each.started_ago),
            ended_ago=increase(each.ended_ago),
            waited=each.waited + passed,  # not a longer silence: there may be output since the answer
        )
        for each in report.attempts
    )
    clock = report.clock + passed if report.clock else 0.0  # 0: the worker did not report its clock
    return structs.replace(report, attempts=tuple(reports), clock=clock, uptime=report.uptime + passed)
