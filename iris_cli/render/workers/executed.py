"""What a command of the operator said in many places: once where it said the same."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from iris_cli.core.ids import TaskId, WorkerId
from iris_cli.ops.logs.log_stream import LineCutter
from iris_cli.ops.workers.execute import Executed
from iris_cli.render.console import Output
from iris_cli.render.fold import by_words, fold
from iris_cli.render.logs.log_lines import rank_prefix, readable


class ExecutedTask(Struct, frozen=True, kw_only=True):
    """The output of a command in one place, stdout and stderr together.

    `task` and `rank` are null on a worker, `exit_code` if there is none. `cut`: the output was longer.
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


def show_executed(output: Output, results: Sequence[Executed]) -> None:
    """The output of each place, with the ranks in front where there are several; how it ended on stderr."""
    if output.as_json:
        output.document(ExecutedDocument([_document(each) for each in results]))
        return
    alike: dict[bytes, list[Executed]] = {}
    for each in results:
        if each.end is not None:
            alike.setdefault(each.end.output, []).append(each)
    for said, places in alike.items():
        ranks = [each.task.index for each in places if each.task is not None]
        prefix = f"{rank_prefix(ranks)} " if len(results) > 1 and ranks else ""
        cutter = LineCutter()
        if text := cutter.feed(said) + cutter.rest():
            output.lines(readable(text), prefix)
    output.flush()
    told = ((str(each.task or each.worker), _words(each)) for each in results)
    for names, text in by_words(each for each in told if each[1]):
        output.warning(f"{fold(names)}: {text}")


def _words(each: Executed) -> str:
    """What is to be said beside its output; nothing if all went well."""
    if each.silence is not None:
        return f"no answer: {each.silence.detail}"
    if each.end is None:
        return each.note
    if each.end.gone:
        return "its directory no longer exists"
    cut = "; its output was longer than this" if each.end.cut else ""
    code = "no exit code" if each.end.exit_code is None else f"exit {each.end.exit_code}"
    if each.end.timed_out:
        return f"ended by the time-out ({code}){cut}"
    return cut.removeprefix("; ") if each.well else code + cut


def _document(each: Executed) -> ExecutedTask:
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
        note=_words(each),
    )
