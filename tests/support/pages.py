"""Pages with tested consoles: their commands are run, and the output is compared or rewritten.

A line that begins with `$ ` is a command, continued on the next line after a backslash; the lines after it are its
output. `<!-- lab: words -->` between consoles is an instruction for the test, which readers do not see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_CONSOLE = re.compile(r"^```console\n(.*?)^```$|^<!-- lab: (.*?) -->$", re.MULTILINE | re.DOTALL)
_ANSWER = re.compile(r"\[y/N\]: ?(\S*)$", re.MULTILINE)

VOLATILE = (
    (re.compile(r"SHA256:[A-Za-z0-9+/]{43}"), "<fingerprint>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?\b"), "<time>"),
    (re.compile(r"\b(\d+(\.\d+)?(ms|[smhd]))+\b"), "<duration>"),
    (re.compile(r"<duration> to <duration>"), "<duration>"),  # lines of several ranks
    (re.compile(r"\b\d+(\.\d+)?([KMGT]i)?B\b|\b\d+ cores\b"), "<size of this machine>"),
    (re.compile(r"\b\d+ transactions\b"), "<transactions>"),  # depends on which answers arrive together
    (re.compile(r"\b[0-9a-f]{12}\b"), "<hash>"),  # hash of a directory with file times
    (re.compile(r"^background loop started .*\n", re.MULTILINE), ""),  # missing while an earlier one runs
    (re.compile(r"^(cycles: .*|no job is open, .*)$", re.MULTILINE), "<who runs cycles>"),
    (re.compile(r"^(ok    cycles: ).*$", re.MULTILINE), r"\1<who runs cycles>"),
    (re.compile(r" {2,}"), "  "),  # column widths depend on the content
    (re.compile(r" +$", re.MULTILINE), ""),
)
"""Text that differs between runs or machines."""


@dataclass(frozen=True)
class Step:
    """A command of a page, or an instruction for the test; `shown` is the output on the page."""

    typed: str = ""
    shown: str = ""
    aside: str = ""

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(answer or "y" for answer in _ANSWER.findall(self.shown))


def steps(text: str) -> Iterator[Step]:
    """Return the commands of a page in order."""
    for match in _CONSOLE.finditer(text):
        if match[2]:
            yield Step(aside=match[2])
        else:
            yield from _commands(match[1])


def rewritten(text: str, act: Callable[[Step], str]) -> str:
    """Return the page with the output of `act` for each command. Output that differs only in volatile text is kept."""

    def anew(match: re.Match[str]) -> str:
        if match[2]:
            act(Step(aside=match[2]))
            return match[0]
        blocks = []
        for step in _commands(match[1]):
            shown = act(step)
            blocks.append(f"$ {step.typed}\n{step.shown if same(step.shown, shown) else shown}")
        return f"```console\n{''.join(blocks)}```"

    return _CONSOLE.sub(anew, text)


def same(one: str, other: str) -> bool:
    return steady(one) == steady(other)


def steady(text: str) -> str:
    """Return the text without volatile parts."""
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text


def _commands(console: str) -> Iterator[Step]:
    lines = console.splitlines(keepends=True)
    while lines:
        typed = [lines.pop(0).removeprefix("$ ")]
        while typed[-1].endswith("\\\n"):
            typed.append(lines.pop(0))
        shown = []
        while lines and not lines[0].startswith("$ "):
            shown.append(lines.pop(0))
        yield Step(typed="".join(typed).rstrip("\n"), shown="".join(shown))
