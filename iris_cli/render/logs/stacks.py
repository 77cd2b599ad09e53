"""Stacks of many ranks: each place once, with the ranks that are there; on stderr why some have none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from iris_cli.core.ids import TaskId, WorkerId
from iris_cli.core.messages.stacks import Frame, KernelThread
from iris_cli.ops.logs.stacks import CHILD, MAIN, RankStacks, SharedStack, places
from iris_cli.remote.stack_calls import Program
from iris_cli.render.console import Output
from iris_cli.render.fold import by_words, fold
from iris_cli.render.logs.log_lines import rank_prefix
from iris_cli.render.logs.thread_states import show_thread_states

_LIBRARY = re.compile(r".*/(?:(?:site|dist)-packages|lib/python3\.[0-9]+)/")
_FULL_STACKS = (
    "for full stacks: `pip install py-spy` on the worker, or add to the program:",
    "    import faulthandler, os, signal",
    '    stacks = os.path.join(os.environ["IRIS_TASK_DIR"], "stacks.USR1")',
    '    faulthandler.register(signal.SIGUSR1, file=open(stacks, "a"))',
)
_MOST_FRAMES = 40
_LONGEST = 200  # characters of a name


class ThreadStack(Struct, frozen=True):
    """One thread, its innermost call first."""

    id: str
    name: str
    state: str
    main: bool
    frames: Sequence[Frame]


class ProcessStacks(Struct, frozen=True):
    """One process of a rank. `how` names the way its stacks were read; `trouble` is what py-spy reported.

    `kernel_threads`: its threads as the kernel describes them, if it has no stack.
    """

    pid: int
    state: str
    command: str
    how: str
    trouble: str
    threads: Sequence[ThreadStack]
    kernel_threads: Sequence[KernelThread]


class RankProcesses(Struct, frozen=True):
    """The processes of one rank. `note` is why there are none."""

    task: TaskId
    rank: int
    worker: WorkerId | None
    answered: bool
    note: str
    processes: Sequence[ProcessStacks]


class StacksDocument(Struct, frozen=True):
    """The result of `iris stacks`: each distinct stack once, and all processes by rank."""

    stacks: Sequence[SharedStack]
    ranks: Sequence[RankProcesses]


def show_stacks(output: Output, results: Sequence[RankStacks], what: str) -> None:
    """The places, and below each its calls, the innermost first."""
    found = places(results)
    if output.as_json:
        output.document(StacksDocument(found, [_rank(each) for each in results]))
        return
    for number, place in enumerate(found):
        if number:
            output.line()
        output.line(f"{rank_prefix(place.ranks)} {_heading(place)}")
        for frame in place.frames[:_MOST_FRAMES]:
            output.line(f"    {_words(frame)}")
        if len(place.frames) > _MOST_FRAMES:
            output.line(f"    … {len(place.frames) - _MOST_FRAMES} more")
        if not place.frames:
            output.line("    (no Python frame)")
    if found and any(_lacks_stack(each) for each in results):
        output.line()
    show_thread_states(output, results)
    output.flush()
    for is_silent, tell in ((True, output.warning), (False, output.message)):
        alike = [each for each in results if (each.silence is not None) is is_silent]
        notes = ((str(each.task), text) for each in alike for text in dict.fromkeys(_notes(each, what)))
        for tasks, text in by_words(notes):
            tell(f"{fold(tasks)}: {text}")
    if any(program.how == "silent" for each in results for program, _ in each.programs()):
        for line in _FULL_STACKS:
            output.message(line)


def _lacks_stack(result: RankStacks) -> bool:
    return not result.found and any(program.threads for program, _ in result.programs())


def _heading(place: SharedStack) -> str:
    if place.kind == MAIN:
        return "main thread"
    threads = f"{place.threads} other thread" if place.kind != CHILD else f"{place.threads} further process"
    return threads if place.threads == 1 else threads + ("s" if place.kind != CHILD else "es")


def _words(frame: Frame) -> str:
    file = _LIBRARY.sub("", frame.file[-_LONGEST:], count=1)
    where = f"{file}:{frame.line}" if frame.line else file
    return frame.function[:_LONGEST] + (f" ({where})" if where else "")


def _notes(result: RankStacks, what: str) -> Iterator[str]:
    if result.silence is not None:
        yield f"no answer: {result.silence.detail}"
        return
    if result.answer is None:
        yield result.note
        return
    if result.answer.count is None:
        yield "the processes of its host can't be listed"
    elif not result.answer.programs:
        yield f"nothing of it runs there ({result.answer.state})"
    for program in result.answer.programs:
        if program.how not in ("spy", "handler", "other"):
            yield _why(program, what)
    if all(program.how == "other" for program in result.answer.programs):
        for program in result.answer.programs[:1]:
            yield f"no Python program, but {_command(program)}"
    unseen = (result.answer.count or 0) - len(result.answer.programs)
    if unseen > 0 and result.answer.programs:
        yield f"of {unseen} more processes nothing was asked"


def _why(program: Program, what: str) -> str:
    """Why a Python program has no stack, and what to do about it."""
    state = " is stopped (SIGSTOP) and" if program.state == "T" else ""
    spy = f"; py-spy: {program.trouble}" if program.trouble else ""
    name = _command(program)
    kind, _, signal = program.how.partition(".")
    if kind == "catches":
        ask = f"if that is faulthandler's, ask with: iris stacks {what} --signal {signal}"
        return f"{name} has a handler for SIG{signal}; {ask}{spy}"
    if kind == "deaf":
        return f"{name}{state} was sent a signal and has printed no stack{spy}"
    if kind == "late":
        return f"{name} was not asked: the others took all the time"
    return f"no stack of {name}{spy or ': py-spy is not installed, faulthandler is not registered'}"


def _command(program: Program) -> str:
    words = program.command or f"process {program.pid}"
    return f"`{words[:60]}{'…' if len(words) > 60 else ''}`"


def _rank(result: RankStacks) -> RankProcesses:
    silence = result.silence
    note = result.note if silence is None else f"no answer: {silence.detail}"
    processes = [
        ProcessStacks(
            program.pid,
            program.state,
            program.command,
            program.how,
            program.trouble,
            [ThreadStack(each.id, each.name, each.state, each.is_main, each.frames) for each in threads],
            program.threads,
        )
        for program, threads in result.programs()
    ]
    return RankProcesses(result.task, result.task.index, result.worker, silence is None, note, processes)
