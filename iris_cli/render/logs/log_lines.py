"""Log lines of many ranks on one terminal: prefixed, coloured, and folded where ranks say the same."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from iris_cli.core.ids import TaskId, WorkerId
from iris_cli.ops.logs.log_reading import BOTH, LogText
from iris_cli.ops.logs.logs import TaskLog
from iris_cli.render.console import Output
from iris_cli.render.fold import fold
from iris_cli.render.logs.log_fold import Block, LiveFold, merged

if TYPE_CHECKING:
    from iris_cli.ops.logs.follow import Step

_COLORS = ("cyan", "yellow", "green", "magenta", "blue", "red")
_SGR = re.compile(r"\x1b\[[0-9;:]*m")  # colours of the program: left out rather than made visible
_WORKER = re.compile(r"(?:(?<=^worker )|(?<=from worker )|(?<=on worker ))[^\s;]+")


class StreamLine(Struct, frozen=True):
    """One line that a task wrote. `stream` is `out` or `err`."""

    stream: str
    text: str


class TaskLines(Struct, frozen=True, kw_only=True):
    """The log of one task. `attempt` and `worker` are null if the task was never placed.

    `kept`: the lines are the end that the event log keeps; `pulled`: they were pulled before. `note` explains
    missing lines.
    """

    task: TaskId
    rank: int
    state: str
    attempt: int | None
    worker: WorkerId | None
    answered: bool
    kept: bool
    pulled: bool
    note: str
    lines: Sequence[StreamLine]


class LogsDocument(Struct, frozen=True):
    """The result of `iris logs`."""

    tasks: Sequence[TaskLines]


class LineDocument(Struct, frozen=True):
    """One line of a log, as `--follow` prints it. `attempt` is the number of the attempt."""

    task: TaskId
    rank: int
    attempt: int
    stream: str
    text: str


def show(output: Output, logs: Sequence[TaskLog], *, folded: bool = True) -> None:
    """The logs of tasks as they are now, and why some are missing."""
    if output.as_json:
        output.document(LogsDocument([_document(log) for log in logs]))
        return
    printer = LogPrinter(output, prefixed=len(logs) > 1, folded=folded)
    printer.show(logs)
    printer.notes(logs)


class LogPrinter(Struct):
    """Prints lines by rank. A single task needs no prefix; `folded` joins equal lines of several ranks."""

    output: Output
    prefixed: bool = True
    folded: bool = True
    _live: dict[str, LiveFold] = field(default_factory=lambda: {name: LiveFold() for name in BOTH})
    _painted: dict[tuple[int, ...], str] = field(default_factory=dict)

    def show(self, logs: Iterable[TaskLog]) -> None:
        """What each rank said, in the order in which it said it; one stream after the other."""
        for name in BOTH:
            texts = {
                log.task.index: "".join(f"{line.text}\n" for line in log.lines if line.stream == name)
                for log in logs
            }
            self._print(merged(texts) if self.folded else _one_by_one(texts))

    def step(self, step: Step) -> None:
        """What is new of logs that are followed: lines of text, or of JSON."""
        self.tell(step.notes)
        if self.output.as_json:
            self.output.in_lines = True
            for line in step.lines:
                task = line.attempt.task
                self.output.document(
                    LineDocument(task, task.index, line.attempt.number, line.stream, line.text)
                )
        else:
            for name, live in self._live.items():
                texts = _by_rank(text for text in step.texts if text.stream == name)
                if not self.folded:
                    self._print(_one_by_one(texts))
                elif texts or step.is_turn:  # else nobody had the chance to say what others wait for
                    self._print(live.add(texts))
        self.output.flush()

    def close(self) -> None:
        """Nothing more will come: show what waits for others that may say the same."""
        for live in self._live.values():
            self._print(live.flush())
        self.output.flush()

    def notes(self, logs: Iterable[TaskLog]) -> None:
        """Print why tasks have no lines, to stderr. With --quiet only for workers that did not answer."""
        noted = [log for log in logs if log.note]
        self.tell((log.task, log.note) for log in noted if log.silence is None)
        self.tell(((log.task, log.note) for log in noted if log.silence is not None), self.output.warning)

    def tell(self, notes: Iterable[tuple[TaskId, str]], printed: Callable[[str], None] | None = None) -> None:
        """What is to be said of tasks, beside the result; once where it is the same but for the worker's name."""
        printed = printed or self.output.message
        alike: dict[str, list[tuple[str, str]]] = {}
        for task, text in notes:
            alike.setdefault(_WORKER.sub("", text, count=1), []).append((str(task), text))
        self.output.flush()
        for same in alike.values():
            workers = fold(name for _, text in same for name in _WORKER.findall(text)[:1])
            text = workers.join(_WORKER.split(same[0][1], maxsplit=1))
            printed(f"{fold(task for task, _ in same)}: {text}")

    def _print(self, blocks: Iterable[Block]) -> None:
        for ranks, text in blocks:
            self.output.lines(readable(text), self._prefix(ranks) if self.prefixed else "")

    def _prefix(self, ranks: tuple[int, ...]) -> str:
        if ranks not in self._painted:
            self._painted[ranks] = f"{self._paint(rank_prefix(ranks), ranks)} "
        return self._painted[ranks]

    def _paint(self, prefix: str, ranks: tuple[int, ...]) -> str:
        if not self._is_colorful:
            return prefix
        from rich.text import Text

        console = self.output.console
        with console.capture() as painted:
            console.print(
                Text(prefix, _COLORS[ranks[0] % len(_COLORS)] if len(ranks) == 1 else "bold"),
                end="",
                soft_wrap=True,
            )
        return painted.get()

    @property
    def _is_colorful(self) -> bool:
        return self.output.color and not os.environ.get("NO_COLOR") and sys.stdout.isatty()


def readable(text: str) -> str:
    """Lines of a program without its colours and tabs; what else is no text the output makes visible."""
    if "\x1b" in text:
        text = _SGR.sub("", text)
    return text.expandtabs() if "\t" in text else text


def rank_prefix(ranks: Sequence[int]) -> str:
    """`[3]`, `[0-3,7]`."""
    return f"[{ranks[0]}]" if len(ranks) == 1 else fold(map(str, ranks))


def _by_rank(texts: Iterable[LogText]) -> dict[int, str]:
    found: dict[int, str] = {}
    for text in texts:
        found[text.rank] = found.get(text.rank, "") + text.text
    return found


def _one_by_one(texts: Mapping[int, str]) -> Iterator[Block]:
    return (((rank,), texts[rank]) for rank in sorted(texts) if texts[rank])


def _document(log: TaskLog) -> TaskLines:
    return TaskLines(
        task=log.task,
        rank=log.task.index,
        state=log.state,
        attempt=log.attempt,
        worker=log.worker,
        answered=log.silence is None,
        kept=log.kept,
        pulled=log.pulled,
        note=log.note,
        lines=[StreamLine(line.stream, line.text) for line in log.lines],
    )
