"""Signals that a task can be told of its end by: `USR1@120`, two minutes before its time limit."""

from __future__ import annotations

from iris_cli.core.dataclass import dataclass
from iris_cli.core.ids import clip
from iris_cli.core.units import parse_duration
from iris_cli.errors import UsageError

DEFAULT_LEAD = 60.0

_NAMES = ("USR1", "USR2", "HUP", "INT", "QUIT", "TERM", "ALRM", "CONT", "URG", "WINCH", "XCPU")
"""Those that can mean something to a program, under the names that every shell's `kill` knows."""


@dataclass(frozen=True, slots=True)
class EarlySignal:
    """The processes of a task get the signal `lead` seconds before its time limit. `name` is without SIG."""

    name: str
    lead: float = DEFAULT_LEAD


def parse_early_signal(text: str) -> EarlySignal:
    """From `USR1@120`, `SIGUSR1@2m`, or `USR1` alone: a minute before. Raises UsageError."""
    name, sign, lead = text.partition("@")
    name = name.strip().upper().removeprefix("SIG")
    if name not in _NAMES:
        raise UsageError(
            f"{clip(text)!r} names no signal", hint=f"write USR1@120, or one of {', '.join(_NAMES)}"
        )
    seconds = parse_duration(lead) if sign else DEFAULT_LEAD
    if seconds <= 0:
        raise UsageError(
            f"{clip(text)!r} comes too late", hint="write how long before the time limit: USR1@120"
        )
    return EarlySignal(name, seconds)
