"""The form of a rule: the words of a failure, its cause, and its fix."""

from __future__ import annotations

from msgspec import Struct

from iris_cli.core.model.task import EndReason


class Rule(Struct, frozen=True, kw_only=True):
    """A rule matches a text with one of `says`, an end by `signal`, one of `exits`, or one of `reasons`.

    `says`: literal text within one line; `*` matches any text, a leading line feed the beginning of the line.
    `source` is the page that documents it; `next` is a command with {job}, {task} and {worker} of the failure and
    {longer} for twice its time limit; `all_shown` replaces it if the whole output is shown. An `echo` reports the
    failure of another rank: rules that are no echo have precedence, even on other ranks.
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
