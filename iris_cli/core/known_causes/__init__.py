"""Failures whose cause others have found before: rules on what a task said last, and how it ended.

Matching is plain search in a bounded text, so that no output, however hostile, takes more than moments.
"""

from __future__ import annotations

from collections.abc import Set
from functools import cache

from msgspec import Struct

from iris_cli.core.known_causes.rule import Rule
from iris_cli.core.model.task import INFRASTRUCTURE, PROGRAM_FAILURES, End, signal_of

MOST_SEARCHED = 1 << 16
"""How many of the last characters of a text are searched."""

LONGEST_LINE = 300
"""How much of the line that gave a cause away is shown."""


class KnownCause(Struct, frozen=True, kw_only=True):
    """What is behind a failure, what helps, and where that is told. `line` is what gave it away, '' for an exit status.

    `next` is a command that tells more, as a template, and `all_shown` takes its place if nothing that the task has
    written is left to show (see `Rule`); '' if there is none.
    """

    name: str
    cause: str
    fix: str
    source: str
    line: str
    next: str
    all_shown: str
    echo: bool


def known_cause(end: End, text: str) -> KnownCause | None:
    """The cause of an end, by what was said before it: the first rule that fits, or None.

    What a task said tells nothing of the end of its host.
    """
    said = end.error if end.reason in INFRASTRUCTURE else f"{end.error}\n{text[-MOST_SEARCHED:]}"
    words = {"", *said.split()}
    for rule in rules():
        line = _fits(rule, end, said, words)
        if line is not None:
            return KnownCause(
                name=rule.name,
                cause=rule.cause,
                fix=rule.fix,
                source=rule.source,
                line=line,
                next=rule.next,
                all_shown=rule.all_shown,
                echo=rule.echo,
            )
    return None


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, the most telling first: what iris knows by itself, words of a library, of the system, exit statuses.

    What only says that another rank failed comes behind whatever says more.
    """
    from iris_cli.core.known_causes.containers import CONTAINERS
    from iris_cli.core.known_causes.exits import EXITS, HOSTS, OUT_OF_MEMORY, TIME_LIMIT
    from iris_cli.core.known_causes.host import ACCESS, HOST
    from iris_cli.core.known_causes.libraries import ECHOES, JAX, TORCH
    from iris_cli.core.known_causes.multi_host import MULTI_HOST, MULTI_HOST_ECHOES
    from iris_cli.core.known_causes.tpu import TPU

    causes = (OUT_OF_MEMORY, *HOSTS, *CONTAINERS, *TPU, *MULTI_HOST, *JAX, *TORCH, *ACCESS, *HOST)
    return (*causes, *MULTI_HOST_ECHOES, *ECHOES, TIME_LIMIT, *EXITS)


def _fits(rule: Rule, end: End, said: str, words: Set[str]) -> str | None:
    """The line that gives it away, '' if the end itself does, None if it doesn't fit."""
    for saying in rule.says:
        if _whole_word(saying) not in words:
            continue  # the text can't have it, which is known far sooner than by a search
        if (line := _line_with(saying, said)) is not None:
            return line
    by_code = end.exit_code in rule.exits and end.reason in PROGRAM_FAILURES
    by_signal = bool(rule.signal) and signal_of(end) == rule.signal
    return "" if end.reason in rule.reasons or by_code or by_signal else None


@cache
def _whole_word(saying: str) -> str:
    """The longest word that stands alone in what has that saying, with blanks on both sides; '' if none does."""
    words = (word for piece in saying.split("*") for word in piece.split(" ")[1:-1])
    return max(words, key=len, default="")


def _line_with(saying: str, text: str) -> str | None:
    """The first line that has all pieces of a saying in their order, cut to what can be shown."""
    first, *others = saying.split("*")
    at = text.find(first)
    while at >= 0:
        start, end = text.rfind("\n", 0, at + 1) + 1, text.find("\n", at + 1)
        end = len(text) if end < 0 else end
        if _has_all(others, text, at + len(first), end):
            return _cut(text[start:end], max(0, at - start))
        at = text.find(first, end)
    return None


def _has_all(pieces: list[str], text: str, at: int, end: int) -> bool:
    for piece in pieces:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _cut(line: str, at: int) -> str:
    """A line of bearable length, in which that place can be seen."""
    start = at if len(line) > LONGEST_LINE and at > LONGEST_LINE // 3 else 0
    cut = line[start : start + LONGEST_LINE]
    return ("…" if start else "") + cut.strip() + ("…" if start + LONGEST_LINE < len(line) else "")
