"""Operations on workers: probe, drain, uncordon, taint, forget, accept keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.core import INCOMPLETE, AttemptId, Cluster, Worker, WorkerId, attributes, is_name, text
from iris_cli.core.events.events import WorkerDrained, WorkerForgotten, WorkerTainted, WorkerUncordoned
from iris_cli.core.evolve import Draft, replay
from iris_cli.core.lifecycle import identity, workers
from iris_cli.core.messages.observations import ProbeReport, Silence
from iris_cli.core.model.worker import DRAINS_BY_CONFIGURATION
from iris_cli.errors import IrisError, UsageError
from iris_cli.ops.cycle import observe, polls
from iris_cli.ops.cycle.answers import worker_facts
from iris_cli.ops.cycle.cycle import send_stops
from iris_cli.ops.names import find_worker, find_workers
from iris_cli.ops.session import Session
from iris_cli.remote.host_keys import PresentedKey
from iris_cli.remote.transport import NoAnswer

if TYPE_CHECKING:
    from iris_cli.journal.log.writer import Writer
    from iris_cli.remote.ssh import SshTransport


_MAX_NAMES = 3


class ProbeResult(Struct, frozen=True):
    """The answer of one worker to a probe, and the worker's record in the log."""

    seen: ProbeReport | Silence
    worker: Worker

    @property
    def differs(self) -> bool:
        """True if the boot id or the incarnation differs from the log."""
        seen, recorded = self.seen, (self.worker.boot_id, self.worker.incarnation)
        return isinstance(seen, ProbeReport) and (seen.boot_id, seen.incarnation) != recorded

    @property
    def ended_attempts(self) -> tuple[AttemptId, ...]:
        """The live attempts that a reboot has ended."""
        seen, known = self.seen, self.worker.boot_id
        has_rebooted = isinstance(seen, ProbeReport) and known not in ("", seen.boot_id)
        return tuple(self.worker.claims) if has_rebooted else ()


def register_workers(session: Session) -> Cluster:
    """Record the workers of cluster.yaml in the log, and return the cluster."""
    with session.transaction() as draft:
        workers.reconcile(draft, {worker: host.connection for worker, host in session.hosts.items()})
    return session.cluster


def probe(session: Session, names: list[str]) -> list[ProbeResult]:
    """Probe these workers now, even in back-off. If `names` is empty, probe all workers."""
    cluster = register_workers(session)
    chosen = find_workers(cluster, names) or list(cluster.workers.values())

    def probe_worker(worker: Worker) -> tuple[ProbeReport | Silence, list[observe.WorkerAnswer]]:
        context, called_at = observe.call_context(cluster, worker.id), session.clock.now()
        seen = session.runner.probe(session.target(worker), first_contact=True)
        answer = observe.validated_answer(session, context, called_at, seen)
        return seen, [answer, *_poll_after_reboot(session, worker, answer)]

    results = []
    for batch in session.fan_out(chosen, probe_worker, what="probing"):
        with session.transaction() as draft:
            observe.record_answers(session, draft, [answer for _, answers in batch for answer in answers])
        known = session.cluster.workers  # another invocation may have forgotten a worker
        results += [ProbeResult(seen, known[seen.worker]) for seen, _ in batch if seen.worker in known]
    send_stops(session)
    return sorted(results, key=lambda each: [worker.id for worker in chosen].index(each.worker.id))


def _poll_after_reboot(
    session: Session, worker: Worker, answer: observe.WorkerAnswer
) -> list[observe.WorkerAnswer]:
    """If the host has rebooted, poll the attempts that ran before the reboot. Return the answer in a list, or []."""
    if not polls.has_rebooted(answer):
        return []
    called_at = session.clock.now()
    seen = session.runner.poll(session.target(worker), list(answer.context.attempts), renew=False)
    return [observe.validated_answer(session, answer.context, called_at, seen)]


def probe_unrecorded(session: Session, name: str) -> ProbeResult:
    worker = find_worker(session.view(), name)
    return ProbeResult(session.runner.probe(session.target(worker), first_contact=False), worker)


def accept(session: Session, probed: ProbeResult) -> ProbeResult:
    """Record that the probed host is this worker. The host key must have been accepted.

    If boot id and incarnation are both new, the worker's live attempts end as `worker_failed`. Raises IrisError if the
    worker was probed again since `probe_unrecorded`, because its present attempts were not shown to the operator.
    """
    worker, seen = probed.worker, probed.seen
    with session.transaction() as draft:
        current = find_worker(draft.cluster, worker.id)  # raises NotFoundError if the worker was forgotten
        if (current.boot_id, current.incarnation) != (worker.boot_id, worker.incarnation):
            raise IrisError(
                f"{worker.id} was probed by another command",
                hint=f"run it again: iris worker probe --accept-key {worker.id}",
            )
        if isinstance(seen, Silence):
            workers.record_silence(draft, seen, session.limits)
        else:
            live_jobs = dict.fromkeys(attempt.task.job for attempt in current.claims)
            identity.apply_probe(
                draft, worker_facts(session, draft.cluster, seen), session.limits, trusted=True
            )
            observe.settle(session, draft, live_jobs)
    context = observe.call_context(session.cluster, worker.id)
    answer = observe.validated_answer(session, context, session.clock.now(), seen)
    polled = _poll_after_reboot(session, worker, answer)
    with session.transaction() as draft:
        observe.record_answers(session, draft, polled)
    accepted = ProbeResult(seen, session.cluster.workers[worker.id])
    send_stops(session)
    return accepted


def drain(session: Session, names: list[str], reason: str = "") -> list[WorkerId]:
    """Drain workers. Return the workers that the operator had not drained before."""
    text.check_utf8("--reason", reason)
    automatic = {INCOMPLETE, *DRAINS_BY_CONFIGURATION}  # reasons of drains by iris
    with session.transaction() as draft:
        named = find_workers(draft.cluster, names)
        to_drain = [worker for worker in named if not worker.draining or worker.drain_reason in automatic]
        for worker in to_drain:
            draft.record(WorkerDrained(worker=worker.id, reason=reason))
    return [worker.id for worker in to_drain]


def uncordon(session: Session, names: list[str]) -> list[WorkerId]:
    """End drain, quarantine and cool-down of workers. Return the workers that were in one of these conditions."""
    now = session.clock.now()
    with session.transaction() as draft:
        named = find_workers(draft.cluster, names)
        cordoned = [each for each in named if each.draining or each.quarantined or each.cooldown_until > now]
        for worker in cordoned:
            draft.record(WorkerUncordoned(worker=worker.id))
            workers.hold_until_complete(draft, worker.id)
    return [worker.id for worker in cordoned]


def taint(session: Session, name: str, taint_name: str, *, remove: bool = False) -> bool:
    """Set or remove a taint. Return False if it was already set or removed. Raises UsageError."""
    if not is_name(taint_name):
        raise UsageError(
            f"{taint_name[:80]!r} is not the name of a taint", hint="use letters, digits, '.', '_', '-'"
        )
    with session.transaction() as draft:
        worker = find_worker(draft.cluster, name)
        has_taint = attributes.taint_key(taint_name) in worker.attributes
        if remove and has_taint and taint_name not in worker.taints:
            raise UsageError(
                f"the taint {taint_name} of {name} is in cluster.yaml", hint="remove it from cluster.yaml"
            )
        if has_taint != remove:
            return False
        draft.record(WorkerTainted(worker=worker.id, taint=taint_name, removed=remove))
    return True


def forget(session: Session, name: str, *, dead: bool = False, reason: str = "") -> WorkerId:
    """Forget a worker. If it has live attempts, presume them gone if `dead`, otherwise raise IrisError."""
    text.check_utf8("--reason", reason)
    with session.transaction() as draft:
        worker = find_worker(draft.cluster, name)
        live_jobs = dict.fromkeys(attempt.task.job for attempt in worker.claims)
        if worker.claims and not dead:
            alive = ", ".join(map(str, list(worker.claims)[:_MAX_NAMES]))
            more = ", …" if len(worker.claims) > _MAX_NAMES else ""
            jobs = " ".join(live_jobs)
            raise IrisError(
                f"{name} still has unfinished work: {alive}{more}",
                hint=f"iris cancel --wait {jobs}; or if that host is gone for good: iris worker forget --dead {name}",
            )
        error = f"{reason} ({worker.id})" if reason else f"host {worker.id} was declared dead by the operator"
        identity.presume_gone(draft, list(draft.cluster.workers[worker.id].claims), error)
        draft.record(WorkerForgotten(worker=worker.id, dead=dead, reason=reason))
        observe.settle(session, draft, live_jobs)
    send_stops(session)
    return worker.id


def require_probes(writer: Writer, now: float) -> int:
    """Require a probe of each worker before its next task, because a truncated log may lack attempts.

    Return the number of workers.
    """
    draft = Draft(replay(writer.transactions), now)
    workers.require_probes(draft)
    if draft.events:
        writer.append(draft.events, at=now)
    return len(draft.events)


class HostKey(Struct, frozen=True):
    """The host key that a worker presents, or why the worker gave no answer."""

    worker: Worker
    key: PresentedKey | Silence


def workers_without_key(
    session: Session, transport: SshTransport, names: list[str]
) -> tuple[list[Worker], list[Worker]]:
    """Return the workers whose host keys the operator may accept: first the new workers, then the other workers.

    A new worker has no recorded key and was never probed. If `names` is empty, choose all workers without a recorded
    key. Raises NotFoundError.
    """
    cluster = register_workers(session)
    named = find_workers(cluster, names)
    candidates = named or cluster.workers.values()
    keyless = [worker for worker in candidates if not _has_key(session, transport, worker)]
    new = {worker.id: worker for worker in keyless if not worker.incarnation}
    return list(new.values()), [worker for worker in named or keyless if worker.id not in new]


def read_keys(session: Session, transport: SshTransport, workers: list[Worker]) -> list[HostKey]:
    """Return the host key that each worker presents. Records nothing."""

    def read_key(worker: Worker) -> HostKey:
        target, timeout = session.target(worker), session.limits.connect_timeout
        try:
            return HostKey(worker, transport.presented_key(target, timeout))
        except NoAnswer as error:
            return HostKey(worker, error.silence(worker.id))

    keys = {each.worker.id: each for batch in session.fan_out(workers, read_key) for each in batch}
    return [keys[worker.id] for worker in workers]


def accept_keys(session: Session, transport: SshTransport, presented: list[HostKey]) -> list[ProbeResult]:
    """Record the presented keys, and probe the workers. Raises NotWritableError, and the errors of `probe`."""
    keys = {each.worker.id: each.key for each in presented if isinstance(each.key, PresentedKey)}
    transport.accept_keys(keys)
    return probe(session, list(keys))


def _has_key(session: Session, transport: SshTransport, worker: Worker) -> bool:
    """Return True if a key is recorded, or if the worker needs no key because `srun` reaches it."""
    target = session.target(worker)
    try:
        return bool(target.connection.allocation or transport.known_keys(target))
    except NoAnswer:  # unreadable records are reported by `read_keys`
        return False
