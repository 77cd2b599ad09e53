"""Scale groups beside the cluster: slices, what is wanted, back-off, and what nobody makes."""

from __future__ import annotations

from iris_cli.ops.views.scaling_rows import MadeRow, ScaleGroupRow, Scaling
from iris_cli.render.layout import Table, Text
from iris_cli.render.tables import NARROW, Row, duration, table, text

MOST_UNMET = 5


def group_tables(scaling: Scaling, width: int) -> list[Text | Table]:
    """The groups, what each has under way, and what is unmet."""
    if not scaling.groups:
        return []
    headers = ("GROUP", "TYPE", "WHERE", "SLICES", "WANTED", "NOW")
    only = ("GROUP", "SLICES", "WANTED", "NOW") if width < NARROW else ()
    parts: list[Text | Table] = [table(headers, [_cells(each) for each in scaling.groups], only=only)]
    parts += [
        text(f"{each.name} backs off: {each.backing_off}", "yellow")
        for each in scaling.groups
        if each.backing_off
    ]
    parts += [text(line, "yellow") for each in scaling.groups for line in each.by_hand]
    parts += [text(f"unmet {each.id}: {each.text}", "yellow") for each in scaling.unmet[:MOST_UNMET]]
    if len(scaling.unmet) > MOST_UNMET:
        parts.append(text(f"{len(scaling.unmet) - MOST_UNMET} more unmet: iris autoscale --dry-run", "dim"))
    return parts


def _cells(row: ScaleGroupRow) -> Row:
    where = f"{row.region}{', preemptible' if row.preemptible else ''}"
    slices = f"{len(row.slices)} of {row.min_slices}-{row.max_slices}"
    return row.name, row.type, where, slices, str(row.wanted or ""), "; ".join(map(_now, row.slices))


def _now(row: MadeRow) -> str:
    reason = f" ({row.reason})" if row.reason else ""
    return f"{row.name} {row.state} for {duration(row.age)}{reason}"
