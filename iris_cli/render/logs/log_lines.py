"""Print the lines of many ranks: all lines with prefixes, equal lines folded, or only the differences."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from iris_cli.core import TaskId, WorkerId, count, format_duration, group_pairs
from iris_cli.ops.logs.log_diff import Deviation, StreamDiff
from iris_cli.ops.logs.log_reading import BOTH, LineCutter, LogText
from iris_cli.ops.logs.logs import TaskLog
from iris_cli.ops.workers.execute import CommandResult
from iris_cli.render.console import Output
from iris_cli.render.logs.log_fold import Block, LiveFold, merge_lines
from iris_cli.render.tables import duration, fold, group_by_text

if TYPE_CHECKING:
    from iris_cli.ops.logs.follow import Step

_COLORS = ("cyan", "yellow", "green", "magenta", "blue", "red")
_SGR = re.compile(r"\x1b\[[0-9;:]*m")  # colour codes, removed because `clean` would print them as text
_WORKER = re.compile(r"(?:(?<=^worker )|(?<=from worker )|(?<=on worker ))[^\s;]+")


class StreamLine(Struct, frozen=True):
    """One line that a task wrote. `stream` is `out` or `err`."""

    stream: str
    text: str


class TaskLines(Struct, frozen=True, kw_only=True):
    """The log of one task. `attempt` and `worker` are null if the task was never placed.

    `kept`: true if only the last lines are left, in the event log. `pulled`: true if the lines are from a copy that
    `iris pull` made. `note` explains missing lines.
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


def show_logs(output: Output, logs: Sequence[TaskLog], *, folded: bool = True) -> None:
    """Print the logs of tasks, and why the log of a task is missing."""
    if output.as_json:
        output.document(LogsDocument([_document(log) for log in logs]))
        return
    printer = LogPrinter(output, prefixed=len(logs) > 1, folded=folded)
    printer.show(logs)
    printer.notes(logs)


class LogPrinter(Struct):
    """Prints lines of ranks. `prefixed`: print the ranks before each line. `folded`: print equal lines once."""

    output: Output
    prefixed: bool = True
    folded: bool = True
    _live: dict[str, LiveFold] = field(default_factory=lambda: {name: LiveFold() for name in BOTH})
    _painted_prefixes: dict[tuple[int, ...], str] = field(default_factory=dict)

    def show(self, logs: Iterable[TaskLog]) -> None:
        """Print the lines of all ranks: first stdout, then stderr."""
        for name in BOTH:
            texts = {
                log.task.index: "".join(f"{line.text}\n" for line in log.lines if line.stream == name)
                for log in logs
            }
            self._print(merge_lines(texts) if self.folded else _unfolded_blocks(texts))

    def step(self, step: "Step") -> None:
        """Print the new lines of followed logs, as text or as JSON lines."""
        self.print_notes(step.notes)
        if self.output.as_json:
            self.output.compact_json = True
            for line in step.lines:
                task = line.attempt.task
                self.output.document(
                    LineDocument(task, task.index, line.attempt.number, line.stream, line.text)
                )
        else:
            for name, live in self._live.items():
                texts = _join_by_rank(text for text in step.texts if text.stream == name)
                if not self.folded:
                    self._print(_unfolded_blocks(texts))
                elif texts or step.is_full_poll:  # until then, peers may write the same lines
                    self._print(live.add(texts))
        self.output.flush()

    def close(self) -> None:
        """Print the lines that still wait for other ranks."""
        for live in self._live.values():
            self._print(live.flush())
        self.output.flush()

    def notes(self, logs: Iterable[TaskLog]) -> None:
        """Print to stderr why tasks have no lines. With --quiet, print only the notes on silent workers."""
        noted = [log for log in logs if log.note]
        self.print_notes((log.task, log.note) for log in noted if log.silence is None)
        self.print_notes(
            ((log.task, log.note) for log in noted if log.silence is not None), self.output.warning
        )

    def print_notes(
        self, notes: Iterable[tuple[TaskId, str]], print_line: Callable[[str], None] | None = None
    ) -> None:
        """Print notes on tasks to stderr. Notes that differ only in the worker's name become one line."""
        print_line = print_line or self.output.message
        alike = group_pairs((_WORKER.sub("", text, count=1), (str(task), text)) for task, text in notes)
        self.output.flush()
        for same in alike.values():
            workers = fold(name for _, text in same for name in _WORKER.findall(text)[:1])
            text = workers.join(_WORKER.split(same[0][1], maxsplit=1))
            print_line(f"{fold(task for task, _ in same)}: {text}")

    def _print(self, blocks: Iterable[Block]) -> None:
        for ranks, text in blocks:
            self.output.lines(make_readable(text), self._prefix(ranks) if self.prefixed else "")

    def _prefix(self, ranks: tuple[int, ...]) -> str:
        if ranks not in self._painted_prefixes:
            self._painted_prefixes[ranks] = f"{self._paint(rank_prefix(ranks), ranks)} "
        return self._painted_prefixes[ranks]

    def _paint(self, prefix: str, ranks: tuple[int, ...]) -> str:
        if not self.output.color or os.environ.get("NO_COLOR") or not sys.stdout.isatty():
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


def make_readable(text: str) -> str:
    """Return text without colours and with tabs expanded. `Output.lines` handles other control characters."""
    if "\x1b" in text:
        text = _SGR.sub("", text)
    return text.expandtabs() if "\t" in text else text


def rank_prefix(ranks: Sequence[int]) -> str:
    """Return the prefix for lines of these ranks: `[3]`, `[0-3,7]`."""
    return f"[{ranks[0]}]" if len(ranks) == 1 else fold(map(str, ranks))


def _join_by_rank(texts: Iterable[LogText]) -> dict[int, str]:
    found: dict[int, str] = {}
    for text in texts:
        found[text.rank] = found.get(text.rank, "") + text.text
    return found


def _unfolded_blocks(texts: Mapping[int, str]) -> Iterator[Block]:
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


class DiffDocument(Struct, frozen=True):
    """The result of `iris logs --diff`."""

    streams: Sequence[StreamDiff]


def show_diff(output: Output, found: Sequence[StreamDiff], logs: Sequence[TaskLog]) -> None:
    """Print the differences, and why output is missing."""
    if output.as_json:
        output.document(DiffDocument(found))
    for each in () if output.as_json else found:
        _show_stream(output, each)
    LogPrinter(output).notes(logs)


def _show_stream(output: Output, each: StreamDiff) -> None:
    lines = f"identical: {count(each.lines, 'line')} of" if each.lines else "nothing in"
    summary = f"{rank_prefix(each.majority)} {lines} std{each.stream}"
    output.line(summary + (", except numbers" if each.coarse else "") + _idle_words(each.idle))
    for deviation in each.deviations:
        if deviation.compared:
            _show_deviation(output, each, deviation)
    rest = sorted(rank for deviation in each.deviations if not deviation.compared for rank in deviation.ranks)
    if rest:
        output.line(f"{rank_prefix(rest)} also differ; compare them with --rank")


def _show_deviation(output: Output, each: StreamDiff, deviation: Deviation) -> None:
    who = rank_prefix(deviation.ranks)
    if lines := deviation.behind or deviation.ahead:
        verb = "is" if len(deviation.ranks) == 1 else "are"
        where = "behind" if deviation.behind else "ahead"
        output.line(
            f"{who} {verb} {count(lines, 'line')} {where} in std{each.stream}{_idle_words(deviation.idle)}"
        )
        return
    differs = "differs" if len(deviation.ranks) == 1 else "differ"
    output.line(
        f"{who} {differs} in std{each.stream} (+) from {rank_prefix(each.majority)} (-){_idle_words(deviation.idle)}:"
    )
    output.lines(make_readable("".join(f"{line}\n" for line in deviation.diff)), "  ")
    if deviation.more:
        output.line(f"  and {count(deviation.more, 'more line')}")


def _idle_words(idle: float | None) -> str:
    return "" if idle is None else f", last line {duration(idle)} ago"


class ExecutedTask(Struct, frozen=True, kw_only=True):
    """The output of a command, stdout and stderr together, that ran next to a task or on a worker.

    `task` and `rank` are null if the command ran on a worker. `exit_code` is null if unknown. `cut`: true if the output
    was truncated.
    """

    task: TaskId | None
    rank: int | None
    worker: WorkerId | None
    answered: bool
    exit_code: int | None
    timed_out: bool
    cut: bool
    output: str
    note: str


class ExecutedDocument(Struct, frozen=True):
    """The result of `iris exec`."""

    results: Sequence[ExecutedTask]


def show_executed(output: Output, results: Sequence[CommandResult]) -> None:
    """Print each distinct output once, and failures to stderr. With several results, print ranks before lines."""
    if output.as_json:
        output.document(ExecutedDocument([_executed_task(each) for each in results]))
        return
    alike = group_pairs((each.end.output, each) for each in results if each.end is not None)
    for printed, same in alike.items():
        ranks = [each.task.index for each in same if each.task is not None]
        prefix = f"{rank_prefix(ranks)} " if len(results) > 1 and ranks else ""
        cutter = LineCutter()
        if text := cutter.feed(printed) + cutter.rest():
            output.lines(make_readable(text), prefix)
    output.flush()
    notes = ((str(each.task or each.worker), _result_note(each)) for each in results)
    for names, text in group_by_text(each for each in notes if each[1]):
        output.warning(f"{fold(names)}: {text}")


def _result_note(each: CommandResult) -> str:
    """Return the note on a result: no answer, exit code, timeout or truncation; '' if it succeeded."""
    if each.silence is not None:
        return each.silence.note
    if each.end is None:
        return each.note
    if each.end.gone:
        return "its directory no longer exists"
    cut = "; output truncated" if each.end.cut else ""
    code = "no exit code" if each.end.exit_code is None else f"exit {each.end.exit_code}"
    if each.end.timed_out:
        return f"command killed after {format_duration(each.timeout)} (--timeout); {code}{cut}"
    return cut.removeprefix("; ") if each.succeeded else code + cut


def _executed_task(each: CommandResult) -> ExecutedTask:
    end = each.end
    return ExecutedTask(
        task=each.task,
        rank=each.task.index if each.task else None,
        worker=each.worker,
        answered=each.silence is None,
        exit_code=end.exit_code if end else None,
        timed_out=end.timed_out if end else False,
        cut=end.cut if end else False,
        output=end.output.decode("utf-8", "replace") if end else "",
        note=_result_note(each),
    )
