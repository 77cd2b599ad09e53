"""Polls: the workers to poll, and the calls to each of them. No lock is held."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct, structs

from iris_cli.core import Cluster, Token, Worker, WorkerCondition, WorkerId
from iris_cli.core.lifecycle import failure_detection, reaping, workers
from iris_cli.core.messages.observations import RemoteState, Silence, WorkerReport
from iris_cli.ops.cycle import answers
from iris_cli.ops.cycle.observe import CallContext, WorkerAnswer
from iris_cli.ops.cycle.requests import Key
from iris_cli.ops.outcomes.stack_places import with_stack_places
from iris_cli.ops.session import ReadAt, Session


class Poll(Struct, frozen=True):
    """Up to three calls to a worker: a probe if `probe` is True, then a stop of the ghosts in `stops`, then a poll."""

    worker: WorkerId
    probe: bool
    stops: tuple[tuple[Token, float], ...] = ()  # each with its grace period in seconds


def due(session: Session, cluster: Cluster) -> list[Poll]:
    """Return the polls of this cycle, at most one for each worker, healthy workers first because they answer soon.

    New or unhealthy workers, and workers with live attempts or ghosts, are polled unless they are in back-off. A
    healthy idle worker is polled only to find out whether another worker's silence is a problem of the network, and
    once a day to delete old files.
    """
    found, now = [], session.clock.now()
    for worker in cluster.workers.values():
        if workers.is_backing_off(cluster, worker, now, session.limits):
            continue
        probe = _needs_probe(session, worker, now)
        stops = _ghost_stops(cluster, worker.id)
        is_healthy = worker.condition is WorkerCondition.HEALTHY
        reap = reaping.attempts_due(cluster, worker, now, session.limits, pause=reaping.PAUSE_WITHOUT_POLLS)
        if probe or worker.claims or stops or reap or not is_healthy:
            found.append(Poll(worker.id, probe, stops))
    witnesses = failure_detection.choose_witnesses(cluster, {poll.worker: None for poll in found})
    found += [Poll(worker, probe=False) for worker in witnesses]
    return sorted(
        found, key=lambda poll: cluster.workers[poll.worker].condition is not WorkerCondition.HEALTHY
    )


def _ghost_stops(cluster: Cluster, worker: WorkerId) -> tuple[tuple[Token, float], ...]:
    return tuple(
        (ghost.token, cluster.jobs[ghost.attempt.task.job].grace) for ghost in cluster.ghosts.get(worker, ())
    )


def _needs_probe(session: Session, worker: Worker, now: float) -> bool:
    unknown = worker.condition in (WorkerCondition.UNPROBED, WorkerCondition.UNTRUSTED)
    if unknown or not worker.incarnation or worker.unschedulable:
        return True
    host = session.hosts.get(worker.id)
    if host is not None and host.fingerprint != worker.declared:
        return True
    return workers.is_quarantine_over(worker, now, session.limits)


def poll_call(
    session: Session,
    cluster: Cluster,
    read_at: ReadAt,
    poll: Poll,
    context: CallContext,
    open_requests: Sequence[Key] = (),
) -> Callable[[], answers.Observation]:
    """Return the function that makes the first call of a poll. The worker does not report `open_requests` again."""
    worker = cluster.workers[poll.worker]
    target = session.target(worker)
    if poll.probe:
        return partial(session.runner.probe, target, first_contact=True)
    if poll.stops:
        return partial(session.runner.stop, target, poll.stops)

    def poll_attempts() -> answers.Observation:
        renew = failure_detection.may_renew_leases(worker, session.age(read_at), session.limits)
        observation = session.runner.poll(
            target, list(context.attempts), renew=renew, open_requests=open_requests
        )
        return with_stack_places(session, cluster, target, context.attempts, observation)

    return poll_attempts


def next_poll(poll: Poll | None, answer: WorkerAnswer) -> Poll | None:
    """Return the remaining calls of a poll after the answer to one of its calls, or None.

    If the call belongs to no poll (`poll` is None), and the host has rebooted or can't write its files, return a poll.
    """
    if isinstance(answer.observation, Silence):
        return None
    if poll is None:
        probe = _could_not_prepare(answer)
        return Poll(answer.context.worker, probe=probe) if probe or has_rebooted(answer) else None
    if not (poll.probe or poll.stops):
        return None
    remaining = structs.replace(poll, probe=False, stops=poll.stops if poll.probe else ())
    return remaining if remaining.stops or answer.context.attempts else None


def _could_not_prepare(answer: WorkerAnswer) -> bool:
    """Return True if a worker made neither the directory of an attempt nor its tombstone, as on a read-only disk.

    It is also True while another invocation sends the attempt's workspace. A probe then finds out.
    """
    observation = answer.observation
    # The call neither prepared an attempt nor sent a workspace, or the workspace is sent next.
    if not isinstance(observation, WorkerReport) or bool(observation.lacking) == bool(answer.launching):
        return False
    known = answer.context.acknowledged
    return any(each.state is RemoteState.ABSENT and each.token not in known for each in observation.attempts)


def has_rebooted(answer: WorkerAnswer) -> bool:
    """Return True if the host rebooted, and its answer lacks attempts that ran before the reboot."""
    observation, identity = answer.observation, answer.context.identity
    if isinstance(observation, Silence) or identity is None:
        return False
    boot_id, incarnation = identity
    reports = observation.attempts if isinstance(observation, WorkerReport) else ()
    is_complete = {each.token for each in reports}.issuperset(answer.context.attempts)
    return incarnation == observation.incarnation and boot_id != observation.boot_id and not is_complete
