"""Log lines of many ranks on one terminal: prefixed, coloured, and folded where ranks say the same."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from iris_cli.render.clean import clean_line
from iris_cli.render.console import Output

_COLORS = ("cyan", "yellow", "green", "magenta", "blue", "red")
_SGR = re.compile(r"\x1b\[[0-9;:]*m")  # colours of the program: left out rather than made visible


@dataclass
class LogPrinter:
    """Prints lines by rank. A single task needs no prefix; `folded` joins equal lines of several ranks."""

    output: Output
    prefixed: bool = True
    folded: bool = True

    def show(self, lines: Mapping[int, Sequence[str]]) -> None:
        """Print what each rank said, in the order in which it said it."""
        for ranks, text in fold(lines) if self.folded else _one_by_one(lines):
            self._print(ranks, readable(text))
        self.output.flush()

    def _print(self, ranks: tuple[int, ...], text: str) -> None:
        prefix = f"[{rank_ranges(ranks)}]" if self.prefixed else ""
        if prefix and self._is_colorful:
            from rich.text import Text

            style = _COLORS[ranks[0] % len(_COLORS)] if len(ranks) == 1 else "bold"
            line = Text.assemble((prefix, style), f" {text}")
            self.output.console.print(line, soft_wrap=True)  # the terminal wraps, and copies as one line
        else:
            self.output.line(f"{prefix} {text}" if prefix else text)

    @property
    def _is_colorful(self) -> bool:
        return self.output.color and "NO_COLOR" not in os.environ and sys.stdout.isatty()


def readable(text: str) -> str:
    """A line of a program as it may be shown: without its colours, every other control visible."""
    return clean_line(_SGR.sub("", text).expandtabs())


def rank_ranges(ranks: Iterable[int]) -> str:
    """Ranks in ascending order, as people write them: `0-3,7`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def fold(lines: Mapping[int, Sequence[str]]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Merge the lines of ranks: each rank's order stays, and equal lines of several ranks become one.

    A line waits while another rank has the same one still to come; the lowest rank that need not wait goes
    first, and where all wait for each other the lowest of all.
    """
    rest = {rank: deque(lines[rank]) for rank in sorted(lines) if lines[rank]}
    left = {rank: Counter(texts) for rank, texts in rest.items()}
    holders = Counter(text for counts in left.values() for text in counts)
    at_head: defaultdict[str, list[int]] = defaultdict(list)
    for rank, texts in rest.items():
        at_head[texts[0]].append(rank)
    while rest:
        heads = (texts[0] for texts in rest.values())
        ready = (text for text in heads if holders[text] == len(at_head[text]))
        text = next(ready, next(iter(rest.values()))[0])
        together = sorted(at_head.pop(text))
        yield tuple(together), text
        for rank in together:
            rest[rank].popleft()
            left[rank][text] -= 1
            holders[text] -= not left[rank][text]
            if rest[rank]:
                at_head[rest[rank][0]].append(rank)
            else:
                del rest[rank]


def _one_by_one(lines: Mapping[int, Sequence[str]]) -> Iterator[tuple[tuple[int, ...], str]]:
    for rank in sorted(lines):
        for text in lines[rank]:
            yield (rank,), text
