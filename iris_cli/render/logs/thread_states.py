"""Ranks without a stack compared by the kernel's view of their threads: who spins, who sleeps and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iris_cli.core.messages.stacks import KernelThread
from iris_cli.core.model.array import format_indexes
from iris_cli.ops.logs.stacks import RankStacks
from iris_cli.remote.stack_calls import Program
from iris_cli.render.console import Output
from iris_cli.render.logs.log_lines import rank_prefix

Doing = tuple[str, str, str]
"""A verb for one, the same for several, and the place."""

_VERBS = {
    "S": ("sleeps", "sleep"),
    "D": ("waits for a device or a disk", "wait for a device or a disk"),
    "T": ("is stopped", "are stopped"),
    "t": ("is stopped by a debugger", "are stopped by a debugger"),
    "R": ("runs", "run"),
    "I": ("is idle", "are idle"),
    "Z": ("has exited", "have exited"),
}
_LONGEST = 60  # characters of a command


def show_thread_states(output: Output, results: Sequence[RankStacks]) -> None:
    """One sentence that compares the ranks without a stack, and the threads of the lowest rank of each group."""
    groups: dict[Doing, list[RankStacks]] = {}
    for each in results:
        if doing := _of_rank(each):
            groups.setdefault(doing, []).append(each)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    if not ordered:
        return
    output.line("no stack: " + "; ".join(_sentence(doing, ranks) for doing, ranks in ordered))
    for _, ranks in ordered:
        output.line()
        output.line(
            f"{rank_prefix([each.task.index for each in ranks])} threads of rank {ranks[0].task.index}"
        )
        for program in _programs(ranks[0]):
            words = program.command or f"process {program.pid}"
            output.line(f"    {words[:_LONGEST]}{'…' if len(words) > _LONGEST else ''}")
            for line in _threads(program.threads):
                output.line(f"        {line}")


def _programs(result: RankStacks) -> list[Program]:
    return (
        []
        if result.found or result.answer is None
        else [one for one in result.answer.programs if one.threads]
    )


def _of_rank(result: RankStacks) -> Doing | None:
    """What a rank does: it spins if any thread does, else what the main thread of its program does.

    Its program is its first Python program, or the newest process of those that are not Python.
    """
    programs = _programs(result)
    if not programs:
        return None
    if any(thread.spins for program in programs for thread in program.threads):
        return "spins", "spin", ""
    program = next((each for each in programs if each.how != "other"), programs[-1])
    return _of_thread(program.threads[0])


def _of_thread(thread: KernelThread) -> Doing:
    if thread.spins:
        return "spins", "spin", ""
    one, several = _VERBS.get(thread.state, ("is in an unknown state", "are in an unknown state"))
    place = thread.wait_channel if thread.state in "SD" else ""
    return one, several, f" in {place}" if place else ""


def _sentence(doing: Doing, ranks: Sequence[RankStacks]) -> str:
    one, several, place = doing
    indexes = format_indexes([each.task.index for each in ranks])
    return f"rank {indexes} {one}{place}" if len(ranks) == 1 else f"ranks {indexes} {several}{place}"


def _threads(threads: Sequence[KernelThread]) -> Iterator[str]:
    """Threads that do the same in one line, the busiest first; the CPU times are their sums."""
    groups: dict[Doing, list[KernelThread]] = {}
    for thread in threads:
        groups.setdefault(_of_thread(thread), []).append(thread)
    for (one, several, place), same in sorted(groups.items(), key=lambda group: -_used(group[1])):
        who = f"1 thread {one}" if len(same) == 1 else f"{len(same)} threads {several}"
        total = sum(thread.cpu_seconds for thread in same)
        yield f"{who}{place}: {100 * _used(same):.0f} % CPU, {total:.1f}s CPU time"


def _used(threads: Sequence[KernelThread]) -> float:
    return sum(thread.cpu or 0.0 for thread in threads)
