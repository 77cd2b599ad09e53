"""Host keys of workers that nobody has met: all of them are looked at, and taken with one word of the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.core.messages.observations import Silence
from iris_cli.core.model.worker import Worker
from iris_cli.ops.names import find_worker
from iris_cli.ops.session import Session
from iris_cli.ops.workers import workers as operation
from iris_cli.ops.workers.workers import Probed
from iris_cli.remote.host_keys import PresentedKey
from iris_cli.remote.transport import NoAnswer

if TYPE_CHECKING:
    from iris_cli.remote.ssh import SshTransport


class Shown(Struct, frozen=True):
    """The host key that a worker shows now, or that it did not answer."""

    worker: Worker
    key: PresentedKey | Silence


def to_accept(
    session: Session, transport: SshTransport, names: list[str]
) -> tuple[list[Worker], list[Worker]]:
    """Of these workers: those that nobody has met, and the others, whose identity is to be compared.

    If none is named, all that have no host key on record. Raises NotFoundError.
    """
    cluster = operation.take_in(session)
    named = [find_worker(cluster, name) for name in dict.fromkeys(names)]
    keyless = [
        worker for worker in named or cluster.workers.values() if not _has_key(session, transport, worker)
    ]
    new = {worker.id: worker for worker in keyless if not worker.incarnation}
    return list(new.values()), [worker for worker in named or keyless if worker.id not in new]


def look(session: Session, transport: SshTransport, workers: list[Worker]) -> list[Shown]:
    """Ask each for its key, and for nothing else. Records nothing."""

    def one(worker: Worker) -> Shown:
        try:
            return Shown(
                worker, transport.presented_key(session.target(worker), session.limits.connect_timeout)
            )
        except NoAnswer as silence:
            return Shown(worker, silence.silence(worker.id))

    shown = {each.worker.id: each for batch in session.fan_out(workers, one) for each in batch}
    return [shown[worker.id] for worker in workers]


def take(session: Session, transport: SshTransport, shown: list[Shown]) -> list[Probed]:
    """Have these keys on record, and probe their workers. Raises NotWritableError, and as `probe`."""
    keys = {each.worker.id: each.key for each in shown if isinstance(each.key, PresentedKey)}
    transport.accept_keys(keys)
    return operation.probe(session, list(keys))


def _has_key(session: Session, transport: SshTransport, worker: Worker) -> bool:
    try:
        return bool(transport.known_keys(session.target(worker)))
    except NoAnswer:  # what is on record can't be read: whoever looks at the worker says why
        return False
