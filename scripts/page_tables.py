"""Generated parts of hand-written pages: transitions for docs/task-states.md, counterparts for docs/leaving.md."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator

from iris_cli.core.events import events
from iris_cli.core.evolve.transitions import TRANSITIONS, Transition
from iris_cli.core.model import task
from iris_cli.ops.export.counterparts import COUNTERPARTS

_BEGIN = "<!-- Written by scripts/write_docs.py from {}, up to the next mark. -->\n"
_PHASES: tuple[type[task.Phase], ...] = typing.get_args(task.Phase)


def update_transitions(page: str) -> str:
    """Return docs/task-states.md with the current diagram and table of the transitions of attempts."""
    lines = (*_diagram(), "", *_transitions_table(), "")
    return _replace_part(page, "core/evolve/transitions.py", "<!-- End of the transitions. -->\n", lines)


def update_counterparts(page: str) -> str:
    """Return docs/leaving.md with the current table of job fields and their counterparts in other engines."""
    lines = ("", *_counterparts_table(), "", "")
    return _replace_part(page, "ops/export/counterparts.py", "<!-- End of the counterparts. -->\n", lines)


def _replace_part(page: str, source: str, end: str, lines: Iterable[str]) -> str:
    """Replace the text between two marks. Raises ValueError if a mark is missing."""
    mark = _BEGIN.format(source)
    begin = page.index(mark) + len(mark)
    return page[:begin] + "\n".join(lines) + page[page.index(end) :]


def _diagram() -> Iterator[str]:
    yield from ("```mermaid", "stateDiagram-v2", f"    [*] --> ASSIGNED: {events.TaskAssigned.__name__}")
    edges: dict[tuple[str, str], list[str]] = {}
    for row in TRANSITIONS:
        if row.before is not row.after:
            edges.setdefault((row.before.state, row.after.state), []).append(row.event.__name__)
    yield from (f"    {before} --> {after}: {', '.join(names)}" for (before, after), names in edges.items())
    yield from ("    ENDED --> [*]", "```")


def _transitions_table() -> Iterator[str]:
    yield f"| event | {' | '.join(f'`{phase.state}`' for phase in _PHASES)} |"
    yield "|---" * (1 + len(_PHASES)) + "|"
    for event in dict.fromkeys(row.event for row in TRANSITIONS):
        rows = {row.before: row for row in TRANSITIONS if row.event is event}
        cells = (_cell(rows[phase], rows) if phase in rows else "" for phase in _PHASES)
        yield f"| `{event.__name__}` | {' | '.join(cells)} |"


def _cell(row: Transition, rows: dict[type[task.Phase], Transition]) -> str:
    """Return the state after the event. Some events apply to a STOPPING attempt only if it has, or has not, started."""
    where = f"`{row.after.state}`" if row.after is not row.before else "stays"
    if row.before is task.Stopping and (task.Assigned in rows) != (task.Running in rows):
        return f"{where} (if it {'has' if task.Running in rows else 'has not'} started)"
    return where


def _counterparts_table() -> Iterator[str]:
    yield "| iris field | Slurm | JobSet, Kueue |"
    yield "|---|---|---|"
    yield from (
        f"| `{row.field}` | {row.sbatch or 'lost'} | {row.jobset or 'lost'} |" for row in COUNTERPARTS
    )
