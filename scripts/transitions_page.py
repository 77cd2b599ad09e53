"""Write the diagram and the table of the transitions of attempts for docs/task-states.md."""

from __future__ import annotations

import typing
from collections.abc import Iterator

from iris_cli.core.events import events
from iris_cli.core.evolve.transitions import TRANSITIONS, Transition
from iris_cli.core.model import task

BEGIN = "<!-- Written by scripts/write_docs.py from core/evolve/transitions.py, up to the next mark. -->\n"
END = "<!-- End of the transitions. -->\n"

_PHASES: tuple[type[task.Phase], ...] = typing.get_args(task.Phase)


def with_transitions(page: str) -> str:
    """Return the page with the text between its two marks rewritten. Raises ValueError if it has no marks."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:begin] + "\n".join((*_diagram(), "", *_table(), "")) + page[end:]


def _diagram() -> Iterator[str]:
    yield from ("```mermaid", "stateDiagram-v2", f"    [*] --> ASSIGNED: {events.TaskAssigned.__name__}")
    edges: dict[tuple[str, str], list[str]] = {}
    for row in TRANSITIONS:
        if row.before is not row.after:
            edges.setdefault((row.before.state, row.after.state), []).append(row.event.__name__)
    yield from (f"    {before} --> {after}: {', '.join(names)}" for (before, after), names in edges.items())
    yield from ("    ENDED --> [*]", "```")


def _table() -> Iterator[str]:
    yield f"| event | {' | '.join(f'`{phase.state}`' for phase in _PHASES)} |"
    yield "|---" * (1 + len(_PHASES)) + "|"
    for event in dict.fromkeys(row.event for row in TRANSITIONS):
        rows = {row.before: row for row in TRANSITIONS if row.event is event}
        cells = (_cell(rows[phase], rows) if phase in rows else "" for phase in _PHASES)
        yield f"| `{event.__name__}` | {' | '.join(cells)} |"


def _cell(row: Transition, rows: dict[type[task.Phase], Transition]) -> str:
    """Return the state after the event. A STOPPING attempt accepts only what its interrupted phase accepts."""
    where = f"`{row.after.state}`" if row.after is not row.before else "stays"
    if row.before is task.Stopping and (task.Assigned in rows) != (task.Running in rows):
        return f"{where} (if it {'has' if task.Running in rows else 'has not'} started)"
    return where
