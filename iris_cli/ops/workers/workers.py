"""Operations on workers: probe, drain, uncordon, taint, forget, accept keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.core import INCOMPLETE, AttemptId, Cluster, Worker, WorkerId, is_name
from iris_cli.core.attributes import taint_key
from iris_cli.core.events.events import WorkerDrained, WorkerForgotten, WorkerTainted, WorkerUncordoned
from iris_cli.core.evolve import Draft, replay
from iris_cli.core.lifecycle import identity, workers
from iris_cli.core.messages.observations import ProbeReport, Silence
from iris_cli.errors import IrisError, UsageError
from iris_cli.journal.log.writer import Writer
from iris_cli.ops.cycle import observe
from iris_cli.ops.cycle.answers import facts_of
from iris_cli.ops.cycle.cycle import send_stops
from iris_cli.ops.names import find_worker
from iris_cli.ops.session import Session
from iris_cli.remote.host_keys import PresentedKey
from iris_cli.remote.transport import NoAnswer

if TYPE_CHECKING:
    from iris_cli.remote.ssh import SshTransport


_MOST_NAMED = 3


class Probed(Struct, frozen=True):
    """The outcome of a probe of one worker, and the worker as the log has it now."""

    seen: ProbeReport | Silence
    worker: Worker


def take_in(session: Session) -> Cluster:
    """Return the cluster with all configured workers, including those never polled."""
    with session.transaction() as draft:
        workers.reconcile(draft, {worker: host.connection for worker, host in session.hosts.items()})
    return session.cluster


def probe(session: Session, names: list[str]) -> list[Probed]:
    """Probe these workers now, ignoring their back-off; all workers if `names` is empty."""
    cluster = take_in(session)
    chosen = [find_worker(cluster, name) for name in names] or list(cluster.workers.values())

    def one(worker: Worker) -> tuple[ProbeReport | Silence, list[observe.Answer]]:
        known, asked_at = observe.known_of(cluster, worker.id), session.clock.now()
        seen = session.runner.probe(session.target(worker), first_contact=True)
        answer = observe.heard(session, known, asked_at, seen)
        return seen, [answer, *_rest_of(session, worker, answer)]

    results = []
    for batch in session.fan_out(chosen, one, what="probing"):
        with session.transaction() as draft:
            observe.weigh(session, draft, [answer for _, answers in batch for answer in answers])
        known = session.cluster.workers  # another invocation may have forgotten one
        results += [Probed(seen, known[seen.worker]) for seen, _ in batch if seen.worker in known]
    send_stops(session)
    return sorted(results, key=lambda each: [worker.id for worker in chosen].index(each.worker.id))


def _rest_of(session: Session, worker: Worker, answer: observe.Answer) -> list[observe.Answer]:
    """Return the ends of attempts that ran before a host's reboot."""
    if not observe.rebooted(answer):
        return []
    asked_at = session.clock.now()
    seen = session.runner.poll(session.target(worker), list(answer.known.attempts), renew=False)
    return [observe.heard(session, answer.known, asked_at, seen)]


class Stranger(Struct, frozen=True):
    """Probe result of a worker next to its record in the log; `over` are the attempts that a reboot ended."""

    worker: Worker
    seen: ProbeReport | Silence
    over: tuple[AttemptId, ...] = ()

    @property
    def differs(self) -> bool:
        """True if boot id or incarnation differ from the log."""
        seen, worker = self.seen, self.worker
        return isinstance(seen, ProbeReport) and (
            (seen.boot_id, seen.incarnation) != (worker.boot_id, worker.incarnation)
        )


def look_at(session: Session, name: str) -> Stranger:
    """Probe a worker without recording it. After a reboot, `over` lists its attempts."""
    cluster = session.view()
    worker = find_worker(cluster, name)
    seen = session.runner.probe(session.target(worker), first_contact=False)
    rebooted = isinstance(seen, ProbeReport) and bool(worker.boot_id) and seen.boot_id != worker.boot_id
    return Stranger(worker, seen, tuple(worker.claims) if rebooted else ())


def accept(session: Session, stranger: Stranger) -> Probed:
    """Record that the probed host is this worker. Its host key must be accepted already.

    If boot id and incarnation are both new, the worker's live attempts end as `worker_failed`. Raises IrisError if the
    worker was probed again since `look_at`: its present attempts were not shown to the operator.
    """
    worker, seen = stranger.worker, stranger.seen
    with session.transaction() as draft:
        now = find_worker(draft.cluster, worker.id)  # it may have been forgotten since
        if (now.boot_id, now.incarnation) != (worker.boot_id, worker.incarnation):
            raise IrisError(
                f"{worker.id} was probed by another command",
                hint=f"run it again: iris worker probe --accept-key {worker.id}",
            )
        if isinstance(seen, Silence):
            workers.record_silence(draft, seen, session.limits)
        else:
            touched = [attempt_id.task.job for attempt_id, _ in draft.cluster.live_on(worker.id)]
            identity.apply_probe(draft, facts_of(session, draft.cluster, seen), session.limits, trusted=True)
            observe.settle(session, draft, dict.fromkeys(touched))
    known = observe.known_of(session.cluster, worker.id)
    rest = _rest_of(session, worker, observe.heard(session, known, session.clock.now(), seen))
    with session.transaction() as draft:
        observe.weigh(session, draft, rest)
    accepted = Probed(seen, session.cluster.workers[worker.id])
    send_stops(session)
    return accepted


def drain(session: Session, names: list[str], reason: str = "") -> list[WorkerId]:
    """Drain workers. Return those that were not draining, or were held only temporarily."""
    with session.transaction() as draft:
        found = [
            worker
            for worker in _found(draft, names)
            if not worker.draining or worker.drain_reason in (INCOMPLETE, workers.REMOVED)
        ]
        for worker in found:
            draft.record(WorkerDrained(worker=worker.id, reason=reason))
    return [worker.id for worker in found]


def uncordon(session: Session, names: list[str]) -> list[WorkerId]:
    """End drain, quarantine and cool-down. Return the workers that were held."""
    now = session.clock.now()
    with session.transaction() as draft:
        found = [
            worker
            for worker in _found(draft, names)
            if worker.draining or worker.quarantined or worker.cooldown_until > now
        ]
        for worker in found:
            draft.record(WorkerUncordoned(worker=worker.id))
            workers.hold_until_complete(draft, worker.id)
    return [worker.id for worker in found]


def taint(session: Session, name: str, taint_name: str, *, remove: bool = False) -> bool:
    """Set or remove a taint by hand. Return True if anything changed. Raises UsageError."""
    if not is_name(taint_name):
        raise UsageError(
            f"{taint_name[:80]!r} is not the name of a taint", hint="use letters, digits, '.', '_', '-'"
        )
    with session.transaction() as draft:
        worker = find_worker(draft.cluster, name)
        there = taint_key(taint_name) in worker.attributes
        if remove and there and taint_name not in worker.taints:
            raise UsageError(
                f"the taint {taint_name} of {name} is in cluster.yaml", hint="remove it from cluster.yaml"
            )
        if there != remove:
            return False
        draft.record(WorkerTainted(worker=worker.id, taint=taint_name, removed=remove))
    return True


def forget(session: Session, name: str, *, dead: bool = False, reason: str = "") -> WorkerId:
    """Remove a worker from the log. Refuse while it has live attempts, unless the operator declares it dead."""
    with session.transaction() as draft:
        worker = find_worker(draft.cluster, name)
        if worker.claims and not dead:
            alive = ", ".join(map(str, list(worker.claims)[:_MOST_NAMED]))
            more = ", …" if len(worker.claims) > _MOST_NAMED else ""
            raise IrisError(
                f"{name} still has unfinished work: {alive}{more}",
                hint=f"cancel them; or if that host is gone for good: iris worker forget --dead {name}",
            )
        touched = [attempt_id.task.job for attempt_id, _ in draft.cluster.live_on(worker.id)]
        identity.presume_all_gone(draft, worker.id, reason or "declared dead by the operator")
        draft.record(WorkerForgotten(worker=worker.id, dead=dead, reason=reason))
        observe.settle(session, draft, dict.fromkeys(touched))
    send_stops(session)
    return worker.id


def _found(draft: Draft, names: list[str]) -> list[Worker]:
    return [find_worker(draft.cluster, name) for name in names]


def probe_again(writer: Writer, now: float) -> int:
    """Require a probe of every worker before its next task: the log may have lost attempts. Return their number."""
    draft = Draft(replay(writer.transactions), now)
    workers.require_probes(draft)
    if draft.events:
        writer.append(draft.events, at=now)
    return len(draft.events)


class Shown(Struct, frozen=True):
    """The host key that a worker presents now, or its silence."""

    worker: Worker
    key: PresentedKey | Silence


def to_accept_keys(
    session: Session, transport: SshTransport, names: list[str]
) -> tuple[list[Worker], list[Worker]]:
    """Return the new workers, and the others, of those named or without a key. Raises NotFoundError."""
    cluster = take_in(session)
    named = [find_worker(cluster, name) for name in dict.fromkeys(names)]
    keyless = [
        worker for worker in named or cluster.workers.values() if not _has_key(session, transport, worker)
    ]
    new = {worker.id: worker for worker in keyless if not worker.incarnation}
    return list(new.values()), [worker for worker in named or keyless if worker.id not in new]


def look_at_keys(session: Session, transport: SshTransport, workers: list[Worker]) -> list[Shown]:
    """Get the host key of each worker, and nothing else. Records nothing."""

    def one(worker: Worker) -> Shown:
        try:
            return Shown(
                worker, transport.presented_key(session.target(worker), session.limits.connect_timeout)
            )
        except NoAnswer as silence:
            return Shown(worker, silence.silence(worker.id))

    shown = {each.worker.id: each for batch in session.fan_out(workers, one) for each in batch}
    return [shown[worker.id] for worker in workers]


def accept_keys(session: Session, transport: SshTransport, shown: list[Shown]) -> list[Probed]:
    """Record these keys and probe their workers. Raises NotWritableError, and the errors of `probe`."""
    keys = {each.worker.id: each.key for each in shown if isinstance(each.key, PresentedKey)}
    transport.accept_keys(keys)
    return probe(session, list(keys))


def _has_key(session: Session, transport: SshTransport, worker: Worker) -> bool:
    try:
        return bool(transport.known_keys(session.target(worker)))
    except NoAnswer:  # unreadable records are reported by `look_at_keys`
        return False
