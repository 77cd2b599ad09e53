"""After lines of the log were lost: what workers run may be more than it knows."""

from __future__ import annotations

from iris_cli.core.evolve import Draft, replay
from iris_cli.core.lifecycle import workers
from iris_cli.journal.log.writer import Writer


def probe_anew(writer: Writer, now: float) -> int:
    """Let every worker be probed before it takes anything again; returns how many.

    A probe finds the attempts that the log has no word of any more.
    """
    draft = Draft(replay(writer.transactions), now)
    workers.lost_track(draft)
    if draft.events:
        writer.append(draft.events, at=now)
    return len(draft.events)
