"""Failures with a known cause: rules on a task's last output and its end.

Matching is a plain search in bounded text, so no output, however hostile, takes long.
"""

from __future__ import annotations

from collections.abc import Set
from functools import cache

from msgspec import Struct

from iris_cli.core.known_causes.rule import Rule
from iris_cli.core.model.task import INFRASTRUCTURE, PROGRAM_FAILURES, End, signal_of

MOST_SEARCHED = 1 << 16
"""Number of characters at the end of a text that are searched."""

LONGEST_LINE = 300
"""Maximum length of the shown part of the matching line."""


class KnownCause(Struct, frozen=True, kw_only=True):
    """The cause of a failure, its fix, and the source. `line` is the matching line, '' for a match of the exit status.

    `next` is a template of a command that shows more; `all_shown` replaces it if the task's whole output is shown
    (see `Rule`); '' if absent.
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
    """Return the cause of an end by the text before it: the first matching rule, or None.

    A task's output says nothing about the end of its host.
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
    """Return all rules, the most specific first: iris's own facts, then libraries, the system, and exit statuses.

    Rules that only report the failure of another rank follow all more specific rules.
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
    """Return the matching line, '' if the end itself matches, None if the rule doesn't match."""
    for saying in rule.says:
        if _whole_word(saying) not in words:
            continue  # the text can't contain it; this check is much faster than a search
        if (line := _line_with(saying, said)) is not None:
            return line
    by_code = end.exit_code in rule.exits and end.reason in PROGRAM_FAILURES
    by_signal = bool(rule.signal) and signal_of(end) == rule.signal
    return "" if end.reason in rule.reasons or by_code or by_signal else None


@cache
def _whole_word(saying: str) -> str:
    """Return the longest word that is always surrounded by blanks in a match; '' if absent."""
    words = (word for piece in saying.split("*") for word in piece.split(" ")[1:-1])
    return max(words, key=len, default="")


def _line_with(saying: str, text: str) -> str | None:
    """Return the first line with all pieces of a saying in order, cut for display; or None."""
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
    """Return a line cut to the maximum length so that position `at` is visible."""
    start = at if len(line) > LONGEST_LINE and at > LONGEST_LINE // 3 else 0
    cut = line[start : start + LONGEST_LINE]
    return ("…" if start else "") + cut.strip() + ("…" if start + LONGEST_LINE < len(line) else "")
