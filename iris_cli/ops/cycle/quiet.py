"""Ask where the programs of tasks are that just went quiet: in a stuck gang, the odd one out is in another place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from iris_cli.core import AttemptId, Cluster, Token
from iris_cli.core.lifecycle.attempts import went_quiet
from iris_cli.core.messages.observations import AttemptReport, RemoteState, Silence, WorkerReport
from iris_cli.ops.outcomes.stack_places import place_of
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_cli.remote.transport import Target

_MOST_OF_A_CALL = 8  # attempts of one worker; those beyond it are marked without a place
_SECONDS = 5.0  # for the stacks of one worker: starts must not wait


def with_places(
    session: Session,
    cluster: Cluster,
    target: Target,
    attempts: Mapping[Token, AttemptId],
    seen: WorkerReport | Silence,
) -> WorkerReport | Silence:
    """Return the worker's report with the places of programs that went quiet, its ages advanced to their answer."""
    if isinstance(seen, Silence):
        return seen
    quiet = [each.token for each in seen.attempts if _is_news(session, cluster, attempts, each)]
    if not quiet:
        return seen
    asked_at = session.clock.monotonic()
    found = session.runner.stacks.read(target, quiet[:_MOST_OF_A_CALL], seconds=_SECONDS)
    places = {} if isinstance(found, Silence) else {each.token: place_of(each.programs) for each in found}
    passed = session.clock.monotonic() - asked_at

    def later(ago: float | None) -> float | None:
        return None if ago is None else ago + passed

    reports = (
        structs.replace(
            each,
            place=places.get(each.token, ""),
            started_ago=later(each.started_ago),
            ended_ago=later(each.ended_ago),
            last_output_ago=later(each.last_output_ago),
        )
        for each in seen.attempts
    )
    return structs.replace(
        seen, attempts=tuple(reports), clock=seen.clock + passed, uptime=seen.uptime + passed
    )


def _is_news(
    session: Session, cluster: Cluster, attempts: Mapping[Token, AttemptId], report: AttemptReport
) -> bool:
    attempt_id = attempts.get(report.token)
    return (
        attempt_id is not None
        and report.state in (RemoteState.RUNNING, RemoteState.ORPHANED)
        and went_quiet(cluster, attempt_id, report, session.clock.now(), session.limits)
    )
