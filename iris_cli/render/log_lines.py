"""Log lines of many ranks on one terminal: prefixed, coloured, and folded where ranks say the same."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iris_cli.core.dataclass import dataclass
from iris_cli.core.ids import TaskId
from iris_cli.ops.log_reading import BOTH, LogLine
from iris_cli.ops.logs import TaskLog
from iris_cli.render.clean import clean_line
from iris_cli.render.console import SCHEMA_VERSION, Output
from iris_cli.render.fold import fold

if TYPE_CHECKING:
    from iris_cli.ops.follow import Step

_COLORS = ("cyan", "yellow", "green", "magenta", "blue", "red")
_SGR = re.compile(r"\x1b\[[0-9;:]*m")  # colours of the program: left out rather than made visible


def show(output: Output, logs: Sequence[TaskLog], *, folded: bool = True) -> None:
    """The logs of tasks as they are now, and why some are missing."""
    if output.as_json:
        output.document({"tasks": [_document(log) for log in logs]})
        return
    printer = LogPrinter(output, prefixed=len(logs) > 1, folded=folded)
    printer.show(line for log in logs for line in log.lines)
    printer.tell([(log.task, log.note) for log in logs if log.note])


@dataclass
class LogPrinter:
    """Prints lines by rank. A single task needs no prefix; `folded` joins equal lines of several ranks."""

    output: Output
    prefixed: bool = True
    folded: bool = True

    def step(self, step: Step) -> None:
        """What is new of logs that are followed: lines of text, or of JSON."""
        self.tell(step.notes)
        if self.output.as_json:
            for line in step.lines:
                self.output.line(json.dumps({"schema_version": SCHEMA_VERSION, **_line(line)}))
        else:
            self.show(step.lines)
        self.output.flush()

    def show(self, lines: Iterable[LogLine]) -> None:
        """What each rank said, in the order in which it said it; one stream after the other."""
        streams: dict[str, dict[int, list[str]]] = {name: {} for name in BOTH}
        for line in lines:
            streams[line.stream].setdefault(line.rank, []).append(line.text)
        for by_rank in streams.values():
            for ranks, text in merged(by_rank) if self.folded else _one_by_one(by_rank):
                self._print(ranks, readable(text))

    def tell(self, notes: Iterable[tuple[TaskId, str]]) -> None:
        """What is to be said of tasks, beside the result; once where it is the same."""
        tasks: dict[str, list[str]] = {}
        for task, text in notes:
            tasks.setdefault(text, []).append(str(task))
        self.output.flush()
        for text, names in tasks.items():
            self.output.message(f"{fold(names)}: {text}")

    def _print(self, ranks: tuple[int, ...], text: str) -> None:
        if not self.prefixed:
            self.output.line(text)
            return
        prefix = rank_prefix(ranks)
        if not self._is_colorful:
            self.output.line(f"{prefix} {text}")
            return
        from rich.text import Text

        style = _COLORS[ranks[0] % len(_COLORS)] if len(ranks) == 1 else "bold"
        # The terminal wraps the line, so that it is copied as one.
        self.output.console.print(Text.assemble((prefix, style), f" {text}"), soft_wrap=True)

    @property
    def _is_colorful(self) -> bool:
        return self.output.color and not os.environ.get("NO_COLOR") and sys.stdout.isatty()


def readable(text: str) -> str:
    """A line of a program as it may be shown: without its colours, every other control visible."""
    return clean_line(_SGR.sub("", text).expandtabs())


def rank_prefix(ranks: Sequence[int]) -> str:
    """`[3]`, `[0-3,7]`."""
    return f"[{ranks[0]}]" if len(ranks) == 1 else fold(map(str, ranks))


def merged(lines: Mapping[int, Sequence[str]]) -> Iterator[tuple[tuple[int, ...], str]]:
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


def _document(log: TaskLog) -> dict[str, Any]:
    return {
        "task": str(log.task),
        "rank": log.task.index,
        "state": log.state,
        "attempt": log.attempt,
        "worker": log.worker,
        "answered": log.silence is None,
        "kept": log.kept,
        "note": log.note,
        "lines": [{"stream": line.stream, "text": line.text} for line in log.lines],
    }


def _line(line: LogLine) -> dict[str, Any]:
    return {
        "task": str(line.attempt.task),
        "rank": line.rank,
        "attempt": line.attempt.number,
        "stream": line.stream,
        "text": line.text,
    }
