"""The form of a rule: messages or exit statuses of a failure, its cause, and its fix."""

from __future__ import annotations

from msgspec import Struct

from iris_cli.core.model.task import EndReason


class Rule(Struct, frozen=True, kw_only=True):
    """A rule for one cause. It matches a line of output that contains a message of `text`.

    It also matches an end by `signal`, with an exit code in `exits` or with a reason in `reasons`. In a message, `*`
    matches any characters, and a leading line feed matches the start of the line. `source` is the page that documents
    the failure. `next` is a command with the placeholders {job}, {task} and {worker}, and {longer} for twice the time
    limit; `all_shown` replaces it if the whole output is shown. `echo`: another rank caused the failure. A match of a
    rule without `echo`, on any rank, has precedence.
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
