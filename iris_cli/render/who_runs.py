"""Who runs the cycles, and what is wrong with the log or the loop: the lines above every table."""

from __future__ import annotations

from collections.abc import Sequence

from iris_cli.ops.views.cycles import Cycles
from iris_cli.ops.views.who_runs import cycles_words, trouble_lines
from iris_cli.render.layout import Text
from iris_cli.render.tables import clock_time, text


def banner(messages: Sequence[str], cycles: Cycles | None) -> list[Text]:
    """What is wrong with the log, and what the background loop can't do: a line each, above everything else."""
    return [text(each, "bold red") for each in (*messages, *(trouble_lines(cycles) if cycles else ()))]


def cycle_words(cycles: Cycles | None, at: float) -> Text:
    """Who runs cycles, and how old the facts are. None for a look at the past."""
    if cycles is None:
        return text(f"as of {clock_time(at)} UTC", "yellow")
    is_fine = cycles.coming or not (cycles.needed or cycles.last is None)
    return text(cycles_words(cycles), "dim" if is_fine else "bold red")


def age(cycles: Cycles | None, at: float) -> tuple[str, Text]:
    """Who runs cycles, in a line of its own; the time of a look at the past, behind what stands there."""
    return "  " if cycles is None else "\n", cycle_words(cycles, at)
