"""Find the known cause of a failure, by rules on the task's end and its last output.

Matching is a plain search in text of limited length, so no output can make it slow.
"""

from collections.abc import Set
from functools import cache
from typing import NamedTuple

from msgspec import Struct

from iris_cli.core.model.task import INFRASTRUCTURE, PROGRAM_FAILURES, End, EndReason, signal_of

MAX_SEARCHED = 1 << 16  # maximum number of characters searched, at the end of a text
MAX_LINE = 300  # maximum number of characters shown of the matching line


class Rule(Struct, frozen=True, kw_only=True):
    """A rule for one cause. It matches a line of output that contains a message of `text`.

    It also matches an end by `signal`, with an exit code in `exits` or with a reason in `reasons`. In a message, `*`
    matches any characters, and a leading line feed matches the start of the line. `source` is the page that documents
    the failure. `next` is a command with the placeholders {job}, {task}, {worker}, {longer} for twice the exceeded
    time limit, and {variable} for the variable that is not set; `all_shown` replaces it if the whole output is shown.
    `echo`: another rank caused the failure. A match of a rule without `echo`, on any rank, has precedence.
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


class KnownCause(NamedTuple):
    """The first rule that matches a failure, and the matching line of text; '' if the rule matches the end itself."""

    rule: Rule
    line: str


def known_cause(end: End, text: str) -> KnownCause | None:
    """Return the first rule that matches an end, its error or the last output `text`; None if no rule matches.

    The output is ignored if the task ended because of its host.
    """
    searched = end.error if end.reason in INFRASTRUCTURE else f"{end.error}\n{text[-MAX_SEARCHED:]}"
    words = {"", *searched.split()}
    for rule in rules():
        line = _match(rule, end, searched, words)
        if line is not None:
            return KnownCause(rule, line)
    return None


@cache
def rules() -> tuple[Rule, ...]:
    """Return all rules, the most specific first: facts that iris knows, then libraries, the system, exit statuses.

    Rules for errors that another rank caused (echoes) come after the rules for libraries and the system.
    """
    from iris_cli.core.known_causes import host
    from iris_cli.core.known_causes.libraries import ECHOES, JAX, TORCH, TPU
    from iris_cli.core.known_causes.multi_host import MULTI_HOST, MULTI_HOST_ECHOES

    libraries = (*TPU, *MULTI_HOST, *JAX, *TORCH)
    causes = (host.OUT_OF_MEMORY, *host.HOSTS, *host.CONTAINERS, *libraries, *host.ACCESS, *host.HOST)
    return (*causes, *MULTI_HOST_ECHOES, *ECHOES, host.TIME_LIMIT, *host.EXITS)


def _match(rule: Rule, end: End, searched: str, words: Set[str]) -> str | None:
    """Return the matching line, '' if the end itself matches, None if the rule doesn't match."""
    for message in rule.text:
        if _longest_whole_word(message) not in words:
            continue  # the text can't contain the message; this check is much faster than a search
        if (line := _find_line(message, searched)) is not None:
            return line
    by_code = end.exit_code in rule.exits and end.reason in PROGRAM_FAILURES
    by_signal = bool(rule.signal) and signal_of(end) == rule.signal
    return "" if end.reason in rule.reasons or by_code or by_signal else None


@cache
def _longest_whole_word(message: str) -> str:
    """Return the longest word of a rule's message that has a blank on each side; '' if absent."""
    words = (word for piece in message.split("*") for word in piece.split(" ")[1:-1])
    return max(words, key=len, default="")


def _find_line(message: str, text: str) -> str | None:
    """Return the first line that contains a rule's message, shortened for display; None if no line does."""
    first, *others = message.split("*")
    at = text.find(first)
    while at >= 0:
        start, end = text.rfind("\n", 0, at + 1) + 1, text.find("\n", at + 1)
        end = len(text) if end < 0 else end
        if _has_pieces_in_order(others, text, at + len(first), end):
            return _shorten(text[start:end], max(0, at - start))
        at = text.find(first, end)
    return None


def _has_pieces_in_order(pieces: list[str], text: str, at: int, end: int) -> bool:
    for piece in pieces:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _shorten(line: str, at: int) -> str:
    """Return a line shortened to the maximum length, with position `at` visible."""
    start = at if len(line) > MAX_LINE and at > MAX_LINE // 3 else 0
    cut = line[start : start + MAX_LINE]
    return ("…" if start else "") + cut.strip() + ("…" if start + MAX_LINE < len(line) else "")
