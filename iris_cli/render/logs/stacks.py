"""Print the stacks of many ranks: each distinct stack once, with its ranks. Print thread states of all other ranks."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from iris_cli.core import TaskId, WorkerId, format_indexes, group_pairs
from iris_cli.core.messages.stacks import Frame, KernelThread
from iris_cli.ops.logs.stacks import CHILD, MAIN, RankStacks, SharedStack, shared_stacks
from iris_cli.ops.outcomes.stack_places import call_words, deciding_thread, own_call
from iris_cli.remote.stack_calls import Program
from iris_cli.render.console import Output
from iris_cli.render.logs.log_lines import rank_prefix
from iris_cli.render.tables import fold, group_by_text

_FULL_STACKS = (
    "for full stacks: `pip install py-spy` on the worker, or add to the program:",
    "    import faulthandler, os, signal",
    '    stacks = os.path.join(os.environ["IRIS_TASK_DIR"], "stacks.USR1")',
    '    faulthandler.register(signal.SIGUSR1, file=open(stacks, "a"))',
)
_MAX_FRAMES = 40
Activity = tuple[str, str, str]
"""Singular verb, plural verb, and ` in CHANNEL` if the kernel reports the function in which the thread waits."""

_VERBS = {
    "S": ("sleeps", "sleep"),
    "D": ("waits for a device or a disk", "wait for a device or a disk"),
    "T": ("is stopped", "are stopped"),
    "t": ("is stopped by a debugger", "are stopped by a debugger"),
    "R": ("runs", "run"),
    "I": ("is idle", "are idle"),
    "Z": ("has exited", "have exited"),
}
_MAX_COMMAND = 60  # characters


class ThreadStack(Struct, frozen=True):
    """One thread. `frames`: the innermost call first."""

    id: str
    name: str
    state: str
    main: bool
    frames: Sequence[Frame]


class ProcessStacks(Struct, frozen=True):
    """One process of a rank. `how`: the way in which its stacks were read. `trouble`: the error of py-spy.

    `kernel_threads`: if the process has no stack, the states of its threads.
    """

    pid: int
    state: str
    command: str
    how: str
    trouble: str
    threads: Sequence[ThreadStack]
    kernel_threads: Sequence[KernelThread]


class RankProcesses(Struct, frozen=True):
    """The processes of one rank. `note` says why the list is empty."""

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
    """Print each distinct stack with its ranks and its calls. The innermost call comes first."""
    found = shared_stacks(results)
    if output.as_json:
        output.document(StacksDocument(found, [_rank_processes(each) for each in results]))
        return
    summary = _summary(found)
    if summary:
        output.line(summary)
    for number, stack in enumerate(found):
        if number or summary:
            output.line()
        output.line(f"{rank_prefix(stack.ranks)} {_heading(stack)}")
        for frame in stack.frames[:_MAX_FRAMES]:
            output.line(f"    {call_words(frame)}")
        if len(stack.frames) > _MAX_FRAMES:
            output.line(f"    … {len(stack.frames) - _MAX_FRAMES} more")
        if not stack.frames:
            output.line("    (no Python frame)")
    if found and any(map(_programs_without_stack, results)):
        output.line()
    show_thread_states(output, results)
    output.flush()
    for is_silent, print_line in ((True, output.warning), (False, output.message)):
        alike = [each for each in results if (each.silence is not None) is is_silent]
        notes = ((str(each.task), text) for each in alike for text in dict.fromkeys(_notes(each, what)))
        for tasks, text in group_by_text(notes):
            print_line(f"{fold(tasks)}: {text}")
    if any(program.how == "silent" for each in results for program, _ in each.programs()):
        for line in _FULL_STACKS:
            output.message(line)


def _summary(found: Sequence[SharedStack]) -> str:
    """Return `ranks 0-1 in psum (train.py:4); rank 2 in load (data.py:3)`; '' if all main threads have one stack."""
    mains = [stack for stack in found if stack.kind == MAIN]
    parts = []
    for stack in mains:
        other_frames = {frame for other in mains if other is not stack for frame in other.frames}
        where = call_words(own_call(stack.frames, other_frames)) if stack.frames else "no Python frame"
        parts.append(f"{_ranks(stack.ranks)} in {where}")
    return "; ".join(parts) if len(mains) > 1 else ""


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_indexes(ranks)}"


def _heading(stack: SharedStack) -> str:
    if stack.kind == MAIN:
        return "main thread"
    threads = f"{stack.threads} other thread" if stack.kind != CHILD else f"{stack.threads} more process"
    return threads if stack.threads == 1 else threads + ("s" if stack.kind != CHILD else "es")


def _notes(result: RankStacks, what: str) -> Iterator[str]:
    if result.silence is not None:
        yield result.silence.note
        return
    if result.answer is None:
        yield result.note
        return
    if result.answer.count is None:
        yield "can't list the processes of its host"
    elif not result.answer.programs:
        yield f"not running on its worker ({result.answer.state})"
    for program in result.answer.programs:
        if program.how not in ("spy", "handler", "other"):
            yield _missing_stack_reason(program, what)
    if all(program.how == "other" for program in result.answer.programs):
        for program in result.answer.programs[:1]:
            yield f"not a Python program: {_command(program)}"
    unseen = (result.answer.count or 0) - len(result.answer.programs)
    if unseen > 0 and result.answer.programs:
        yield f"{unseen} more processes not inspected"


def _missing_stack_reason(program: Program, what: str) -> str:
    """Return why a Python program has no stack, and a command to try if there is one."""
    state = " is stopped (SIGSTOP) and" if program.state == "T" else ""
    py_spy = f"; py-spy: {program.trouble}" if program.trouble else ""
    name = _command(program)
    kind, _, signal = program.how.partition(".")
    if kind == "catches":
        advice = f"if it is faulthandler's: iris stacks {what} --signal {signal}"
        return f"{name} has a handler for SIG{signal}; {advice}{py_spy}"
    if kind == "deaf":
        return f"{name}{state} printed no stack after the signal{py_spy}"
    if kind == "late":
        return f"{name} was not inspected: out of time"
    return f"no stack of {name}{py_spy or '; py-spy is not installed'}"


def _command(program: Program) -> str:
    return f"`{_short_command(program)}`"


def _short_command(program: Program) -> str:
    words = program.command or f"process {program.pid}"
    return f"{words[:_MAX_COMMAND]}{'…' if len(words) > _MAX_COMMAND else ''}"


def _rank_processes(result: RankStacks) -> RankProcesses:
    silence = result.silence
    note = result.note if silence is None else silence.note
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


def show_thread_states(output: Output, results: Sequence[RankStacks]) -> None:
    """Print what the ranks without a stack do. Then, for each activity, print the threads of one rank."""
    ordered = _group_by_activity(results)
    if not ordered:
        return
    output.line("no stacks, only thread states: " + "; ".join(_sentence(*group) for group in ordered))
    for _, ranks in ordered:
        output.line()
        first, *others = (each.task.index for each in ranks)
        same = f"; {_ranks(others)} {'has' if len(others) == 1 else 'have'} the same" if others else ""
        output.line(f"{rank_prefix([first, *others])} threads of rank {first}{same}")
        for program in _programs_without_stack(ranks[0]):
            output.line(f"    {_short_command(program)}")
            for line in _thread_lines(program.threads):
                output.line(f"        {line}")


def _group_by_activity(results: Sequence[RankStacks]) -> list[tuple[Activity, list[RankStacks]]]:
    """Group the ranks without a stack by activity. The largest group comes first."""
    threads = ((each, deciding_thread(_programs_without_stack(each))) for each in results)
    groups = group_pairs(
        (_activity_of_thread(thread), each) for each, thread in threads if thread is not None
    )
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def _programs_without_stack(result: RankStacks) -> list[Program]:
    return (
        []
        if result.has_stacks or result.answer is None
        else [each for each in result.answer.programs if each.threads]
    )


def _activity_of_thread(thread: KernelThread) -> Activity:
    if thread.spins:
        return "spins", "spin", ""
    singular, plural = _VERBS.get(thread.state, ("is in an unknown state", "are in an unknown state"))
    channel = thread.wait_channel if thread.state in "SD" else ""
    return singular, plural, f" in {channel}" if channel else ""


def _sentence(activity: Activity, ranks: Sequence[RankStacks]) -> str:
    singular, plural, channel = activity
    return f"{_ranks([each.task.index for each in ranks])} {singular if len(ranks) == 1 else plural}{channel}"


def _thread_lines(threads: Sequence[KernelThread]) -> Iterator[str]:
    """Yield a line for each activity with the number and CPU time of its threads. The busiest activity comes first."""
    groups = group_pairs((_activity_of_thread(thread), thread) for thread in threads)
    for (singular, plural, channel), same in sorted(groups.items(), key=lambda group: -_cpu_share(group[1])):
        who = f"1 thread {singular}" if len(same) == 1 else f"{len(same)} threads {plural}"
        total = sum(thread.cpu_seconds for thread in same)
        yield f"{who}{channel}: {100 * _cpu_share(same):.0f} % CPU, {total:.1f}s CPU time"


def _cpu_share(threads: Sequence[KernelThread]) -> float:
    return sum(thread.cpu or 0.0 for thread in threads)
