"""Who runs cycles, in words."""

from __future__ import annotations

from iris_cli.core.units import format_duration
from iris_cli.journal.files.runners import LOOP
from iris_cli.ops.views.cycles import CRON, VALIDATE, Cycles

_NAMES = {"loop": "background loop", "watch": "iris watch", "wait": "iris wait", "command": "iris schedule"}


def cycles_words(cycles: Cycles) -> str:
    """Return `cycles: background loop (pid 4711), last 3s ago`, or what to type if nobody runs cycles."""
    last = "none yet" if cycles.last is None else f"last {format_duration(cycles.last)} ago"
    if not cycles.by:
        return _nobody(cycles)
    if cycles.by == CRON:
        return f"cycles: cron every {format_duration(cycles.interval or 0.0)}, {last}"
    name = _NAMES[LOOP] if cycles.by == LOOP else cycles.command or _NAMES.get(cycles.by, cycles.by)
    if not cycles.pid:
        return f"cycles: {name}, starting"
    who = f"{name} (pid {cycles.pid}{f' on {cycles.host}' if cycles.host else ''})"
    if cycles.late:
        what = "iris loop start" if cycles.by == LOOP else "is it suspended?"
        return f"cycles: {who} is late, {last}: {what}"
    return f"cycles: {who}, {last}"


def trouble_lines(cycles: Cycles) -> list[str]:
    """Return what the background loop can't do, a line each with the fix."""
    return [f"background loop: {each}" for each in cycles.troubles]


def fix_of(trouble: str) -> str:
    """The command that a trouble of the loop names, or the one that shows its log."""
    named = [each for each in ("iris loop start", VALIDATE) if each in trouble]
    return named[0] if named else "iris loop show"


def _nobody(cycles: Cycles) -> str:
    if cycles.last is None:
        return (
            f"nobody runs cycles, and none ran yet: {cycles.fix if cycles.needed else 'iris schedule --once'}"
        )
    age = format_duration(cycles.last)
    if not cycles.needed:
        return f"no job is open, last cycle {age} ago"
    return f"nobody runs cycles: what is shown is {age} old: {cycles.fix}"
