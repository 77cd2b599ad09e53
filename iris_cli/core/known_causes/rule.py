"""The form of a rule: messages or exit statuses of a failure, its cause, and its fix."""

from __future__ import annotations

from msgspec import Struct

from iris_cli.core.model.task import EndReason


class Rule(Struct, frozen=True, kw_only=True):
    """A rule matches output with a message in `text`, or an end by `signal`, with a code in `exits`, or in `reasons`.

    A message must be within one line of output. In a message, `*` matches any characters, and a leading line feed
    matches the start of the line. `source` is the page that documents the failure. `next` is a command with the
    placeholders {job}, {task} and {worker}, and {longer} for twice the time limit. If the whole output is shown,
    `all_shown` replaces `next`. `echo`: another rank caused the failure. Other rules have precedence over echoes, even
    if they match on another rank.
    """

    name: str
    text: tuple[str, ...] = ()
    exits: tuple[int, ...] = ()
    signal: str = ""
    reasons: tuple[EndReason, ...] = ()
    cause: str
    fix: str
    source: str
    next: str = ""
    all_shown: str = ""
    echo: bool = False
