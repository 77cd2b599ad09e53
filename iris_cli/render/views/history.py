"""The log in plain words."""

from __future__ import annotations

from iris_cli.core.units import count
from iris_cli.ops.views.history import Entry, History
from iris_cli.render.console import Output


def show_history(output: Output, history: History) -> None:
    """One line for each event, the newest last."""
    if output.as_json:
        output.document(history)
    elif output.quiet:
        output.warnings(history.messages)
        for entry in history.entries:
            output.line(entry.text)
    else:
        _show_table(output, history)


def _show_table(output: Output, history: History) -> None:
    from iris_cli.render.tables import NARROW, table, text

    for message in history.messages:
        output.show(text(message, "bold red"))
    if history.archived:
        words = f"what happened before seq {history.archived + 1} is in the archive: --all shows it"
        output.show(text(words, "dim"))
    if history.earlier:
        what = count(history.earlier, f"earlier {'event' if history.subject else 'transaction'}")
        output.show(text(f"{what} not shown: --limit 0 shows all", "dim"))
    if not history.entries:
        output.show(text("nothing has happened yet", "dim"))
        return
    narrow = output.width < NARROW
    only = ("TIME (UTC)", "WHAT") if narrow else ()
    output.show(table(("TIME (UTC)", "SEQ", "WHAT", "BY"), map(_cells, history.entries), only=only))


def _cells(entry: Entry) -> tuple[str, ...]:
    from iris_cli.render.tables import clock_time

    return clock_time(entry.at), str(entry.seq), entry.text, entry.actor
