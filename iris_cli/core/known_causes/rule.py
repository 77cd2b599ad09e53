"""What one rule knows: the words of a failure, what is behind them, and what helps."""

from __future__ import annotations

from msgspec import Struct

from iris_cli.core.model.task import EndReason


class Rule(Struct, frozen=True, kw_only=True):
    """It fits what says one of `says`, was ended by `signal`, or ended with one of `exits` or for one of `reasons`.

    `says`: what stands in one line as it is; `*` for anything between, a line feed first for the beginning of the
    line. `source` is the page that tells of it; `next` is a command, with {job}, {task} and {worker} for those it is
    about, {longer} for twice its time limit; `all_shown` takes its place if the card shows all that the task has
    written. An `echo` says that another rank failed: a rule that is none wins, also one that fits another rank.
    """

    name: str
    says: tuple[str, ...] = ()
    exits: tuple[int, ...] = ()
    signal: str = ""
    reasons: tuple[EndReason, ...] = ()
    cause: str
    fix: str
    source: str
    next: str = ""
    all_shown: str = ""
    echo: bool = False
