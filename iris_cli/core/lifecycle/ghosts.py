"""What was taken for dead without proof, and may still run: remembered until its worker proves it gone."""

from __future__ import annotations

from collections.abc import Iterable

from iris_cli.core import AttemptId, Cluster, WorkerId
from iris_cli.core.events.events import AttemptPresumedGone, AttemptProvenGone, WorkerForgotten
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import attempts, workers
from iris_cli.core.messages.observations import OVER, AttemptReport, RemoteState


def presume_gone(draft: Draft, attempt_ids: Iterable[AttemptId], error: str) -> None:
    """Take attempts for dead: what they held is free for others, and they are remembered as ghosts."""
    for attempt_id in attempt_ids:
        draft.record(AttemptPresumedGone(task=attempt_id.task, attempt=attempt_id.number))
        attempts.worker_gone(draft, attempt_id, error)


def declared_dead(draft: Draft, worker: WorkerId, error: str) -> None:
    """The operator's word that nothing runs on a worker any more: also nothing that could not be killed."""
    presume_gone(draft, [attempt_id for attempt_id, _ in draft.cluster.live_on(worker)], error)


def machine_gone(draft: Draft, worker_id: WorkerId, error: str) -> list[AttemptId]:
    """Proof that the machine is no more: what lived there has ended with it, and the worker is off the books."""
    is_known = worker_id in draft.cluster.workers
    ended = [attempt_id for attempt_id, _ in draft.cluster.live_on(worker_id)] if is_known else []
    for attempt_id in ended:
        attempts.worker_gone(draft, attempt_id, error)
    for ghost in draft.cluster.ghosts.get(worker_id, ()):
        _proven_gone(draft, ghost.attempt)
    if is_known:
        draft.record(WorkerForgotten(worker=worker_id, reason=error))
    return ended


def reported(draft: Draft, worker: WorkerId, reports: Iterable[AttemptReport]) -> None:
    """A worker said how its ghosts are: those that are over are gone; one that can't be killed is no good."""
    said = {report.token: report.state for report in reports}
    for ghost in draft.cluster.ghosts.get(worker, ()):
        state = said.get(ghost.token)
        if state in OVER:
            _proven_gone(draft, ghost.attempt)
        elif state is RemoteState.UNKILLABLE:
            workers.unkillable(draft, worker)


def rebooted(draft: Draft, worker_id: WorkerId) -> None:
    """A worker is known to be up since another boot than its ghosts: they did not outlive that."""
    boot_id = draft.cluster.workers[worker_id].boot_id
    for ghost in draft.cluster.ghosts.get(worker_id, ()):
        if ghost.boot_id and ghost.boot_id != boot_id:
            _proven_gone(draft, ghost.attempt)


def elsewhere(cluster: Cluster, worker: WorkerId, boot_id: str, incarnation: str) -> str:
    """Why whoever answers as a worker that is new to the log can't speak for the ghosts of that name, or ""."""
    strange = [
        str(ghost.attempt)
        for ghost in cluster.ghosts.get(worker, ())
        if ghost.incarnation and ghost.incarnation != incarnation and ghost.boot_id != boot_id
    ]
    if not strange:
        return ""
    return f"{', '.join(strange)} may still run on another host: this one has another boot and incarnation"


def haunted_words(cluster: Cluster, worker: WorkerId) -> str:
    """Why a worker takes nothing new because of its ghosts, in a sentence; "" for one that has none."""
    ghosts = cluster.ghosts.get(worker, ())
    if not ghosts:
        return ""
    names = ", ".join(str(ghost.attempt) for ghost in ghosts)
    return f"two copies may run: {names} taken for dead, to be stopped first when {worker} answers"


def _proven_gone(draft: Draft, attempt: AttemptId) -> None:
    draft.record(AttemptProvenGone(task=attempt.task, attempt=attempt.number))
