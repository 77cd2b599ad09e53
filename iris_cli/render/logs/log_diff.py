"""`iris logs --diff`: who says the same, and what the others say instead."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from iris_cli.core.units import count
from iris_cli.ops.logs.log_diff import Deviation, StreamDiff
from iris_cli.ops.logs.logs import TaskLog
from iris_cli.render.console import Output
from iris_cli.render.logs.log_lines import LogPrinter, rank_prefix, readable
from iris_cli.render.tables import duration


class DiffDocument(Struct, frozen=True):
    """The result of `iris logs --diff`."""

    streams: Sequence[StreamDiff]


def show(output: Output, found: Sequence[StreamDiff], logs: Sequence[TaskLog]) -> None:
    """The differences, and whose output could not be had."""
    if output.as_json:
        output.document(DiffDocument(found))
    for each in () if output.as_json else found:
        _show(output, each)
    LogPrinter(output).notes(logs)


def _show(output: Output, each: StreamDiff) -> None:
    said = f"the same: {count(each.lines, 'line')} of" if each.lines else "nothing in"
    alike = f"{rank_prefix(each.majority)} {said} {each.stream}"
    output.line(alike + (", but for numbers" if each.coarse else "") + _last(each.idle))
    for deviation in each.deviations:
        if deviation.compared:
            _show_one(output, each, deviation)
    rest = sorted(rank for one in each.deviations if not one.compared for rank in one.ranks)
    if rest:
        output.line(f"{rank_prefix(rest)} other again; --rank compares some of them")


def _show_one(output: Output, each: StreamDiff, one: Deviation) -> None:
    who = rank_prefix(one.ranks)
    if one.behind or one.ahead:
        lines, where = count(one.behind or one.ahead, "line"), "behind" if one.behind else "ahead"
        output.line(f"{who} {lines} {where} in {each.stream}{_last(one.idle)}")
        return
    output.line(f"{who} other in {each.stream} (+) than {rank_prefix(each.majority)} (-){_last(one.idle)}:")
    output.lines(readable("".join(f"{line}\n" for line in one.diff)), "  ")
    if one.more:
        output.line(f"  and {count(one.more, 'more line')}")


def _last(idle: float | None) -> str:
    return "" if idle is None else f", last line {duration(idle)} ago"
