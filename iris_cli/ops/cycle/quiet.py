"""Find the function that a program executes when its task goes quiet.

In a stuck gang, one rank often executes another function than the other ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from iris_cli.core import AttemptId, Cluster, Token
from iris_cli.core.lifecycle.attempts import went_quiet
from iris_cli.core.messages.observations import RemoteState, Silence, WorkerReport
from iris_cli.ops.outcomes.stack_places import place_of
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_cli.remote.transport import Target

_MAX_ATTEMPTS = 8  # attempts of one worker for which stacks are read
_TIMEOUT = 5.0  # seconds to read stacks on one worker, because starts on the worker must wait


def with_stack_places(
    session: Session,
    cluster: Cluster,
    target: Target,
    attempts: Mapping[Token, AttemptId],
    report: WorkerReport | Silence,
) -> WorkerReport | Silence:
    """Return the report with the place of each program that went quiet: the function that it executes.

    The places are read with a second call. The ages in the report are increased by the duration of that call.
    """
    if isinstance(report, Silence):
        return report
    now, limits = session.clock.now(), session.limits
    quiet = [
        each.token
        for each in report.attempts
        if each.token in attempts
        and each.state in (RemoteState.RUNNING, RemoteState.ORPHANED)
        and went_quiet(cluster, attempts[each.token], each, now, limits)
    ]
    if not quiet:
        return report
    called_at = session.clock.monotonic()
    found = session.runner.stacks.read(target, quiet[:_MAX_ATTEMPTS], seconds=_TIMEOUT)
    places = {} if isinstance(found, Silence) else {each.token: place_of(each.programs) for each in found}
    passed = session.clock.monotonic() - called_at

    def increase(ago: float | None) -> float | None:
        return None if ago is None else ago + passed

    reports = (
        structs.replace(
            each,
            place=places.get(each.token, ""),
            started_ago=increase(each.started_ago),
            ended_ago=increase(each.ended_ago),
            last_output_ago=increase(each.last_output_ago),
        )
        for each in report.attempts
    )
    return structs.replace(
        report, attempts=tuple(reports), clock=report.clock + passed, uptime=report.uptime + passed
    )
