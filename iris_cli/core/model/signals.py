"""Signals that a task can be told of its end by: `USR1@120`, two minutes before its time limit."""

from __future__ import annotations

from types import MappingProxyType

from iris_cli.core.ids import clip
from iris_cli.core.nearest import did_you_mean
from iris_cli.core.structs import Value
from iris_cli.core.units import parse_duration
from iris_cli.errors import UsageError

DEFAULT_LEAD = 60.0

SIGNALS = MappingProxyType(
    {"USR1": 10, "USR2": 12, "HUP": 1, "INT": 2, "QUIT": 3, "TERM": 15, "ALRM": 14, "CONT": 18}
    | {"URG": 23, "WINCH": 28, "XCPU": 24}
)
"""Those that can mean something to a program: names that every shell's `kill` knows, with their numbers on Linux."""


class EarlySignal(Value, frozen=True):
    """The processes of a task that wait for the signal get it `lead` seconds before its time limit.

    `name` is without SIG.
    """

    name: str
    lead: float = DEFAULT_LEAD


def parse_early_signal(text: str) -> EarlySignal:
    """From `USR1@120`, `SIGUSR1@2m`, or `USR1` alone: a minute before. Raises UsageError."""
    name, sign, lead = text.partition("@")
    name = name.strip().upper().removeprefix("SIG")
    if name not in SIGNALS:
        raise UsageError(
            f"{clip(text)!r} names no signal",
            hint=did_you_mean(clip(name), SIGNALS) or f"write USR1@120, or one of {', '.join(SIGNALS)}",
        )
    seconds = parse_duration(lead) if sign else DEFAULT_LEAD
    if seconds <= 0:
        raise UsageError(
            f"{clip(text)!r} comes too late", hint="write how long before the time limit: USR1@120"
        )
    return EarlySignal(name, seconds)
